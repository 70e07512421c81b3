"""Run tasks on a remote Spark through Spark Connect."""

import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from secrets import token_hex
from threading import Lock, get_ident
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import spark_partition_id

try:
    from pyspark.sql.pandas.functions import arrow_udf
except ImportError:  # before PySpark 4.1
    arrow_udf = None  # type: ignore[assignment]

from floodmark.errors import FloodmarkError
from floodmark.spark.runner import Progress, SparkFailure, cannot_start, task_error, tries_of

_PORT = 15002
_ANSWER_SECONDS = 10.0
_REMEMBER_SECONDS = 60.0
_MOST_SLOTS = 10_000


@contextmanager
def connected_spark(
    remote: str, options: Mapping[str, str], name: str
) -> Iterator["ConnectedSpark"]:
    """Open a session on a running server, and close it."""
    _check_answers(remote)
    builder = SparkSession.builder.appName(name).remote(remote)
    for key, value in options.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except PySparkException as error:
        raise cannot_start(_reason(error)) from error
    try:
        yield ConnectedSpark(session)
    finally:
        session.stop()


class ConnectedSpark:
    """Runs tasks as rows of a DataFrame, the only way in Spark Connect."""

    def __init__(self, session: SparkSession) -> None:
        if arrow_udf is None:
            raise FloodmarkError(
                f"Spark Connect needs PySpark 4.1 or newer; this is {pyspark.__version__}",
                hint="update PySpark, or use a master instead of a remote",
            )
        self._session = session
        self._tags: set[str] = set()
        self._asking = Lock()
        self._asked = float("-inf")
        self._slots = 1

    def run(
        self, title: str, task: Callable[[int], str], tasks: int, progress: Progress | None
    ) -> list[str]:
        """Run tasks, one row and one partition each, without a shuffle."""

        def answers(numbers: pa.Array) -> pa.Array:
            return pa.array([task(number) for number in numbers.to_pylist()], pa.string())

        # An Arrow UDF rather than mapInArrow, which requires pandas.
        work = arrow_udf(answers, "string").asNondeterministic()  # type: ignore[call-overload]
        frame = self._session.range(0, tasks, 1, tasks).select(work("id"))
        with self._tagged(title), self._watched(progress):
            try:
                return [row[0] for row in frame.collect()]
            except PySparkException as error:
                raise SparkFailure(_reason(error)) from error

    @contextmanager
    def _watched(self, progress: Progress | None) -> Iterator[None]:
        """Report how many tasks of this thread's job are done, if the client hears of it."""
        session: Any = self._session
        if progress is None or not hasattr(session, "registerProgressHandler"):
            yield
            return
        thread = get_ident()

        def handle(stages: Iterable[Any] | None, **_: object) -> None:
            # The session's handlers hear of all jobs, each in the thread that waits for it.
            if get_ident() == thread:
                with suppress(Exception):  # the job goes on
                    progress(sum(stage.num_completed_tasks for stage in stages or ()))

        session.registerProgressHandler(handle)
        try:
            yield
        finally:
            with suppress(Exception):  # the caller may have removed all handlers
                session.removeProgressHandler(handle)

    @property
    def tries(self) -> int:
        """Return how often the server's Spark tries a task."""
        option = self._session.conf.get
        return tries_of(option("spark.master", None), option("spark.task.maxFailures", None))

    def executors(self) -> None:
        """Return None: a client of Spark Connect cannot see them."""

    def slots(self) -> int:
        """Return the partitions that the server gives to a range, one for each core.

        They cannot be asked for; that takes a small job, so it is remembered for a minute.
        """
        with self._asking:
            if time.monotonic() > self._asked + _REMEMBER_SECONDS:
                numbers = self._session.range(0, _MOST_SLOTS).select(spark_partition_id())
                self._slots = 1 + max(row[0] for row in numbers.collect())
                self._asked = time.monotonic()
            return self._slots

    def is_alive(self) -> bool:
        """Whether the session is still open."""
        return not self._session.is_stopped  # type: ignore[attr-defined]

    @contextmanager
    def _tagged(self, title: str) -> Iterator[None]:
        tag = f"{title} {token_hex(4)}".replace(",", "_")
        self._tags.add(tag)
        self._session.addTag(tag)
        try:
            yield
        except BaseException:
            self._session.interruptTag(tag)
            raise
        finally:
            self._tags.discard(tag)
            self._session.removeTag(tag)

    def sql_session(self) -> SparkSession:
        """Return the session."""
        return self._session

    def cancel(self) -> None:
        """Cancel our running tasks, but no others of the same session."""
        for tag in list(self._tags):
            self._session.interruptTag(tag)

    def cancel_titled(self, title: str) -> None:
        """Cancel our running tasks of one title."""
        for tag in list(self._tags):
            if tag.rpartition(" ")[0] == title.replace(",", "_"):
                self._session.interruptTag(tag)


def _check_answers(remote: str) -> None:
    """Raise FloodmarkError if no server answers; PySpark would retry for ten minutes."""
    place = urlsplit(remote)
    if place.scheme != "sc":  # the client starts the server
        return
    try:
        address = (place.hostname or "", place.port or _PORT)
        socket.create_connection(address, _ANSWER_SECONDS).close()
    except (OSError, ValueError) as error:
        raise FloodmarkError(
            f"Spark Connect at {place.hostname} does not answer: {error}",
            hint="check 'spark.remote', and that the server is running",
        ) from error


def _reason(error: PySparkException) -> str:
    """Return a task's exception, or the first line of any other error."""
    return task_error(str(error).strip() or type(error).__name__)
