"""The program `floodmark`, also as `python -m floodmark`."""

import os
import signal
import sys

_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def main() -> None:
    """Run the program; Ctrl-C waits for the moment that it takes to import what answers it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    _open_closed_streams()
    why = None
    if sys.argv[1:2] == ["sync"] and sys.platform == "linux":
        from floodmark.fork_server.client import run_forked

        why = run_forked()  # returns if there is no Spark in the background
    from floodmark.cli.main import main as answer

    answer(not_forked=why)


def _open_closed_streams() -> None:
    """Let what is printed vanish if nobody wants it, rather than get into a file opened later."""
    for number, (name, mode) in enumerate(_STREAMS):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number, which is this one
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


if __name__ == "__main__":
    main()
