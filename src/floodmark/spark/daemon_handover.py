"""Start the daemon of Spark's workers ahead, while Java starts.

    driver ── starts ──► waiting daemon: imports, listens in a folder of Spark's sockets
    Java ──── starts ──► daemon: connects, hands over its streams, environment and arguments

Java starts its daemon for the first task, which then waits for all imports. Instead, that daemon
hands over to the one that waits, which goes on in its place; it then only lives as long as the
other. Spark works the same without any of it:

| what happens                             | what follows                                      |
| ---------------------------------------- | ------------------------------------------------- |
| none waits, or it died, or cannot import | Java's daemon imports everything itself           |
| it was started differently: another      | the same                                          |
| search path, Python or memory allocator  |                                                   |
| it dies later                            | so does Java's daemon, and Java starts another    |
| Java ends or dies, or ends its daemon    | the streams close, and it ends with its workers   |
| the driver dies, or stops, before        | its stdin closes, and it ends                     |

Only this user can open the folder. One daemon is replaced; later ones of the same Spark are not.
"""

import json
import os
import select
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

WAITING = "--waiting-in"
"""The argument of the daemon that waits, before the folder."""
FOLDER = "FLOODMARK_DAEMON_FOLDER"
"""The variable with which Java's daemon finds the folder."""
_SOCKET = "daemon"
_STREAMS = 3
_SIZE_BYTES = 4
_TAKEN = b"!"
# Java sets these unless we do, and they are in force from the start of a process.
JAVAS = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
_FIXED = {"GLIBC_TUNABLES", *JAVAS}
_FIXED_PREFIXES = ("LD_", "MALLOC_")


def hand_over(path: Sequence[str]) -> bool:
    """Have the daemon that waits go on as this one, until it ends; False if it does not."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        try:
            given = json.dumps([_start(path), sys.argv, dict(os.environ)]).encode()
            link.connect(os.path.join(folder, _SOCKET))
            socket.send_fds(link, [len(given).to_bytes(_SIZE_BYTES)], list(range(_STREAMS)))
            link.sendall(given)
            if link.recv(1) != _TAKEN:
                return False
        except OSError:
            return False
        with suppress(OSError):
            link.recv(1)
    return True


def take_over(folder: str, path: Sequence[str], prepare: Callable[[], None]) -> socket.socket:
    """Prepare, wait for Java's daemon, and become it; exit if there is nothing to wait for.

    Keep what is returned open, but in no worker: Java's daemon ends when it is closed.
    """
    place = os.path.join(folder, _SOCKET)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(place)
        listening.listen()
        prepare()
        ready, _, _ = select.select([0, listening.fileno()], [], [])
        if listening.fileno() not in ready:
            sys.exit()  # the driver is gone, or has stopped Spark
        link, _ = listening.accept()
    head, streams, _, _ = socket.recv_fds(link, _SIZE_BYTES, _STREAMS)
    start, argv, environ = _received(link, int.from_bytes(head))
    if start != _start(path) or _fixed(environ) != _fixed(os.environ):
        sys.exit()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv[:] = argv
    link.sendall(_TAKEN)
    return link


def _start(path: Sequence[str]) -> list[list[str]]:
    """Return what decides which modules are imported; Java adds Spark's own jar to the path."""
    return [[sys.executable, os.getcwd()], [one for one in path if not one.endswith(".jar")]]


def _fixed(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environ.items()
        if name in _FIXED or name.startswith(_FIXED_PREFIXES)
    }


def _received(link: socket.socket, size: int) -> tuple[list[list[str]], list[str], dict[str, str]]:
    data = bytearray()
    while more := link.recv(size - len(data)):
        data += more
    start, argv, environ = json.loads(data)
    return start, argv, environ
