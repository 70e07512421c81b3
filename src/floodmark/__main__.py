"""The program `floodmark`, also as `python -m floodmark`."""

import signal


def main() -> None:
    """Run the program; Ctrl-C waits for the moment that it takes to import what answers it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    from floodmark.cli.main import main as answer

    answer()


if __name__ == "__main__":
    main()
