"""Hand this command over to a fork server, and end as it ends. Imports little."""

import os
import signal
import socket
import sys
from hmac import compare_digest

from floodmark.fork_server.meeting import (
    BEGIN,
    FOLDER,
    MOST_BYTES,
    READY,
    REFUSED,
    SECRET_BYTES,
    STATUS,
    is_same_user,
    name_of,
    packed,
    proof,
)
from floodmark.spark.background.place import NotListening, Unavailable, open_place, place_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_READY_SECONDS = 2.0
_RELAYED = (signal.SIGINT, signal.SIGTERM, signal.SIGTSTP)
_MAY_BE_IGNORED = (*_RELAYED, signal.SIGHUP, signal.SIGQUIT)


def run_forked() -> str | None:
    """Run this command in a child of the fork server, and exit as it exits.

    Return why that is impossible; None if there never was a server. SIGINT must be blocked.
    """
    try:
        path = place_path(os.environ, FOLDER)
    except Unavailable:
        return None
    if not os.path.isdir(path):
        return None
    try:
        for number in (0, 1, 2):  # what is opened next would take the place of a closed one
            os.fstat(number)
        with open_place(path) as place, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as to:
            name = name_of(os.environ)
            secret = place.read_secret(name)
            to.settimeout(_READY_SECONDS)
            to.connect(place.reach(f"{name}.sock"))
            _prove(to, secret)
            _send_facts(to)
            answer = to.recv(MOST_BYTES)
            if answer != READY:
                refused = answer.startswith(REFUSED)
                return answer[len(REFUSED) :].decode(errors="replace") if refused else "it ended"
            signal.pthread_sigmask(signal.SIG_BLOCK, _RELAYED)
            try:
                to.send(BEGIN)
            except OSError:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGTSTP))
                raise
            _follow(to)
    except NotListening:
        return "none runs for this code, these variables and these limits"
    except (OSError, Unavailable) as error:
        return str(error)


def _prove(to: socket.socket, secret: bytes) -> None:
    if not is_same_user(to):
        raise Unavailable("it belongs to another user")
    theirs, ours = to.recv(SECRET_BYTES), os.urandom(SECRET_BYTES)
    to.send(ours + proof(secret, b"command", theirs + ours))
    if not secret or not compare_digest(
        to.recv(SECRET_BYTES), proof(secret, b"server", theirs + ours)
    ):
        raise Unavailable("it does not know the secret")


def _send_facts(to: socket.socket) -> None:
    """Send everything that the child takes over from this process."""
    ignored = [n for n in _MAY_BE_IGNORED if signal.getsignal(n) is signal.SIG_IGN]
    package = sys.modules["__main__"].__package__
    facts = packed(
        [b"%d" % _umask(), (package or "").encode()],
        [b"%d" % number for number in ignored],
        list(map(os.fsencode, sys.argv)),
        list(map(os.fsencode, sys.path)),
        [name + b"=" + value for name, value in os.environb.items()],
    )
    folder = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        socket.send_fds(to, [facts], [0, 1, 2, folder])
    finally:
        os.close(folder)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _follow(to: socket.socket) -> "NoReturn":
    """Pass signals on, wait for the end of the child, and end in the same way."""

    def relay(number: int, _frame: object) -> None:
        _try_send(to, number)

    def suspend(_number: int, _frame: object) -> None:
        _try_send(to, signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        _try_send(to, signal.SIGCONT)

    for number in _RELAYED:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, suspend if number == signal.SIGTSTP else relay)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _RELAYED)
    to.settimeout(None)
    try:
        status = to.recv(STATUS.size)
    except OSError:
        status = b""
    # Without a status the server was killed, and the kernel has killed the child.
    ended = STATUS.unpack(status)[0] if status else signal.SIGKILL
    if os.WIFSIGNALED(ended):
        killed_by = os.WTERMSIG(ended)
        if killed_by != signal.SIGKILL:
            signal.signal(killed_by, signal.SIG_DFL)
        os.kill(os.getpid(), killed_by)
    os._exit(os.WEXITSTATUS(ended))


def _try_send(to: socket.socket, number: int) -> None:
    try:
        to.send(bytes([number]))
    except OSError:
        return  # the child has ended
