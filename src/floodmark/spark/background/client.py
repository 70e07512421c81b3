"""Attach a command to a background Spark, and start one if none runs."""

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from secrets import token_hex
from threading import Lock

import msgspec
from msgspec import Struct

from floodmark.config.models import SparkSettings
from floodmark.errors import FloodmarkError
from floodmark.model.notice import Notice, Report
from floodmark.spark.background.key import key_of
from floodmark.spark.background.place import (
    NotListening,
    Place,
    Unavailable,
    open_place,
    place_path,
)
from floodmark.spark.background.process_facts import job_variables, start_variables
from floodmark.spark.background.wire import (
    Answers,
    Attach,
    Channel,
    Failed,
    Lost,
    Order,
    Progress,
    Ready,
    Reply,
    Run,
    Started,
    connect,
)
from floodmark.spark.runner import SparkFailure
from floodmark.spark.user_settings import is_local, is_submitted, master_of
from floodmark.worker.job_context import JobContext

_START_SECONDS = 120.0
_ANSWER_SECONDS = 10.0
_ENDING_SECONDS = 5.0
_POLL_SECONDS = 0.05
_SERVER = "from floodmark.spark.background.server import main; main()"


class BackgroundSpark:
    """Runs tasks on the background Spark that this command is attached to."""

    def __init__(self, place: Place, key: str, attached: Channel, ready: Ready) -> None:
        self._place = place
        self._key = key
        self._attached = attached
        self._ready = ready
        self._command = token_hex(16)
        self._lock = Lock()
        self._open: dict[Channel, str] = {}

    def run(
        self,
        title: str,
        task: Callable[[int], str],
        tasks: int,
        progress: Callable[[int], None] | None,
    ) -> list[str]:
        """Run tasks; the end of the connection, for whatever reason, cancels them."""
        context = JobContext(
            self._command, job_variables(os.environ), _working_folder(), _current_umask()
        )
        job = Run(title, _pickled(task), tasks, context)
        try:
            with self._channel(title) as channel:
                channel.send(job)
                while True:
                    match channel.receive(Reply):  # type: ignore[arg-type]
                        case Progress(done) if progress is not None:
                            progress(done)
                        case Answers(answers):
                            return answers
                        case Failed(reason, broken):
                            raise (RuntimeError if broken else SparkFailure)(reason)
        except (Lost, Unavailable) as error:
            log = f"{self._place.path}/{self._key}.log"
            raise RuntimeError(f"the Spark in the background has ended; see {log}") from error

    @property
    def tries(self) -> int:
        """Return how often Spark tries a task."""
        return self._ready.tries

    def executors(self) -> None:
        """Return None: there is one, on this machine."""

    def slots(self) -> int:
        """Return how many tasks run at once, of all commands together."""
        return self._ready.slots

    def is_alive(self) -> bool:
        """Whether the server still runs."""
        return self._attached.is_open()

    def cancel_titled(self, title: str) -> None:
        """Cancel our running tasks of one title, by ending their connection."""
        with self._lock:
            for channel in [one for one, what in self._open.items() if what == title]:
                channel.end()

    def end(self) -> None:
        """Detach; jobs that still run are cancelled."""
        with self._lock:
            for channel in (*self._open, self._attached):
                channel.end()

    @contextmanager
    def _channel(self, title: str) -> Iterator[Channel]:
        channel = _channel(self._place, self._key)
        with closing(channel):
            with self._lock:
                self._open[channel] = title
            try:
                yield channel
            finally:
                with self._lock:
                    del self._open[channel]


@contextmanager
def background_spark(settings: SparkSettings, report: Report) -> Iterator[BackgroundSpark]:
    """Attach to a background Spark; Unavailable if that is impossible.

    FloodmarkError if Spark itself does not start.
    """
    environment = dict(os.environ)
    if is_submitted(environment) or not is_local(master_of(settings)):
        raise Unavailable("it is only for a local Spark")
    if sys.platform != "linux":
        raise Unavailable("it needs Linux")
    with open_place(place_path(environment)) as place:
        try:
            key = key_of(settings, environment)
            channel, ready = _Attaching(place, key, settings, report).attach()
        except OSError as error:
            raise Unavailable(f"{place.path}: {error.strerror}") from error
        with closing(channel):
            spark = BackgroundSpark(place, key, channel, ready)
            try:
                yield spark
            finally:
                spark.end()


class _Attaching(Struct, frozen=True):
    """How to attach to the server with a key, and to start it."""

    place: Place
    key: str
    settings: SparkSettings
    report: Report

    def attach(self) -> tuple[Channel, Ready]:
        """Attach to the server; start it if none runs. Unavailable if it does not answer."""
        began = time.monotonic()
        while True:
            try:
                return self._try()
            except Lost as lost:  # it may be ending, and lets go of the lock then
                patience, why = _ENDING_SECONDS, str(lost)
            except NotListening as error:  # another command may be starting it
                patience, why = _START_SECONDS, str(error)
            lock = self.place.lock(self.key)
            if lock is not None:
                try:
                    self._start(lock)
                finally:
                    os.close(lock)
            elif time.monotonic() > began + patience:
                raise Unavailable(f"{self.place.path}/{self.key}.sock: {why}")
            else:
                time.sleep(_POLL_SECONDS)

    def _try(self) -> tuple[Channel, Ready]:
        channel = _channel(self.place, self.key)
        try:
            channel.send(Attach(self._keep_seconds))
            return channel, channel.receive(Ready, _ANSWER_SECONDS)
        except BaseException:
            channel.close()
            raise

    def _start(self, lock: int) -> None:
        """Start a server, which inherits the lock, and wait until it listens."""
        self.report(Notice("info", "starting Spark in the background"))
        order = Order(
            folder=self.place.path,
            key=self.key,
            lock=lock,
            settings=self.settings,
            keep_seconds=self._keep_seconds,
        )
        try:
            with subprocess.Popen(  # noqa: S603 - our own code
                [sys.executable, "-c", _SERVER],
                cwd=self.place.path,  # Python also imports from there
                env=start_variables(os.environ) | _search_path(os.environ),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=[lock],
                start_new_session=True,
            ) as process:
                answer, _ = process.communicate(msgspec.msgpack.encode(order), _START_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"the server does not start: {error}") from error
        if not answer:
            log = f"{self.place.path}/{self.key}.log"
            raise Unavailable(f"the server ended while it started; see {log}")
        started = msgspec.msgpack.decode(answer, type=Started)
        if started.error and started.place_failed:
            raise Unavailable(started.error)
        if started.error:
            raise FloodmarkError(started.error, hint=started.hint)

    @property
    def _keep_seconds(self) -> float:
        return self.settings.keep_seconds or 0.0


def _channel(place: Place, key: str) -> Channel:
    connection = connect(place.reach(f"{key}.sock"))
    try:
        return Channel(connection, place.read_secret(key), serving=False)
    except BaseException:
        connection.close()
        raise


def _search_path(environment: Mapping[str, str]) -> dict[str, str]:
    return {"PATH": environment["PATH"]} if "PATH" in environment else {}


def _pickled(task: Callable[[int], str]) -> bytes:
    try:
        return pickle.dumps(task, pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        from pyspark import cloudpickle  # a function within a function; takes long to import

        data: bytes = cloudpickle.dumps(task)  # type: ignore[no-untyped-call]
        return data


def _working_folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "/"


def _current_umask() -> int:
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    return 0o077
