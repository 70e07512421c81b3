"""A private MySQL on a free loopback port, from the server that `scripts/get-mysql` unpacked."""

import shutil
from pathlib import Path

from floodmark.embedded.mariadb import PrivateMariaDB, user_option
from floodmark.subprocesses import LOOPBACK

UNPACKED = Path(__file__).parents[2] / ".mysql"
MISSING = f"no MySQL server in {UNPACKED.name}/: 'make mysql' unpacks one"

# Small and quick; what a test needs otherwise it sets.
_OPTIONS = {
    "bind-address": LOOPBACK,
    "innodb-buffer-pool-size": "64M",
    "innodb-flush-log-at-trx-commit": "2",
    "innodb-redo-log-capacity": "32M",
    "max-connections": "100",
    "skip-log-bin": "1",
    "skip-name-resolve": "1",
}


class PrivateMySQL(PrivateMariaDB):
    """A MySQL server of our own, used like a PrivateMariaDB."""

    @staticmethod
    def is_available() -> bool:
        """Whether the server was unpacked."""
        return (UNPACKED / "template" / "auto.cnf").exists()

    def _install(self) -> None:
        if self._data.exists():
            return
        self._make_folder()
        shutil.copytree(
            UNPACKED / "template", self._data, ignore=shutil.ignore_patterns("auto.cnf")
        )

    def _command(self) -> list[str]:
        options = {
            **_OPTIONS,
            "datadir": str(self._data),
            "init-file": str(self._write_first_statements()),
            "pid-file": str(self.folder / "mysql.pid"),
            "port": str(self.port),
            "socket": str(self._socket),
            "tmpdir": str(self._socket.parent),
            **self._options,
        }
        if "log-bin" in self._options:
            del options["skip-log-bin"]
        settings = [f"--{name}={value}" for name, value in options.items()]
        return [str(UNPACKED / "mysqld"), *settings, *user_option()]

    def _account_statements(self, account: str) -> tuple[str, ...]:
        return (
            f"CREATE USER IF NOT EXISTS {account} IDENTIFIED BY '{self.password}'",
            f"GRANT ALL PRIVILEGES ON *.* TO {account} WITH GRANT OPTION",
        )
