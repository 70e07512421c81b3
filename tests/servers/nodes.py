"""Machines of a network, on this machine: network namespaces that a bridge connects.

Nothing listens in the namespace of this machine, and no address of it is used. A node has its own
loopback, on which servers of this machine are reached through forwarded ports.
"""

import ctypes
import os
import shutil
import socket
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Self

from floodmark.subprocesses import LOOPBACK

_NEW_NETWORK = 0x40000000
_BUFFER_BYTES = 1 << 16


class Network:
    """A bridge and the nodes on it."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self._id = token_hex(3)
        self._switch = f"fm{self._id}s"
        self.nodes = [f"fm{self._id}n{number}" for number in range(nodes)]
        self._listening: list[socket.socket] = []
        self._hosts = folder / "hosts"

    def __enter__(self) -> Self:
        try:
            self._build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for listener in self._listening:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for name in (*self.nodes, self._switch):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def address(self, number: int) -> str:
        """The address of a node, which only the nodes can reach."""
        return f"10.213.0.{number + 1}"

    def inside(self, number: int) -> list[str]:
        """The start of a command line that runs a command on a node, under the node's name."""
        ip, unshare = shutil.which("ip"), shutil.which("unshare")
        assert ip
        assert unshare
        # Each command has its own view of /etc, in which the name of the node has an address.
        script = f'hostname node{number} && mount --bind {self._hosts} /etc/hosts && exec "$@"'
        return [ip, "netns", "exec", self.nodes[number], unshare, "--uts", "sh", "-c", script, "sh"]

    def cut(self, number: int) -> None:
        """Take a node off the network: no connection is closed, and what it runs goes on."""
        _ip("-n", self._switch, "link", "set", f"port{number}", "down")

    def join(self, number: int) -> None:
        """Bring a node back to the network."""
        _ip("-n", self._switch, "link", "set", f"port{number}", "up")

    def forward(self, port: int) -> None:
        """Let all nodes reach a server of this machine at the same port of their own loopback."""
        for node in self.nodes:
            made: list[socket.socket] = []
            opener = threading.Thread(target=_listen, args=(node, port, made))
            opener.start()
            opener.join()
            (listener,) = made
            self._listening.append(listener)
            threading.Thread(target=_accept, args=(listener, port), daemon=True).start()

    def _build(self) -> None:
        named = [f"{self.address(n)} node{n}\n" for n in range(len(self.nodes))]
        self._hosts.write_text("".join([f"{LOOPBACK} localhost\n", *named]))
        _ip("netns", "add", self._switch)
        _ip("-n", self._switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self._switch, "link", "set", "bridge", "up")
        for number, node in enumerate(self.nodes):
            _ip("netns", "add", node)
            port = f"port{number}"
            pair = ("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", node)
            _ip("-n", self._switch, *pair)
            _ip("-n", self._switch, "link", "set", port, "master", "bridge", "up")
            _ip("-n", node, "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
            _ip("-n", node, "link", "set", "eth0", "up")
            _ip("-n", node, "link", "set", "lo", "up")


def networks_are_allowed() -> bool:
    """Whether this user may create network namespaces, with the tools that are installed."""
    if os.geteuid() != 0 or not (shutil.which("ip") and shutil.which("unshare")):
        return False
    try:
        with TemporaryDirectory() as folder, Network(Path(folder), 1) as network:
            subprocess.run([*network.inside(0), "true"], check=True, capture_output=True)
    except subprocess.CalledProcessError:
        return False
    return True


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _listen(node: str, port: int, made: list[socket.socket]) -> None:
    """Open a socket in the namespace of a node. Only the calling thread enters it."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path(f"/run/netns/{node}").open() as there:
        if libc.setns(there.fileno(), _NEW_NETWORK):
            raise OSError(ctypes.get_errno(), f"cannot enter {node}")
        listener = socket.create_server((LOOPBACK, port))
    made.append(listener)


def _accept(listener: socket.socket, port: int) -> None:
    while True:
        try:
            near, _ = listener.accept()
        except OSError:
            return  # closed
        try:
            far = socket.create_connection((LOOPBACK, port))
        except OSError:
            near.close()
            continue
        pair = threading.Thread(target=_connect, args=(near, far), daemon=True)
        pair.start()


def _connect(near: socket.socket, far: socket.socket) -> None:
    """Copy both ways until both ends are done."""
    with near, far:
        back = threading.Thread(target=_copy, args=(far, near), daemon=True)
        back.start()
        _copy(near, far)
        back.join()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(_BUFFER_BYTES):
            sink.sendall(data)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
