"""Programs on a terminal: what a person types, and what they see."""

import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from select import select


def on_terminal(
    command: Sequence[str],
    *,
    folder: Path,
    answers: Sequence[tuple[str, str]] = (),
    columns: int = 80,
    environment: Mapping[str, str] | None = None,
) -> tuple[int, str]:
    """Run a program on a terminal of its own; returns its exit code and what it showed.

    `answers` are typed one after another, each once its question is shown.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    with subprocess.Popen(
        ["setsid", "--ctty", "--wait", *command],  # so that Ctrl-C reaches it
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env={**os.environ, "TERM": "xterm-256color", **(environment or {})},
    ) as process:
        os.close(theirs)
        waiting = list(answers)
        shown, seen = b"", 0
        with suppress(OSError):  # which is how a terminal ends that nobody has open any more
            while part := _read(ours, process, shown):
                shown += part
                while waiting and (found := shown.find(waiting[0][0].encode(), seen)) >= 0:
                    question, answer = waiting.pop(0)
                    seen = found + len(question.encode())
                    os.write(ours, f"{answer}\n".encode())
        os.close(ours)
        code = process.wait(10)
    return code, shown.decode().replace("\r\n", "\n")


def _read(terminal: int, process: "subprocess.Popen[bytes]", shown: bytes) -> bytes:
    ready, _, _ = select([terminal], [], [], 60)
    if not ready:
        process.kill()
        raise AssertionError(f"nothing more was shown after {shown.decode()}")
    return os.read(terminal, 65536)
