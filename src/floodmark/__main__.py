"""Run the command line with `python -m floodmark`."""

from floodmark.cli.main import main

if __name__ == "__main__":
    main()
