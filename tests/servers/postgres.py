"""A private PostgreSQL on a free loopback port, with a cluster of its own."""

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import psycopg

from floodmark.embedded.process import ServerProcess, free_ports
from floodmark.errors import FloodmarkError
from floodmark.subprocesses import LOOPBACK

# Debian keeps each version's programs where no PATH looks.
_DEBIAN = Path("/usr/lib/postgresql")

# PostgreSQL refuses to run as root; one of these is on every Debian.
_OTHER_USERS = ("postgres", "nobody")

# Quick. A killed server loses nothing without fsync: only a crash of the whole machine would.
_OPTIONS: Mapping[str, str] = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
    "max_connections": "60",
    "max_wal_size": "512MB",
}


class PrivatePostgres:
    """A PostgreSQL server of our own; `options` are settings such as `timezone`.

    The log lies in `folder`. So does the cluster, unless we are root: then it belongs to another
    user, who could not reach it there, and lies in a temporary folder until `stop`. The port stays
    over `restart`.
    """

    host = LOOPBACK
    user = "floodmark"
    database = "postgres"

    def __init__(self, folder: Path, options: Mapping[str, str] | None = None) -> None:
        self.folder = folder.absolute()
        self.port = free_ports(1)[0]
        self.password = secrets.token_urlsafe(16)
        self._options = {**_OPTIONS, **(options or {})}
        self._cluster: Path | None = None
        self._server: ServerProcess | None = None

    @property
    def pid(self) -> int | None:
        """The process id, or None while the server is not running."""
        return self._server.pid if self._server else None

    def start(self) -> None:
        """Start the server, and make its cluster if there is none yet."""
        if self._cluster is None:
            self._cluster = self._install()
        if self._server is None:
            self._server = ServerProcess("postgres", self._command(), self.folder, self._is_ready)
        deadline = time.monotonic() + 20
        while True:
            try:
                return self._server.start()
            except FloodmarkError:
                # The children of a server that was killed may take a moment to notice.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def stop(self) -> None:
        """Shut the server down, even with open connections, and remove its cluster."""
        if self._server is not None:
            if (pid := self._server.pid) is not None:
                os.kill(pid, signal.SIGINT)  # SIGTERM would wait for clients to leave
            self._server.stop()
            self._server = None
        if self._cluster is not None:
            shutil.rmtree(self._cluster, ignore_errors=True)
            self._cluster = None

    def kill(self) -> None:
        """End the server at once, as a crash would; `start` finds its data again."""
        if self._server is not None:
            self._server.kill()

    def restart(self) -> None:
        """Kill and start again, on the same port with the same data."""
        self.kill()
        self.start()

    def connect(self, database: str | None = None) -> "psycopg.Connection[tuple[Any, ...]]":
        """A session of the superuser, in autocommit."""
        return psycopg.connect(
            host=self.host,
            port=self.port,
            user=self.user,
            password=self.password,
            dbname=database or self.database,
            connect_timeout=10,
            autocommit=True,
        )

    def execute(
        self, sql: str, parameters: Sequence[object] = (), *, database: str | None = None
    ) -> list[tuple[Any, ...]]:
        """Run one statement as the superuser and return its rows."""
        with self.connect(database) as connection:
            cursor = connection.execute(sql, parameters or None)
            return cursor.fetchall() if cursor.description else []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _install(self) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        parent = None if os.geteuid() == 0 else self.folder
        cluster = Path(tempfile.mkdtemp(prefix="floodmark-postgres-", dir=parent))
        password = cluster / "password"
        password.touch(mode=0o600)
        password.write_text(self.password)
        if os.geteuid() == 0:
            other = _other_user()
            for path in (cluster, password):
                os.chown(path, other.pw_uid, other.pw_gid)
        command = [
            *_as_other_user(),
            find_postgres("initdb"),
            f"--pgdata={cluster}/data",
            f"--username={self.user}",
            f"--pwfile={password}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
            "--no-sync",
        ]
        done = subprocess.run(command, cwd=cluster, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            shutil.rmtree(cluster, ignore_errors=True)
            raise FloodmarkError(f"initdb failed\n{done.stdout}{done.stderr}".strip())
        return cluster

    def _command(self) -> list[str]:
        settings = [part for k, v in self._options.items() for part in ("-c", f"{k}={v}")]
        postgres = [find_postgres("postgres"), "-D", f"{self._cluster}/data", "-p", str(self.port)]
        return [*_as_other_user(), *postgres, *settings]

    def _is_ready(self) -> bool:
        with suppress(psycopg.OperationalError):
            return self.execute("SELECT 1") == [(1,)]
        return False


def find_postgres(program: str) -> str:
    """Find a program of PostgreSQL, of Debian's newest version or in PATH."""
    versions = sorted(_DEBIAN.glob("*/bin"), key=lambda path: float(path.parent.name), reverse=True)
    places = [*map(str, versions), os.environ.get("PATH", os.defpath), "/usr/local/bin"]
    path = shutil.which(program, path=":".join(places))
    if path is None:
        raise FloodmarkError(f"{program} is missing", hint="on Debian: apt install postgresql")
    return path


def _other_user() -> pwd.struct_passwd:
    for name in _OTHER_USERS:
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise FloodmarkError(f"PostgreSQL does not run as root, and there is no user {_OTHER_USERS}")


def _as_other_user() -> list[str]:
    if os.geteuid() != 0:
        return []
    program = shutil.which("setpriv")
    assert program is not None, "setpriv is part of every Debian"
    other = _other_user()
    return [
        program,
        f"--reuid={other.pw_uid}",
        f"--regid={other.pw_gid}",
        "--clear-groups",
        # To become another user forgets that we are to die with our parent.
        "--pdeathsig=KILL",
        "--",
    ]
