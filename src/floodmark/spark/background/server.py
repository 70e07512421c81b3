"""The process that keeps a Spark in the background; see the package for its states."""

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from glob import escape, glob
from logging.handlers import RotatingFileHandler
from secrets import token_bytes, token_hex
from threading import Lock, Thread
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from floodmark import __version__
from floodmark.errors import FloodmarkError
from floodmark.spark.background.memory import resident_bytes
from floodmark.spark.background.place import Place, open_place
from floodmark.spark.background.wire import (
    Answers,
    Ask,
    Attach,
    Channel,
    Failed,
    Lost,
    Order,
    Progress,
    Ready,
    Request,
    Run,
    Started,
    State,
    Stop,
)
from floodmark.spark.runner import SparkFailure
from floodmark.worker.job_context import run_in_context

if TYPE_CHECKING:
    from floodmark.spark.rdd_runner import ClassicSpark

_LOG_BYTES = 128 * 1024
_SECRET_BYTES = 32
_OLD_LOG_SECONDS = 30 * 86_400.0
_POLL_SECONDS = 1.0
_CANCEL_SECONDS = 0.2
_OLDEST_SECONDS = 86_400.0
_LAST_WORKER_SECONDS = 75.0  # after the last job: by then Spark has ended all of them
_READY_SECONDS = 40.0
_FORK_SERVER = "from floodmark.fork_server.server import main; main()"
_FORKS_SECONDS = 60.0  # until a fork server that has ended is started again
_MOST_JOBS = 64  # at once; others wait
_LOG = logging.getLogger(__name__)


def main() -> None:
    """Serve in the background, as the order on stdin says."""
    os.umask(0o077)
    environment = dict(os.environ)  # Spark changes it
    order = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Order)
    if os.fork():
        os._exit(0)  # the command that starts us waits for this process, and not for the other one
    starter = os.fdopen(os.dup(1), "wb")
    os.set_inheritable(order.lock, False)  # Java must not keep it
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    try:
        _remove_old_logs(order.folder)
        _keep_log(os.path.join(order.folder, f"{order.key}.log"))
        _serve(order, environment, starter)
    except FloodmarkError as error:
        _tell(starter, Started(error=error.message, hint=error.hint))
        _LOG.error("did not start: %s", error.message)
    except Exception as error:  # noqa: BLE001 - the command that starts us reports it
        _tell(starter, Started(error=str(error) or type(error).__name__, place_failed=True))
        _LOG.exception("failed")
    _LOG.info("ended")


def _serve(order: Order, environment: dict[str, str], starter: BinaryIO) -> None:
    from floodmark.spark.session import spark_session

    began, settings = time.monotonic(), order.settings
    with open_place(order.folder) as place, ExitStack() as running:
        spark = running.enter_context(
            spark_session(
                master=settings.master,
                memory=settings.memory,
                options=settings.options,
                log_file=os.devnull,
                name="floodmark in the background",
                allow_insecure=settings.allow_insecure,
                fast_start=settings.fast_start == "auto",
                shared=True,
            )
        )
        from floodmark.spark.rdd_runner import ClassicSpark  # Java has started meanwhile

        assert isinstance(spark, ClassicSpark)  # it is local
        server = Server(place, order, environment, spark)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: server.stop())
        with server.listening():
            _LOG.info("process %d started in %.1f s", os.getpid(), time.monotonic() - began)
            _tell(starter, Started())
            server.serve()


