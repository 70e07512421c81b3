"""A private OpenSSH server, to reach other servers through."""

import getpass
import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Self

from floodmark.config.models import TunnelSettings
from floodmark.embedded.process import ServerProcess, free_ports
from floodmark.subprocesses import LOOPBACK

# Debian keeps the server where an ordinary user's PATH does not look.
_MORE_PATH = "/usr/sbin:/usr/local/sbin"

# As root, the server wants this folder, which Debian makes when the system starts.
_PRIVILEGE_SEPARATION = Path("/run/sshd")


class PrivateSshd:
    """An SSH server for the user who runs the tests; it forwards, and gives nobody a shell.

    `key` is let in, and `known_hosts` knows the server. `options` are lines of its configuration.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder.absolute()
        self.port = free_ports(1)[0]
        self.key = make_key(self.folder / "user_key")
        self.known_hosts = self.folder / "known_hosts"
        self.know(make_key(self.folder / "host_key"))
        self._server = ServerProcess("sshd", self._command(options), self.folder, self._is_ready)

    @property
    def settings(self) -> TunnelSettings:
        """A tunnel through this server."""
        return TunnelSettings(
            host=LOOPBACK,
            port=self.port,
            user=getpass.getuser(),
            key=str(self.key),
            known_hosts=str(self.known_hosts),
        )

    @property
    def pid(self) -> int | None:
        """The process id of the listener, or None while the server is not running."""
        return self._server.pid

    def know(self, host_key: Path) -> None:
        """Write down a host key as the one that the server is known by."""
        public = host_key.with_suffix(".pub").read_text()
        self.known_hosts.write_text(f"[{LOOPBACK}]:{self.port} {public}")

    def start(self) -> None:
        """Start the server and wait until it answers."""
        self._server.start()

    def stop(self) -> None:
        """Stop listening; sessions that are open live on until their clients leave."""
        self._server.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _command(self, options: tuple[str, ...]) -> list[str]:
        # It starts itself again for each connection, and so insists on an absolute path.
        program = shutil.which("sshd", path=f"{os.environ.get('PATH', os.defpath)}:{_MORE_PATH}")
        if program is None:
            raise RuntimeError("sshd is missing: apt install openssh-server")
        if os.geteuid() == 0:
            _PRIVILEGE_SEPARATION.mkdir(mode=0o755, exist_ok=True)
        settings = (
            *options,  # first, because sshd takes the first of several
            f"ListenAddress {LOOPBACK}:{self.port}",
            f"HostKey {self.folder}/host_key",
            f"AuthorizedKeysFile {self.folder}/user_key.pub",
            "AuthenticationMethods publickey",
            "ForceCommand /bin/false",
            "MaxStartups 100",
            "PidFile none",
            "StrictModes no",
            "UsePAM no",
        )
        path = self.folder / "sshd_config"
        path.write_text("".join(f"{line}\n" for line in settings))
        return [program, "-D", "-e", "-f", str(path)]

    def _is_ready(self) -> bool:
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=5) as probe:
                return probe.recv(4) == b"SSH-"
        except OSError:
            return False


def make_key(path: Path, *, passphrase: str = "") -> Path:
    """Make a key pair: the private key in `path`, the public key beside it."""
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", str(path)]
    subprocess.run(command, check=True)
    return path
