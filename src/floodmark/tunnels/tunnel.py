"""SSH tunnels: one OpenSSH client process and one local port each."""

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
    """Yield a connection to the local end of the tunnel, and close it afterwards.

    A connection without a tunnel is yielded unchanged. `folder` is the base of relative paths.
    Call it from a thread that lives as long as the tunnel.
    """
    with Tunnels(folder) as tunnels, tunnels.through(connection) as local:
        yield local


class Tunnels:
    """The tunnels of one run: each is opened once, shared, and closed with the others.

    A broken tunnel is not reopened: its readers fail, and the next run opens a new one.
    """

    def __init__(self, folder: str = "") -> None:
        self._folder = folder
        self._lock = Lock()
        self._open: dict[Tunnelled, _Tunnel] = {}
        self._closing = ExitStack()

    def open(self, connection: Tunnelled) -> None:
        """Open the tunnel of a connection, if it has one and it is not open yet.

        Call it from a thread that lives as long as the tunnels.
        """
        if connection.tunnel is not None:
            self._opened(connection, connection.tunnel)

    @contextmanager
    def through(self, connection: AnyConnection) -> Iterator[AnyConnection]:
        """Yield a connection to the local end; attribute errors to the tunnel if it failed.

        User and password are filled in from AWS where the connection says so.
        """
        if not isinstance(connection, Tunnelled) or connection.tunnel is None:
            yield with_login(connection)
            return
        tunnel = self._opened(connection, connection.tunnel)
        known = with_login(connection)
        with tunnel.attributing_errors():
            yield cast("AnyConnection", _at(known, tunnel.port))

    def close(self) -> None:
        """Close all tunnels."""
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
    """Return a connection to the local end, with the TLS settings of the original."""
    tls = tls_for(connection) or "off"
    local = structs.replace(connection, host=LOOPBACK, port=port, tunnel=None, tls=tls)
    return structs.replace(local, ssl=None) if isinstance(local, RedshiftConnection) else local


class _Tunnel:
    """One client process and its local port."""

    def __init__(self, connection: Tunnelled, settings: TunnelSettings) -> None:
        self.port = 0
        self._connection = connection
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the tunnel

    def start(self) -> None:
        """Start the client and wait until it listens."""
        for _ in range(_PORTS_TO_TRY):
            port, begin = _free_port(), self._stderr_size()
            self._launch(ssh_command(self._connection, self._settings, port))
            if self._wait_until_ready():
                self.port = port
                return
            if not port_was_taken(self._stderr_since(begin)):
                break
        raise login_failure(self._stderr_since(begin), self._settings)

    @contextmanager
    def attributing_errors(self) -> Iterator[None]:
        """Raise an error about the tunnel instead, if it ended or could not reach the server."""
        begin = self._stderr_size()
        if self._has_ended(wait_seconds=0):
            raise self._exit_error(0)
        try:
            yield
        except FloodmarkError as error:
            if error.exit_code != ExitCode.FAILED or isinstance(error, StorageError | StateError):
                raise
            # Connections through a killed client end a moment before the client itself.
            if self._has_ended(wait_seconds=_ENDING_SECONDS):
                raise self._exit_error(begin) from error
            unreached = forward_failure(self._stderr_since(begin), self._connection, self._settings)
            if unreached is None:
                raise
            raise unreached from error

    def close(self) -> None:
        """Stop the client."""
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
            # Only this: the rest of the environment may contain passwords.
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._messages,
            start_new_session=True,  # Ctrl-C is for us: a clean stop needs the tunnel
        )

    def _wait_until_ready(self) -> bool:
        """Wait until the client listens; return False if it exited."""
        assert self._process is not None
        assert self._process.stdout is not None
        deadline = time.monotonic() + _OPEN_SECONDS
        received = b""
        with self._process.stdout as output, selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            while selector.select(deadline - time.monotonic()):
                part = os.read(output.fileno(), len(READY))
                received += part
                if received.endswith(READY):
                    return True
                if not part:
                    self._process.wait()
                    return False
        place = f"{self._settings.host}:{self._settings.port}"
        raise FloodmarkError(
            f"the login to SSH server {place} took more than {_OPEN_SECONDS:g} seconds",
            hint="check 'host' and 'port' of the tunnel",
        )

    def _has_ended(self, *, wait_seconds: float) -> bool:
        assert self._process is not None
        try:
            self._process.wait(wait_seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _exit_error(self, begin: int) -> FloodmarkError:
        assert self._process is not None
        code = self._process.returncode
        how = f"by signal {-code}" if code < 0 else f"with code {code}"
        reason = last_line(self._stderr_since(begin))
        return FloodmarkError(
            f"the SSH tunnel through {self._settings.host}:{self._settings.port} ended {how}"
            + (f": {reason}" if reason else ""),
            hint="try again; a new run opens a new tunnel",
        )

    def _stderr_size(self) -> int:
        return os.fstat(self._messages.fileno()).st_size

    def _stderr_since(self, begin: int) -> str:
        # pread, not seek: the client shares the file position.
        begin = max(begin, self._stderr_size() - _MESSAGE_BYTES)
        data = os.pread(self._messages.fileno(), _MESSAGE_BYTES, begin)
        return data.decode(errors="replace")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])
