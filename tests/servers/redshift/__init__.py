"""A stand-in for Amazon Redshift: a real PostgreSQL behind a wire proxy of our own.

Used through Redshift's own driver. It runs COPY … MANIFEST FORMAT PARQUET itself, in the client's
transaction, and refuses whatever is not known to work in Redshift. It was built from Redshift's
documentation, and has never been held against a real cluster: README.md lists what it imitates.
"""

import socket
import ssl
import threading
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from floodmark.config.models import RedshiftConnection
from floodmark.config.secret import Secret
from floodmark.subprocesses import LOOPBACK
from servers import S3Server
from servers.postgres import PrivatePostgres
from servers.redshift.authentication import Logins
from servers.redshift.column_types import varbyte_domain
from servers.redshift.copy_command import CopyCommand
from servers.redshift.faults import Execution, Fault, Plan, no_faults
from servers.redshift.lake_files import File, read_files
from servers.redshift.refusals import CopyRefused
from servers.redshift.session import Session, Surroundings
from servers.redshift.unload_command import UnloadCommand, write_files
from servers.redshift.wire import Peer
from servers.threads import Threads

MOST_CURSOR_BYTES = 8_000_000_000
"""Of a single dc2.large."""

ROLE = "arn:aws:iam::123456789012:role/floodmark"

_CATALOG = Path(__file__).parent / "catalog.sql"


class RedshiftStandIn:
    """Listens on a loopback port; `plan` may be replaced at any time.

    `isolation` is "serializable" or, as a database of Redshift may be, "repeatable read".
    """

    host = LOOPBACK

    def __init__(
        self,
        postgres: PrivatePostgres,
        s3: S3Server,
        *,
        isolation: str = "serializable",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.plan: Plan = no_faults
        self.executed: list[Execution] = []
        """Every statement that was run, or met a fault."""
        self.role = ROLE
        """The role that is attached to the cluster."""
        self.buckets_elsewhere: set[str] = set()
        """Buckets in another region than the cluster's."""
        self.may_unload = True
        """Whether the role may write to buckets."""
        self.cursor_bytes = MOST_CURSOR_BYTES
        """How much the leader node holds of a cursor's rows."""
        self.logins = Logins(postgres.user, postgres.password)
        self._isolation = isolation.replace(" ", "\\ ")
        self._tls = tls
        self._postgres = postgres
        self._s3 = s3
        self.database = f"redshift_{uuid.uuid4().hex[:8]}"
        self._lock = threading.Lock()
        self._peers: set[Peer] = set()
        self._threads = Threads("redshift-stand-in")
        self._stopping = False
        self._varbytes: set[int] = set()
        self._listener = socket.create_server((LOOPBACK, 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]

    def connection(self, **changes: Any) -> RedshiftConnection:
        """How a configuration names this server."""
        settings: dict[str, Any] = {
            "host": self.host,
            "port": self.port,
            "database": self.database,
            "user": self._postgres.user,
            "password": Secret(self._postgres.password),
            "iam_role": ROLE,
            "ssl": False,
        }
        return RedshiftConnection(**{**settings, **changes})

    def look(self, sql: str) -> list[tuple[Any, ...]]:
        """Ask PostgreSQL itself, past the proxy and its refusals."""
        return self._postgres.execute(sql, database=self.database)

    def forget(self) -> None:
        """No faults from now on, nobody is locked, and statements are counted from 1 again."""
        self.logins.forget()
        self.buckets_elsewhere.clear()
        self.may_unload = True
        self.cursor_bytes = MOST_CURSOR_BYTES
        with self._lock:
            self.plan = no_faults
            self.executed = []

    def start(self) -> None:
        """Make the database and begin to accept connections."""
        self._postgres.execute(f"CREATE DATABASE {self.database}")
        self.look(_CATALOG.read_text())
        self._threads.start(self._accept)

    def stop(self) -> None:
        """Break every connection, and wait until all threads have ended."""
        with self._lock:
            self._stopping = True
            peers = list(self._peers)
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for peer in peers:
            peer.close()
        self._threads.join()
        self._listener.close()
        self._postgres.execute(f"DROP DATABASE {self.database} WITH (FORCE)")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _accept(self) -> None:
        while not self._stopping:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._threads.start(self._converse, Peer(client, self._tls))

    def _converse(self, client: Peer) -> None:
        backend = Peer(socket.create_connection((self._postgres.host, self._postgres.port)))
        with self._lock:
            self._peers |= {client, backend}
        try:
            surroundings = Surroundings(
                self._isolation,
                self.logins.authenticate,
                self._decide,
                self._define_varbyte,
                self._read_files,
                self._note_load_error,
                self._write_files,
                lambda: self.cursor_bytes,
            )
            Session(client, backend, surroundings).run()
        except (EOFError, OSError, ValueError):
            pass  # one of them hung up
        finally:
            client.close()
            backend.close()
            with self._lock:
                self._peers -= {client, backend}

    def _decide(self, kind: str, sql: str) -> Fault | None:
        with self._lock:
            execution = Execution(len(self.executed) + 1, kind, sql)
            self.executed.append(execution)
            return self.plan(execution)

    def _define_varbyte(self, size: int) -> None:
        with self._lock:
            if size not in self._varbytes:
                self.look(
                    f"CREATE DOMAIN {varbyte_domain(size)} AS bytea"
                    f" CHECK (octet_length(VALUE) <= {size})"
                )
                self._varbytes.add(size)

    def _read_files(self, command: CopyCommand) -> Iterator[File]:
        return read_files(command, self._s3, self.role, self.buckets_elsewhere)

    def _write_files(self, command: UnloadCommand, rows: pa.Table) -> None:
        write_files(command, rows, self._s3, self.role, permitted=self.may_unload)

    def _note_load_error(self, pid: int, error: CopyRefused) -> None:
        self._postgres.execute(
            "INSERT INTO redshift.sys_load_error_detail (session_id, file_name, column_name,"
            " column_type, column_length, error_code, error_message)"
            " VALUES (%s, %s, %s, %s, %s, 15007, %s)",
            (
                pid,
                error.file[:256],
                error.column,
                error.kind[:10],
                error.length,
                error.reason[:512],
            ),
            database=self.database,
        )
