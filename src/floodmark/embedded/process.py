"""Run a server as a child process, with a log file and a readiness probe."""

import os
import secrets
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from floodmark.errors import FloodmarkError
from floodmark.subprocesses import LOOPBACK, guarded

# Below 32768, where Linux allocates ports of outgoing connections: such a connection could
# otherwise take a port before the server binds it, or during a restart.
_PORTS = range(15000, 32000)

_POLL_SECONDS = 0.02
_LOG_TAIL_BYTES = 4000


def free_ports(count: int) -> list[int]:
    """Choose distinct loopback ports that are free."""
    ports: list[int] = []
    with ExitStack() as held:
        while len(ports) < count:
            probe = held.enter_context(socket.socket())
            port = secrets.choice(_PORTS)
            with suppress(OSError):
                probe.bind((LOOPBACK, port))
                ports.append(port)
    return ports


class ServerProcess:
    """A server as our child process, which logs to a file in its folder and never outlives us.

    `command` starts with the absolute path of a program, which runs in `folder`. `ready` is polled
    after the start until it returns true.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        ready: Callable[[], bool],
        *,
        environment: Mapping[str, str] | None = None,
        start_seconds: float = 60,
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._command = list(command)
        self._folder = folder
        self._ready = ready
        self._environment = dict(environment or {})
        self._start_seconds = start_seconds
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id, or None while the server is not running."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> None:
        """Start the server and wait until it is ready; do nothing if it is running."""
        if self.pid is not None:
            return
        launched: Future[subprocess.Popen[bytes]] = Future()
        threading.Thread(
            target=self._launch_and_watch, args=(launched,), name=f"{self.name}-watch", daemon=True
        ).start()
        self._process = launched.result()
        try:
            self._wait_until_ready(self._process)
        except BaseException:
            self.kill()
            raise

    def stop(self, seconds: float = 30) -> None:
        """Send SIGTERM, and SIGKILL if the server is still running after `seconds`."""
        self._signal(signal.SIGTERM)
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
        self.kill()

    def kill(self) -> None:
        """Send SIGKILL, as in a crash."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)  # checks first that it is still running

    def _launch_and_watch(self, launched: Future[subprocess.Popen[bytes]]) -> None:
        """Start the process, and wait for its end.

        Linux sends the parent-death signal when the *thread* that forked ends. So that thread must
        live as long as the server, unlike the test or worker that called `start`.
        """
        try:
            process = self._launch()
        except BaseException as error:  # noqa: BLE001 - passed to the waiting thread
            launched.set_exception(error)
            return
        launched.set_result(process)
        # WNOWAIT leaves reaping to Popen, so that a reused process id is never signaled.
        with suppress(ChildProcessError):
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    def _launch(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(  # noqa: S603 - the command is ours
                guarded(self._command),
                cwd=self._folder,
                env={**os.environ, **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for us; we then stop the server cleanly
            )

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + self._start_seconds
        while not self._ready():
            if process.poll() is not None:
                raise self._failure(f"exited with code {process.returncode} while starting")
            if time.monotonic() > deadline:
                raise self._failure(f"was not ready after {self._start_seconds:g} seconds")
            time.sleep(_POLL_SECONDS)

    def _failure(self, what: str) -> FloodmarkError:
        tail = self.log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace").strip()
        return FloodmarkError(f"{self.name} {what}\n{tail}", hint=f"full log: {self.log}")