class Server:
    """Runs the jobs of all commands, until nobody has used it for a while."""

    def __init__(
        self, place: Place, order: Order, environment: dict[str, str], spark: "ClassicSpark"
    ) -> None:
        self._place = place
        self._environment = environment
        self._key, self._own_lock = order.key, order.lock
        self._spark = spark
        self._ready = Ready(spark.slots(), spark.tries)
        self._secret = token_bytes(_SECRET_BYTES)
        self._jobs = ThreadPoolExecutor(_MOST_JOBS, "job")
        self._pools = list(range(_MOST_JOBS))
        self._lock = Lock()
        self._keep_seconds = order.keep_seconds
        self._started, self._began = time.time(), time.monotonic()
        self._used = self._ready_at = self._began
        self._commands = self._running = self._done = 0
        self._stopping = self._draining = self._closed = False
        self._forks: subprocess.Popen[bytes] | None = None
        self._forks_at = -_FORKS_SECONDS

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen, and let commands find this server."""
        place, key = self._place, self._key
        place.write_secret(key, self._secret)
        place.clear_socket(key)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as self._listener:
            self._listener.bind(place.reach(f"{key}.new"))
            self._listener.listen(64)
            self._listener.settimeout(_POLL_SECONDS)
            place.publish_socket(key)
            try:
                yield
            finally:
                place.withdraw(key, self._own_lock)

    def serve(self) -> None:
        """Accept connections until it is over; then cancel what still runs."""
        while not self._is_over():
            self._stay_ready()
            with suppress(TimeoutError):
                connection, _ = self._listener.accept()
                Thread(target=self._talk, args=[connection], daemon=True).start()
        self._spark.cancel()
        self._jobs.shutdown(wait=False, cancel_futures=True)

    def stop(self) -> None:
        """End as soon as possible."""
        self._stopping = True

    def _is_over(self) -> bool:
        """Decide whether to end; from then on, nobody can attach."""
        java_runs = self._spark.is_alive()
        with self._lock:
            unused = not self._commands and not self._running
            idle, age = (time.monotonic() - since for since in (self._used, self._began))
            why = None
            if self._stopping:
                why = "stopped"
            elif not java_runs:
                why = "Java has ended"
            elif unused and self._draining:
                why = "stopped, after the last command"
            elif unused and idle >= self._keep_seconds:
                why = f"nobody used it for {idle:.0f} s"
            elif unused and age >= _OLDEST_SECONDS:
                why = "it is a day old"
            elif unused and not self._place.owns(self._key, self._own_lock):
                why = "its files were removed"
            if why:
                self._closed = True
                _LOG.info("ending: %s", why)
                self._end_fork_server()
            return self._closed

    def _stay_ready(self) -> None:
        """While nobody uses it, keep one worker, and no more: Spark ends them after a minute."""
        now = time.monotonic()
        with self._lock:
            used = self._used if not self._commands and not self._running else now
            if now < used + _LAST_WORKER_SECONDS or now < self._ready_at + _READY_SECONDS:
                return
            self._ready_at = now
        self._jobs.submit(self._spark.run, "ready", _import_reader, 1, None)

    def _talk(self, connection: socket.socket) -> None:
        try:
            channel = Channel(connection, self._secret, serving=True)
        except Lost as lost:
            _LOG.warning("refused a connection: %s", lost)
            connection.close()
            return
        try:
            self._answer(channel)
        except Lost:
            pass
        except Exception:  # noqa: BLE001 - other connections go on
            _LOG.exception("failed to answer")
        finally:
            channel.close()

    def _answer(self, channel: Channel) -> None:
        match channel.receive(Request):  # type: ignore[arg-type]
            case Attach(keep_seconds):
                if self._attach(keep_seconds):
                    try:
                        channel.send(self._ready)
                        channel.wait_for_end()
                    finally:
                        self._detach()
            case Run() as run:
                self._run(channel, run)
            case Ask():
                channel.send(self._state())
            case Stop(now):
                with self._lock:
                    self._draining = True
                    self._stopping |= now
                    # The next command starts another server.
                    self._place.withdraw(self._key, self._own_lock)
                    self._end_fork_server()
                channel.send(self._state())

    def _attach(self, keep_seconds: float) -> bool:
        with self._lock:
            if self._closed or self._draining:
                return False
            self._commands += 1
            self._keep_seconds = keep_seconds
            return True

    def _detach(self) -> None:
        with self._lock:
            self._commands -= 1
            self._used = time.monotonic()
            if not self._draining:
                self._keep_fork_server()

    def _keep_fork_server(self) -> None:
        """Start a fork server unless one runs, or has just ended."""
        forks, now = self._forks, time.monotonic()
        has_ended = forks is None or forks.poll() is not None
        if has_ended and now >= self._forks_at + _FORKS_SECONDS:
            self._forks, self._forks_at = _start_fork_server(self._environment), now

    def _end_fork_server(self) -> None:
        """Let the fork server accept no more commands."""
        if self._forks is not None and self._forks.stdin is not None:
            self._forks.stdin.close()

    def _run(self, channel: Channel, run: Run) -> None:
        """Run a job; cancel it if the command ends the connection."""
        with self._lock:
            if self._closed:
                return
            self._running += 1
        group = token_hex(8)
        try:
            job = self._jobs.submit(self._work, channel, run, group)
            channel.wait_for_end()
            while wait([job], _CANCEL_SECONDS).not_done and not job.cancel():
                self._spark.cancel(group)  # has no effect before Spark knows the job
        finally:
            with self._lock:
                self._running -= 1
                self._done += 1
                self._used = time.monotonic()

    def _work(self, channel: Channel, run: Run, group: str) -> None:
        with self._lock:
            pool = self._pools.pop()
        try:
            self._reply(channel, run, group, f"command {pool}")
        finally:
            with self._lock:
                self._pools.append(pool)
            channel.end()

    def _reply(self, channel: Channel, run: Run, group: str, pool: str) -> None:
        def progress(done: int) -> None:
            with suppress(Lost):
                channel.send(Progress(done))

        reply: Answers | Failed
        try:
            task = partial(run_in_context, run.context, run.task)
            reply = Answers(
                self._spark.run(run.title, task, run.tasks, progress, group=group, pool=pool)
            )
        except SparkFailure as failure:
            reply = Failed(str(failure))
        except Exception as error:  # noqa: BLE001 - the command raises it
            reply = Failed(
                (str(error).strip() or type(error).__name__).splitlines()[0], broken=True
            )
            _LOG.warning("a job failed: %s", type(error).__name__)
        with suppress(Lost):
            channel.send(reply)

    def _state(self) -> State:
        memory = resident_bytes(os.getpid())
        with self._lock:
            unused = not self._commands and not self._running
            return State(
                pid=os.getpid(),
                version=__version__,
                master=self._spark.master,
                started_at=self._started,
                idle_seconds=round(time.monotonic() - self._used, 1) if unused else 0.0,
                keep_seconds=self._keep_seconds,
                commands=self._commands,
                jobs=self._running,
                jobs_done=self._done,
                memory_bytes=memory,
            )


def _start_fork_server(environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    """Start a process that commands are forked from; it ends when its stdin does."""
    nothing = subprocess.DEVNULL
    return subprocess.Popen(  # noqa: S603 - our own code
        [sys.executable, "-c", _FORK_SERVER],
        stdin=subprocess.PIPE,
        stdout=nothing,
        stderr=nothing,
        env=environment,
        start_new_session=True,
    )


def _import_reader(_: int) -> str:
    import floodmark.worker.extract_window  # noqa: F401 - takes longer than most windows

    return ""


def _remove_old_logs(folder: str) -> None:
    """Remove what servers of other versions or settings logged long ago."""
    for path in glob(f"{escape(folder)}/*.log*"):
        with suppress(OSError):
            if time.time() - os.stat(path).st_mtime > _OLD_LOG_SECONDS:
                os.unlink(path)


def _keep_log(path: str) -> None:
    logging.raiseExceptions = False  # a full disk must not end the server
    handler = RotatingFileHandler(path, maxBytes=_LOG_BYTES, backupCount=1)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    _LOG.addHandler(handler)
    _LOG.setLevel(logging.INFO)
    _LOG.propagate = False


def _tell(starter: BinaryIO, started: Started) -> None:
    with suppress(OSError, ValueError), starter:  # it is gone, or has its answer already
        starter.write(msgspec.msgpack.encode(started))


if __name__ == "__main__":
    main()
