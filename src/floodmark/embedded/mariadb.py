"""A private MariaDB server on a free loopback port."""

import getpass
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import pymysql

from floodmark.embedded.process import ServerProcess, free_ports
from floodmark.errors import FloodmarkError
from floodmark.subprocesses import LOOPBACK

_USER = "floodmark"

# The kernel's limit for a socket path, including the terminating NUL.
_SOCKET_PATH_BYTES = 108

# Debian installs the server outside an ordinary user's PATH.
_MORE_PATH = "/usr/sbin:/usr/local/sbin"

# Small and fast. With flush_log_at_trx_commit=2 a killed server loses nothing; only a crash of the
# whole machine would.
_OPTIONS: Mapping[str, str] = {
    "bind-address": LOOPBACK,
    "character-set-server": "utf8mb4",
    "innodb-buffer-pool-size": "64M",
    "innodb-flush-log-at-trx-commit": "2",
    "innodb-log-file-size": "16M",
    "max-connections": "100",
    "performance-schema": "OFF",
    "skip-log-bin": "1",
    "skip-name-resolve": "1",
}


class PrivateMariaDB:
    """A private MariaDB server; `options` are server options such as `default_time_zone`.

    All data is in `folder`, and a later start with the same folder reuses it. Each object has its
    own port, which `restart` keeps.
    """

    user = _USER
    host = LOOPBACK

    def __init__(self, folder: Path, options: Mapping[str, str] | None = None) -> None:
        self.folder = folder.absolute()
        self._options = dict(options or {})
        self._socket_folder: Path | None = None
        self._server: ServerProcess | None = None
        self._port: int | None = None

    @property
    def port(self) -> int:
        """The port on the loopback interface."""
        if self._port is None:
            self._port = free_ports(1)[0]
        return self._port

    @property
    def password(self) -> str:
        """The password of `user`, generated when the folder is first used."""
        path = self.folder / "password"
        if not path.exists():
            self._make_folder()
            path.touch(mode=0o600)
            path.write_text(secrets.token_urlsafe(16))
        return path.read_text()

    @property
    def pid(self) -> int | None:
        """The server's process id, or None while it is not running."""
        return self._server.pid if self._server else None

    def start(self) -> None:
        """Start the server; create its data folder if needed."""
        if self._server is None:
            self._install()
            self._server = ServerProcess("mariadb", self._command(), self.folder, self._is_ready)
        self._server.start()

    def stop(self) -> None:
        """Shut the server down cleanly."""
        if self._server is not None:
            self._server.stop()
            self._server = None  # its command uses a socket that the next line may remove
        self._remove_socket_folder()

    def kill(self) -> None:
        """Kill the server, as in a crash."""
        if self._server is not None:
            self._server.kill()

    def restart(self) -> None:
        """Shut down and start again, on the same port."""
        self.stop()
        self.start()

    def execute(
        self, sql: str, parameters: Sequence[object] = (), *, database: str | None = None
    ) -> list[tuple[Any, ...]]:
        """Run one statement as root and return its rows."""
        with (
            pymysql.connect(
                unix_socket=str(self._socket),
                user="root",
                database=database,
                autocommit=True,
                ssl_disabled=True,  # over a socket; else it loads all CA certificates first
            ) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(sql, parameters or None)
            return list(cursor.fetchall())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def _socket(self) -> Path:
        path = self.folder / "mariadb.sock"
        if len(os.fsencode(path)) < _SOCKET_PATH_BYTES:
            return path
        if self._socket_folder is None or not self._socket_folder.exists():
            self._socket_folder = Path(tempfile.mkdtemp(prefix="floodmark-", dir="/tmp"))
        return self._socket_folder / "mariadb.sock"

    def _remove_socket_folder(self) -> None:
        if self._socket_folder is not None:
            shutil.rmtree(self._socket_folder, ignore_errors=True)
            self._socket_folder = None

    def _make_folder(self) -> None:
        # Access to the socket is root access to the database: keep other users out.
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _install(self) -> None:
        if self._data.exists():
            return
        self._make_folder()
        # Install into a temporary folder and rename it: an interrupted installation never looks
        # complete.
        unfinished = Path(tempfile.mkdtemp(prefix="unfinished-", dir=self.folder))
        command = [
            _find("mariadb-install-db"),
            "--no-defaults",
            f"--datadir={unfinished}",
            # A starting server removes all temporary tables it finds, even of other servers.
            f"--tmpdir={self._socket.parent}",
            "--auth-root-authentication-method=normal",
            "--skip-name-resolve",
            "--skip-test-db",
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-log-file-size=16M",
            *user_option(),
        ]
        done = subprocess.run(  # noqa: S603 - the command is ours
            command, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise FloodmarkError(f"mariadb-install-db failed\n{done.stdout}{done.stderr}".strip())
        unfinished.rename(self._data)

    def _command(self) -> list[str]:
        options = {
            **_OPTIONS,
            "datadir": str(self._data),
            "init-file": str(self._write_first_statements()),
            "pid-file": str(self.folder / "mariadb.pid"),
            "port": str(self.port),
            "socket": str(self._socket),
            "tmpdir": str(self._socket.parent),
            **self._options,
        }
        settings = [f"--{name}={value}" for name, value in options.items()]
        return [_find("mariadbd"), "--no-defaults", *settings, *user_option()]

    def _write_first_statements(self) -> Path:
        """Write the statements that the server runs before it accepts connections; idempotent."""
        account = f"'{_USER}'@'{LOOPBACK}'"
        path = self.folder / "first.sql"
        path.touch(mode=0o600)
        statements = self._account_statements(account)
        path.write_text("".join(f"{statement};\n" for statement in statements))
        return path

    def _account_statements(self, account: str) -> tuple[str, ...]:
        return (
            # Root has no password, so allow it only through the socket.
            "DELETE FROM mysql.global_priv WHERE User IN ('', 'root') AND Host <> 'localhost'",
            "FLUSH PRIVILEGES",
            f"CREATE USER IF NOT EXISTS {account} IDENTIFIED BY '{self.password}'",
            f"GRANT ALL PRIVILEGES ON *.* TO {account} WITH GRANT OPTION",
        )

    def _is_ready(self) -> bool:
        # PyMySQL leaks its socket if the connection is refused, so probe with our own first.
        try:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(str(self._socket))
            self.execute("SELECT 1")
        except (OSError, pymysql.err.OperationalError):
            return False
        return True


def _find(program: str) -> str:
    path = shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:{_MORE_PATH}")
    if path is None:
        raise FloodmarkError(
            f"{program} is not installed",
            hint="install MariaDB, on Debian: apt install mariadb-server",
        )
    return path


def user_option() -> list[str]:
    """Return the user option, without which the server refuses to run as root."""
    return [f"--user={getpass.getuser()}"] if os.geteuid() == 0 else []
