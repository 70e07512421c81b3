"""SSH tunnels to servers: an OpenSSH client as a child process, with one local port each."""

import os
import selectors
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import Self, TypeVar, cast

from msgspec import structs

from floodmark.config.aws_login import with_login
from floodmark.config.models import Connection, RedshiftConnection, Tunnelled, TunnelSettings
from floodmark.config.tls import tls_for
from floodmark.errors import ExitCode, FloodmarkError, StateError, StorageError
from floodmark.subprocesses import LOOPBACK, guarded
from floodmark.tunnels.ssh import (
    READY,
    forward_failure,
    last_line,
    located,
    login_failure,
    port_was_taken,
    ssh_command,
)

_OPEN_SECONDS = 30.0
_STOP_SECONDS = 5.0
_ENDING_SECONDS = 0.3
_PORTS_TO_TRY = 5
_MESSAGE_BYTES = 65536

AnyConnection = TypeVar("AnyConnection", bound=Connection)


@contextmanager
def open_tunnel(connection: AnyConnection, *, folder: str = "") -> Iterator[AnyConnection]:
    """Yield a connection to the local end of the tunnel, which is closed afterwards.

    A connection without a tunnel comes back unchanged. `folder` is where relative paths begin.
    Must be opened by a thread that lives as long as the tunnel.
    """
    with Tunnels(folder) as tunnels, tunnels.through(connection) as local:
        yield local


class Tunnels:
    """The tunnels of one run: a connection's is opened once, shared, and closed with the others.

    One that breaks down is not opened again: whoever reads through it fails, and the next run
    begins with a new one.
    """

    def __init__(self, folder: str = "") -> None:
        self._folder = folder
        self._lock = Lock()
        self._open: dict[Tunnelled, _Tunnel] = {}
        self._closing = ExitStack()

    def open(self, connection: Tunnelled) -> None:
        """Open a connection's tunnel, if it has one and it is not open yet.

        Must be called by a thread that lives as long as the tunnels.
        """
        if connection.tunnel is not None:
            self._opened(connection, connection.tunnel)

    @contextmanager
    def through(self, connection: AnyConnection) -> Iterator[AnyConnection]:
        """Yield a connection to the local end; errors that are the tunnel's fault say so.

        It holds the user and password that AWS has for it, if it is to be asked.
        """
        if not isinstance(connection, Tunnelled) or connection.tunnel is None:
            yield with_login(connection)
            return
        tunnel = self._opened(connection, connection.tunnel)
        known = with_login(connection)
        with tunnel.blamed():
            yield cast("AnyConnection", _at(known, tunnel.port))

    def close(self) -> None:
        """End all tunnels."""
        with self._lock:
            self._open.clear()
            self._closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _opened(self, connection: Tunnelled, settings: TunnelSettings) -> "_Tunnel":
        with self._lock:
            if connection not in self._open:
                tunnel = _Tunnel(connection, located(settings, self._folder))
                self._closing.callback(tunnel.close)
                tunnel.start()
                self._open[connection] = tunnel
            return self._open[connection]


def _at(connection: Tunnelled, port: int) -> Tunnelled:
    """The local end, encrypted as was decided for the connection through a tunnel."""
    tls = tls_for(connection) or "off"
    local = structs.replace(connection, host=LOOPBACK, port=port, tunnel=None, tls=tls)
    return structs.replace(local, ssl=None) if isinstance(local, RedshiftConnection) else local


class _Tunnel:
    """One client process, and the local port that leads through it."""

    def __init__(self, connection: Tunnelled, settings: TunnelSettings) -> None:
        self.port = 0
        self._connection = connection
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the tunnel

    def start(self) -> None:
        """Start the client and wait until it listens."""
        for _ in range(_PORTS_TO_TRY):
            port, begin = _free_port(), self._said_bytes()
            self._launch(ssh_command(self._connection, self._settings, port))
            if self._wait_until_ready():
                self.port = port
                return
            if not port_was_taken(self._said(begin)):
                break
        raise login_failure(self._said(begin), self._settings)

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """Make errors name the tunnel if it ended, or if it did not reach the server meanwhile."""
        begin = self._said_bytes()
        if self._has_ended(wait_seconds=0):
            raise self._end(0)
        try:
            yield
        except FloodmarkError as error:
            if error.exit_code != ExitCode.FAILED or isinstance(error, StorageError | StateError):
                raise
            # The connections through a client that is killed end a moment before itself.
            if self._has_ended(wait_seconds=_ENDING_SECONDS):
                raise self._end(begin) from error
            unreached = forward_failure(self._said(begin), self._connection, self._settings)
            if unreached is None:
                raise
            raise unreached from error

    def close(self) -> None:
        """End the client."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._messages.close()

    def _launch(self, command: list[str]) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - the command is ours
            guarded(command),
            # No more than this: there may be passwords in the rest.
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._messages,
            start_new_session=True,  # Ctrl-C is for us; the tunnel is needed to stop in order
        )

    def _wait_until_ready(self) -> bool:
        """Whether the client listens; if not, it has ended."""
        assert self._process is not None
        assert self._process.stdout is not None
        deadline = time.monotonic() + _OPEN_SECONDS
        heard = b""
        with self._process.stdout as output, selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            while selector.select(deadline - time.monotonic()):
                part = os.read(output.fileno(), len(READY))
                heard += part
                if heard.endswith(READY):
                    return True
                if not part:
                    self._process.wait()
                    return False
        place = f"{self._settings.host}:{self._settings.port}"
        raise FloodmarkError(
            f"SSH server {place} did not let us in within {_OPEN_SECONDS:g} seconds",
            hint="check 'host' and 'port' of the tunnel",
        )

    def _has_ended(self, *, wait_seconds: float) -> bool:
        assert self._process is not None
        try:
            self._process.wait(wait_seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _end(self, begin: int) -> FloodmarkError:
        assert self._process is not None
        code = self._process.returncode
        how = f"by signal {-code}" if code < 0 else f"with code {code}"
        reason = last_line(self._said(begin))
        return FloodmarkError(
            f"the SSH tunnel through {self._settings.host}:{self._settings.port} ended {how}"
            + (f": {reason}" if reason else ""),
            hint="try again; a new run opens a new tunnel",
        )

    def _said_bytes(self) -> int:
        return os.fstat(self._messages.fileno()).st_size

    def _said(self, begin: int) -> str:
        # Not by seeking: the client writes at the position that we would move.
        begin = max(begin, self._said_bytes() - _MESSAGE_BYTES)
        said = os.pread(self._messages.fileno(), _MESSAGE_BYTES, begin)
        return said.decode(errors="replace")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])
