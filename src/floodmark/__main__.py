"""The program `floodmark`, also as `python -m floodmark`."""

import signal
import sys


def main() -> None:
    """Run the program; Ctrl-C waits for the moment that it takes to import what answers it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    why = None
    if sys.argv[1:2] == ["sync"] and sys.platform == "linux":
        from floodmark.fork_server.client import run_forked

        why = run_forked()  # returns if there is no Spark in the background
    from floodmark.cli.main import main as answer

    answer(not_forked=why)


if __name__ == "__main__":
    main()
