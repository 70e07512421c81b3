"""Fork commands from this process, which has imported what they need."""

import gc
import os
import secrets
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from hmac import compare_digest
from importlib import import_module
from selectors import EVENT_READ, PollSelector
from typing import TYPE_CHECKING

from floodmark.fork_server.meeting import (
    BEGIN,
    FOLDER,
    MOST_BYTES,
    REFUSED,
    SECRET_BYTES,
    STATUS,
    STREAMS_AND_FOLDER,
    is_same_user,
    name_of,
    proof,
)
from floodmark.spark.background.key import installed_code
from floodmark.spark.background.place import Place, open_place, place_path

if TYPE_CHECKING:
    from floodmark.fork_server.command import Command

_RELAYED = {signal.SIGINT, signal.SIGTERM, signal.SIGSTOP, signal.SIGCONT}
_HANDLED = (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_CHECK_SECONDS = 30.0

# What a sync imports; drivers that are not installed are left out.
_PRELOADED = (
    "floodmark.fork_server.command",
    "floodmark.api.options",
    "floodmark.spark.background.client",
    "floodmark.spark.extract",
    "floodmark.state.conditional_writes",
    "floodmark.storage.local",
    "floodmark.storage.s3",
    "floodmark.warehouse.postgres.parallel_copy",
    "floodmark.warehouse.postgres.target",
    "floodmark.warehouse.quarantine",
    "encodings.idna",
)


def main() -> None:
    """Serve until the process at the other end of stdin has ended."""
    os.umask(0o077)
    with open_place(place_path(os.environ, FOLDER)) as place:
        name = name_of(os.environ)
        lock = place.lock(name)
        command = None if lock is None else _serve(place, name, lock)
    if command is not None:  # this is a child
        command.run()


def _serve(place: Place, name: str, lock: int) -> "Command | None":
    code = list(installed_code())
    # A thread would not survive a fork.
    os.environ["JE_ARROW_MALLOC_CONF"] = "background_thread:false"
    # Arrow's default allocator asks for huge pages, which the kernel has to clear in each command:
    # half of the CPU time of sending rows to PostgreSQL. Commands get their own environment.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    for module in _PRELOADED:
        with suppress(ImportError):
            import_module(module)
    gc.collect()
    gc.freeze()
    if len(os.listdir("/proc/self/task")) > 1:
        return None
    server = ForkServer(place, name, lock, code)
    command = server.serve()
    if command is None:
        server.stop_listening()
    return command


class ForkServer:
    """One thread that forks commands, and waits for all of them at once."""

    def __init__(
        self, place: Place, name: str, lock: int, code: list[tuple[str, int, int]]
    ) -> None:
        self.secret = secrets.token_bytes(SECRET_BYTES)
        self.children: dict[int, _Client] = {}
        self._place, self._name, self._lock, self._code = place, name, lock, code
        self._waiting = PollSelector()
        place.write_secret(name, self.secret)
        place.clear_socket(name)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(place.reach(f"{name}.new"))
        self._listener.listen(64)
        self._listens = True
        self._woken, self._wakes = socket.socketpair()
        for end in (self._listener, self._woken, self._wakes):
            end.setblocking(False)
        signal.set_wakeup_fd(self._wakes.fileno())
        for number in _HANDLED:
            signal.signal(number, lambda *_: None)  # its number is read from `_woken`
        self.watch(0, self.stop_listening)
        self.watch(self._woken, self._take_signals)
        self.watch(self._listener, self._accept)
        place.publish_socket(name)

    def serve(self) -> "Command | None":
        """Serve until it is over. In a child, return its command."""
        while self._listens or self.children:
            for key, _ in self._waiting.select(_CHECK_SECONDS):
                if key.fd in self._waiting.get_map():  # an earlier one may have ended it
                    command: Command | None = key.data()
                    if command is not None:
                        return command
            if not self._place.owns(self._name, self._lock):
                self.stop_listening()
        return None

    def watch(self, file: int | socket.socket, ready: Callable[[], object]) -> None:
        """Call a function whenever a file can be read."""
        self._waiting.register(file, EVENT_READ, ready)

    def forget(self, connection: socket.socket) -> None:
        """Close a connection."""
        if connection.fileno() >= 0:
            self._waiting.unregister(connection)
            connection.close()

    def stop_listening(self) -> None:
        """Accept no more commands; those that run go on."""
        if self._listens:
            self._listens = False
            self._place.withdraw(self._name, self._lock)
            self._waiting.unregister(0)
            self.forget(self._listener)

    def is_current(self) -> bool:
        """Whether the installed code is what this process has imported; if not, serve no more."""
        try:
            current = list(installed_code()) == self._code
        except OSError:
            current = False
        if not current:
            self.stop_listening()
        return current

    def fork(self, client: "_Client", facts: bytes, files: list[int]) -> "Command | None":
        """Fork, and return the child's command in the child."""
        from floodmark.fork_server.command import Command

        begin, begins = os.pipe()
        parent = os.getpid()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
        try:
            pid = os.fork()
            if not pid:
                return self._in_child(
                    Command(client.connection, facts, files, begin, parent), begins
                )
        except OSError:
            os.close(begins)
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            if os.getpid() == parent:
                os.close(begin)
        client.pid, client.begins = pid, begins
        self.children[pid] = client
        return None

    def _in_child(self, command: "Command", begins: int) -> "Command":
        """Let go of all that belongs to the server. Never raises: this is not the server."""
        try:
            signal.set_wakeup_fd(-1)
            for number in _HANDLED:
                signal.signal(number, signal.SIG_DFL)
            watched = [key.fileobj for key in self._waiting.get_map().values()]
            for file in (*watched, self._wakes):
                if isinstance(file, socket.socket) and file is not command.connection:
                    file.close()
            for each in (self._lock, begins, *(one.begins for one in self.children.values())):
                os.close(each)
        except BaseException:  # noqa: BLE001
            os._exit(1)
        return command

    def _accept(self) -> None:
        with suppress(OSError):
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            if is_same_user(connection):
                self.watch(connection, _Client(self, connection).answer)

    def _take_signals(self) -> None:
        with suppress(BlockingIOError):
            if set(self._woken.recv(4096)) - {signal.SIGCHLD}:
                self.stop_listening()
        for pid, client in list(self.children.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self.children[pid]
                client.tell(status)


class _Client:
    """The connection of a command, and its child once it is forked."""

    def __init__(self, server: ForkServer, connection: socket.socket) -> None:
        self.connection = connection
        self.pid = 0
        self.begins = -1
        self._server = server
        self._challenge = secrets.token_bytes(SECRET_BYTES)
        self._next: Callable[[], Command | None] = self._check_proof
        connection.send(self._challenge)

    def answer(self) -> "Command | None":
        """Take what the command sends. In a child, return its command."""
        try:
            return self._next()
        except (OSError, ValueError):
            self._end()
            return None

    def tell(self, status: int) -> None:
        """Tell the command how its child has ended."""
        os.close(self.begins)
        with suppress(OSError):
            self.connection.send(STATUS.pack(status))
        self._server.forget(self.connection)

    def _check_proof(self) -> None:
        data = self.connection.recv(MOST_BYTES)
        theirs, given = data[:SECRET_BYTES], data[SECRET_BYTES:]
        challenges = self._challenge + theirs
        secret = self._server.secret
        if not compare_digest(given, proof(secret, b"command", challenges)):
            raise ValueError
        self.connection.send(proof(secret, b"server", challenges))
        self._next = self._take_facts

    def _take_facts(self) -> "Command | None":
        facts, files, _, _ = socket.recv_fds(
            self.connection, MOST_BYTES, STREAMS_AND_FOLDER, socket.MSG_CMSG_CLOEXEC
        )
        self._next = self._obey
        command = None
        try:
            if len(files) != STREAMS_AND_FOLDER:
                raise ValueError
            if not self._server.is_current():
                self.connection.send(REFUSED + b"the installed code has changed")
                raise ValueError
            command = self._server.fork(self, facts, files)
        finally:
            if command is None:  # the child keeps them
                for file in files:
                    os.close(file)
        return command

    def _obey(self) -> None:
        order = self.connection.recv(MOST_BYTES)
        if order == BEGIN:
            os.write(self.begins, BEGIN)
        elif len(order) == 1 and order[0] in _RELAYED:
            os.kill(self.pid, order[0])
        else:
            raise ValueError  # also at the end of the connection

    def _end(self) -> None:
        """Close the connection of a command that is gone, or not welcome, and kill its child."""
        self._server.forget(self.connection)
        if self.pid in self._server.children:
            os.kill(self.pid, signal.SIGKILL)
