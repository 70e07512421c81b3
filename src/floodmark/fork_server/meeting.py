"""Where a command finds its fork server, and what they say. Imports little."""

import hmac
import os
import socket
import struct
import sys
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256

from floodmark.spark.background.process_facts import machine, start_variables

FOLDER = "background-commands"
SECRET_BYTES = 32
MOST_BYTES = 1 << 20
STREAMS_AND_FOLDER = 4
READY, BEGIN, REFUSED = b"ready", b"begin", b"refused: "
STATUS = struct.Struct("i")

_PROTOCOL = 1
_PEER = struct.Struct("3i")  # process, user, group
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# fmt: off
_LIMITING = {
    b"Uid", b"Gid", b"Groups", b"CapInh", b"CapPrm", b"CapEff", b"CapBnd", b"CapAmb",
    b"NoNewPrivs", b"Seccomp", b"Cpus_allowed", b"Mems_allowed",
}
# fmt: on


def name_of(environment: Mapping[str, str]) -> str:
    """Return the name of the server that this process can use, or be."""
    facts = (
        (_PROTOCOL, _PACKAGE, sys.executable, sys.version, sys.path[1:]),
        (sys.flags, sys.warnoptions, sorted(sys._xoptions.items())),  # noqa: SLF001
        sorted(start_variables(environment).items()),
        (list(machine()), os.readlink("/proc/self/root")),
        list(_limits()),
    )
    return sha256(repr(facts).encode(errors="surrogateescape")).hexdigest()[:24]


def _limits() -> list[object]:
    """Return what limits this process, and its children."""
    found: list[object] = [os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)]
    for name in ("limits", "oom_score_adj", "attr/current"):
        with suppress(OSError), open(f"/proc/self/{name}", "rb") as file:
            found.append(file.read())
    with open("/proc/self/status", "rb") as file:
        found += [line for line in file if line.partition(b":")[0] in _LIMITING]
    return found


def is_same_user(connection: socket.socket) -> bool:
    """Whether the other process belongs to our user, as the kernel tells."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return bool(_PEER.unpack(data)[1] == os.geteuid())


def proof(secret: bytes, who: bytes, challenges: bytes) -> bytes:
    """Return what only `who` can answer, who knows the secret."""
    return hmac.digest(secret, who + challenges, "sha256")


def packed(*lists: list[bytes]) -> bytes:
    """Return lists of byte strings without zeros as one byte string."""
    return b"\0".join(part for each in lists for part in (str(len(each)).encode(), *each))


def unpacked(data: bytes) -> list[list[bytes]]:
    """Return the lists that were packed."""
    parts = iter(data.split(b"\0"))
    return [[next(parts) for _ in range(int(count))] for count in parts]
