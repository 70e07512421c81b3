"""Servers that replicate, and a proxy with several servers behind one address."""

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

import pymysql
import pytest

import processes
from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.subprocesses import LOOPBACK
from servers.mysql import MISSING, PrivateMySQL

_MUCH = 1 << 16
_GTIDS = {"gtid-mode": "ON", "enforce-gtid-consistency": "ON"}


@dataclass(frozen=True)
class Replicated:
    """A primary and its replica, which applies everything at once unless it is stopped."""

    primary: PrivateMariaDB
    replica: PrivateMariaDB

    @property
    def is_mysql(self) -> bool:
        """Whether both are MySQL."""
        return isinstance(self.primary, PrivateMySQL)

    def stop_applier(self) -> None:
        """Let the replica receive, and apply nothing."""
        self.replica.execute(f"STOP {self._word} SQL_THREAD")

    def stop(self) -> None:
        """Stop receiver and applier."""
        self.replica.execute(f"STOP {self._word}")

    def start(self) -> None:
        """Start receiver and applier."""
        self.replica.execute(f"START {self._word}")

    def catch_up(self) -> None:
        """Wait until the replica has applied what the primary has now."""
        if self.is_mysql:
            gtids = self.primary.execute("SELECT @@GLOBAL.gtid_executed")[0][0].replace("\n", "")
            done = self.replica.execute(f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{gtids}', 30)")
        else:
            gtids = self.primary.execute("SELECT @@GLOBAL.gtid_current_pos")[0][0]
            done = self.replica.execute(f"SELECT MASTER_GTID_WAIT('{gtids}', 30)")
        assert done == [(0,)], "the replica did not catch up"

    @property
    def _word(self) -> str:
        return "REPLICA" if self.is_mysql else "SLAVE"


def new_server(
    kind: str, folder: Path, number: int, options: Mapping[str, str] | None = None
) -> PrivateMariaDB:
    """A server that keeps a binary log."""
    logging = {"log-bin": "binlog", "server-id": str(number), "log-error-verbosity": "2"}
    if kind == "mysql":
        return PrivateMySQL(folder, {**logging, **_GTIDS, **(options or {})})
    del logging["log-error-verbosity"]
    changes = {"skip-log-bin": "0", "log-slave-updates": "1"}
    return PrivateMariaDB(folder, {**changes, **logging, **(options or {})})


def follow(replica: PrivateMariaDB, primary: PrivateMariaDB, channel: str = "") -> None:
    """Make a server the replica of another one, and start it."""
    login = f"USER = '{primary.user}', {{0}}PASSWORD = '{primary.password}'"
    if isinstance(replica, PrivateMySQL):
        named = f" FOR CHANNEL '{channel}'" if channel else ""
        replica.execute(
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{primary.host}',"
            f" SOURCE_PORT = {primary.port}, SOURCE_{login.format('SOURCE_')},"
            f" SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1{named}"
        )
        replica.execute(f"START REPLICA{named}")
    else:
        named = f" '{channel}'" if channel else ""
        replica.execute(
            f"CHANGE MASTER{named} TO MASTER_HOST = '{primary.host}',"
            f" MASTER_PORT = {primary.port}, MASTER_{login.format('MASTER_')},"
            " MASTER_USE_GTID = slave_pos"
        )
        replica.execute(f"START SLAVE{named}")


def forget_history(server: PrivateMariaDB) -> None:
    """Empty the binary log: what setting up the server wrote there is not to be replicated."""
    mysql = isinstance(server, PrivateMySQL)
    server.execute("RESET BINARY LOGS AND GTIDS" if mysql else "RESET MASTER")


@contextmanager
def replicated(kind: str, folder: Path, replica_options: Any = None) -> Iterator[Replicated]:
    """Start a primary and a replica of a kind."""
    with ExitStack() as running:
        primary = running.enter_context(new_server(kind, folder / "primary", 1))
        replica = running.enter_context(new_server(kind, folder / "replica", 2, replica_options))
        for server in (primary, replica):
            forget_history(server)
        follow(replica, primary)
        yield Replicated(primary, replica)


@contextmanager
def impatient_pair(kind: str, folder: Path) -> Iterator[Replicated]:
    """A primary and a replica that soon notices if it hears nothing; skip where there is none."""
    if kind == "mysql" and not PrivateMySQL.is_available():
        pytest.skip(MISSING)
    option = "slave-net-timeout" if kind == "mariadb" else "replica-net-timeout"
    with replicated(kind, folder, {option: "2"}) as servers:
        yield servers


class Proxy:
    """Passes each connection on to the server that it is pointed at.

    It is a process of its own, since connectorx lets no other thread run while it connects.
    """

    def __init__(self, server: PrivateMariaDB) -> None:
        context = processes.context()
        self._target: Any = context.Value("i", server.port)
        self._ready, ready = context.Pipe(duplex=False)
        self._process = context.Process(target=_serve, args=(self._target, ready), daemon=True)

    def point_at(self, server: PrivateMariaDB) -> None:
        """Send the connections that come from now on to another server."""
        self._target.value = server.port

    def __enter__(self) -> Self:
        self._process.start()
        self.port: int = self._ready.recv()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()
        self._ready.close()


def _serve(target: Any, ready: "Connection[int, int]") -> None:
    listener = socket.create_server((LOOPBACK, 0))
    ready.send(listener.getsockname()[1])
    while True:
        client, _ = listener.accept()
        server = socket.create_connection((LOOPBACK, target.value))
        _in_background(lambda a=client, b=server: _pass_both_ways(a, b))  # type: ignore[misc]


def _pass_both_ways(client: socket.socket, server: socket.socket) -> None:
    with client, server:
        back = _in_background(lambda: _pass(server, client))
        _pass(client, server)
        back.join()


def _pass(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(_MUCH):
            target.sendall(data)
    for side in (source, target):
        with suppress(OSError):
            side.shutdown(socket.SHUT_RDWR)


def _in_background(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def connect(server: PrivateMariaDB, database: str) -> "pymysql.Connection[Any]":
    """A session such as an application has, without autocommit."""
    return pymysql.connect(
        host=server.host,
        port=server.port,
        user=server.user,
        password=server.password,
        database=database,
    )
