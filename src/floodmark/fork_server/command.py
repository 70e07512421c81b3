"""Become the command that a user has started, in a process that was forked for it."""

import ctypes
import io
import os
import signal
import socket
import sys
from contextlib import suppress
from typing import Any, TextIO

from msgspec import Struct

from floodmark.cli.main import cli, main
from floodmark.cli.sync import sync
from floodmark.config.loading import load_config
from floodmark.fork_server.meeting import BEGIN, READY, REFUSED, unpacked

_PR_SET_PDEATHSIG = 1
_PRCTL = ctypes.CDLL(None, use_errno=True).prctl


class Command(Struct, frozen=True):
    """What a child has to do.

    `files` are the standard streams and the working folder, `begin` a pipe with the word to begin,
    `parent` the fork server.
    """

    connection: socket.socket
    facts: bytes
    files: list[int]
    begin: int
    parent: int

    def run(self) -> None:
        """Run the command and exit with its exit code."""
        try:
            self._become()
            self.connection.send(READY)
        except Exception as error:  # noqa: BLE001 - the command runs by itself, and meets it there
            with suppress(OSError):
                self.connection.send(REFUSED + str(error).encode(errors="replace"))
            os._exit(1)
        self.connection.close()
        if os.read(self.begin, len(BEGIN)) != BEGIN:
            os._exit(1)
        os.close(self.begin)
        main()

    def _become(self) -> None:
        """Take over everything that the child of a shell would have got."""
        _end_with(self.parent)
        (umask, package), ignored, arguments, path, variables = unpacked(self.facts)
        os.environb.clear()
        for variable in variables:
            name, _, value = variable.partition(b"=")
            os.environb[name] = value
        sys.argv[:] = map(os.fsdecode, arguments)
        sys.path[:] = map(os.fsdecode, path)
        sys.modules["__main__"].__package__ = package.decode() or None
        os.umask(int(umask))
        *streams, folder = self.files
        os.fchdir(folder)
        for number, file in enumerate(streams):
            os.dup2(file, number)
        for file in self.files:
            os.close(file)
        for number, place in enumerate(("stdin", "stdout", "stderr")):
            stream = _stream(number, getattr(sys, place))
            setattr(sys, place, stream)
            setattr(sys, f"__{place}__", stream)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in map(int, ignored):
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGINT})  # until `main` handles it
        _check_wanted(sys.argv[2:])


def _end_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends."""
    if _PRCTL(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) or os.getppid() != parent:
        raise OSError("it ended")


def _stream(number: int, like: Any) -> TextIO:
    """Open a standard stream as Python does when it starts."""
    writes, unbuffered = number > 0, like.write_through
    mode, buffering = ("wb", 0 if unbuffered else -1) if writes else ("rb", -1)
    raw: Any = open(number, mode, buffering, closefd=False)  # noqa: SIM115
    return io.TextIOWrapper(
        raw,
        like.encoding,
        like.errors,
        newline="\n",
        line_buffering=not unbuffered and (number == 2 or os.isatty(number)),
        write_through=unbuffered,
    )


def _check_wanted(arguments: list[str]) -> None:
    """Raise unless this is a single sync with `keep_warm`."""
    program = cli.make_context("floodmark", ["sync"], resilient_parsing=True)
    context = sync.make_context("sync", list(arguments), program, resilient_parsing=True)
    if context.params["every_text"] is not None:
        raise ValueError("with --every, a command runs by itself")
    if load_config(context.params["config_path"], os.environ).settings.spark.keep_seconds is None:
        raise ValueError("keep_warm is not set")
