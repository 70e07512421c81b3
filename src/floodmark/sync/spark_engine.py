"""Run jobs on Spark: one session for all tables, started when first needed."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from tempfile import mkstemp
from threading import Event, Lock, Thread, Timer
from typing import TYPE_CHECKING, Any, TypeVar

from floodmark.config.models import SparkSettings
from floodmark.errors import FloodmarkError, SparkJobFailed
from floodmark.model.extraction import Receipt, Window
from floodmark.model.notice import Notice, Report
from floodmark.model.verification import Comparison, WindowPair
from floodmark.sync.reader_slots import Readers

if TYPE_CHECKING:
    from floodmark.spark.runner import Attempt, Spark
    from floodmark.sync.extraction import Engine
    from floodmark.sync.process_engine import ProcessEngine
    from floodmark.worker.compare_window import VerificationJob
    from floodmark.worker.job import ExtractionJob

Answer = TypeVar("Answer")

_STOPPED = "the run was stopped"
_NO_EXECUTOR = "no executor of the cluster has joined yet: tasks wait until it has free resources"
_NO_EXECUTOR_HINT = (
    "if it stays so, check in the cluster's own pages that workers are running, and that one of"
    " them has the memory and cores that an executor asks for ('spark.executor.memory', 'memory',"
    " 'spark.executor.cores')"
)
JOINING_SECONDS = 30.0
IDLE_SECONDS = 1800.0  # a Spark Connect server drops a session after an hour
OLDEST_SECONDS = 86_400.0
_LAUNCH_SECONDS = 0.5  # at most that late, Java is launched beside other work


class SparkEngine:
    """Starts Spark when the first table has something to read, and stops it with the run.

    The session is kept between rounds, unless it is for `one_run`. A dead one is replaced when next
    needed. The caller's own session (`attached`) is used as it is, and not stopped. With
    `keep_warm`, Spark runs in the background, and stays; except if this run shows what Spark logs,
    or needs Spark SQL.

    With `from_rows`, tables with fewer rows to read are read by another engine, without Spark.
    """

    def __init__(
        self,
        settings: SparkSettings,
        report: Report,
        *,
        verbose: bool = False,
        attached: Any = None,
        window_mb: int = 64,
        one_run: bool = False,
    ) -> None:
        self._settings = settings
        self._one_run = one_run
        self._attached = attached
        self._window_mb = window_mb
        self._needs_own = verbose  # nobody sees what a background Spark logs
        self._report = report
        self._verbose = verbose
        self._lock = Lock()
        self._running = ExitStack()
        self._writers: dict[str, Readers] = {}
        self._session: Any = None
        self._launched = Event()
        self._began = self._used = 0.0
        self._failed = False
        self._stopped = False
        self._log: str | None = None
        self._choosing = Lock()
        self._chosen = False
        self._processes: ProcessEngine | None = None

    @property
    def is_stopped(self) -> bool:
        """Whether it was stopped for good."""
        return self._stopped

    @property
    def on_cluster(self) -> bool:
        """Whether workers may run on other machines."""
        from floodmark.spark.user_settings import other_machines

        return other_machines(self._settings) is not None

    def for_rows(self, rows: int) -> "Engine":
        """Return the engine that reads so many rows: with `from_rows`, no Spark for few."""
        if rows >= self._settings.from_rows:
            return self
        with self._choosing:
            if not self._chosen:
                self._chosen = True
                self._processes = self._local_processes()
            return self._processes or self

    def _local_processes(self) -> "ProcessEngine | None":
        """Return the engine without Spark, if Spark would run on this machine."""
        from floodmark.spark.user_settings import local_slots, master_of, other_machines
        from floodmark.sync.process_engine import ProcessEngine

        attached = "the session that was passed in" if self._attached is not None else None
        if place := attached or other_machines(self._settings):
            what = f"'spark: {{from_rows: …}}' has no effect: {place} reads all rows"
            self._report(Notice("info", what))
            return None
        master = master_of(self._settings)
        if local_slots(master) is None:
            return None  # Spark refuses it
        return ProcessEngine(self, master, verbose=self._verbose)

    def prepare(self) -> None:
        """Start Spark in the background: it will be needed soon.

        Return once its Java runs: meanwhile our own imports would only hold that up.
        """
        if self._session is None and self._attached is None:
            Thread(target=self._start_ahead, daemon=True).start()
            if self._settings.keep_seconds is None:
                self._launched.wait(_LAUNCH_SECONDS)

    def extract(
        self, job: "ExtractionJob", windows: Sequence[Window], progress: Callable[[int], None]
    ) -> list[Receipt]:
        """Read all windows of a chunk, one task each."""
        from floodmark.spark.extract import extract

        return self._run(lambda session: extract(session, job, windows, progress=progress))

    def cancel(self, job: "ExtractionJob") -> None:
        """End the tasks of a chunk."""
        from floodmark.spark.extract import title_of

        session = self._session
        if session is not None:
            with suppress(Exception):  # without Spark there are no tasks
                session.cancel_titled(title_of(job))

    def compare(self, job: "VerificationJob", pairs: Sequence[WindowPair]) -> list[Comparison]:
        """Compare windows with the target, one task each."""
        from floodmark.spark.compare import compare

        return self._run(lambda session: compare(session, job, pairs))

    def spread(
        self, place: str, name: str, work: Callable[[int], bytes], parts: int, most: int
    ) -> list[str]:
        """Run any work in parts, one task each, and no more than `most` at once for a place."""
        from floodmark.spark.runner import run_tasks

        def run(numbers: Sequence[int], finished: Callable[[int], None]) -> list[str]:
            task = partial(_without_attempt, work, numbers)
            return self._run(
                lambda session: run_tasks(session, name, task, len(numbers), progress=finished)
            )

        writers = self._writers.setdefault(place, Readers())
        return writers.run(range(parts), run, most=most)

    def slots(self) -> int:
        """Return how many tasks run at once; start Spark if necessary."""
        slots: int = self._run(lambda session: session.slots())
        return slots

    @property
    def slots_beside(self) -> int:
        """How many windows processes may read at the same time, without Spark."""
        other = self.for_rows(0)
        return 0 if other is self else other.slots()

    @property
    def known_slots(self) -> int | None:
        """How many tasks run at once; None if that is not known before Spark runs."""
        from floodmark.spark.user_settings import local_slots, master_of

        session = self._session
        if session is not None:
            with suppress(Exception):  # it has ended, which the next job notices
                return int(session.slots())
        elif self._attached is not None:
            with suppress(FloodmarkError):  # the first job raises it
                return self.slots()
        settings = self._settings
        remote = settings.options.get("spark.remote", settings.remote)
        return None if remote else local_slots(master_of(settings))

    def sql_session(self) -> Any:
        """Return a SparkSession, for which Spark is started if necessary."""
        with self._lock:
            if not self._needs_own:
                self._needs_own = True  # a background Spark only runs tasks
                if self._settings.keep_warm and self._attached is None:
                    self._close()
        return self._attached or self._run(lambda spark: spark.sql_session())

    def _run(self, work: Callable[[Any], Answer]) -> Answer:
        session = self._started()
        try:
            return work(session)
        except Exception as error:
            if self._stopped:  # our own stop causes any error of Spark
                raise FloodmarkError(_STOPPED) from error
            if isinstance(error, FloodmarkError):
                # Any other error is a worker's refusal: Spark itself works.
                if isinstance(error, SparkJobFailed):
                    self._note_failure(session)
                raise
            self._note_failure(session)
            # Most likely the JVM is gone: out of memory, or killed.
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise FloodmarkError(
                f"Spark failed: {reason}", hint="run the command again, with --debug to see why"
            ) from error
        finally:
            self._used = time.monotonic()

    def _note_failure(self, session: "Spark | None" = None) -> None:
        """Remember that Spark failed, and say where its log is, unless another runs by now."""
        if session is not self._session:
            return
        self._failed = True
        log = self._log
        if log is not None and os.path.getsize(log) > 0:
            self._log = None
            self._report(Notice("warning", f"Spark failed; the log of its driver is {log}"))

    @contextmanager
    def _driver_log(self) -> Iterator[str]:
        """Have the driver of a cluster log to a private file, which stays if Spark fails."""
        file, path = mkstemp(prefix="floodmark-spark-", suffix=".log")
        os.close(file)
        self._log = path
        try:
            yield path
        finally:
            if self._log == path:  # no notice names it
                self._log = None
                with suppress(OSError):
                    os.remove(path)

    def check(self) -> None:
        """Raise FloodmarkError once the run was stopped; call it before each step."""
        if self._stopped:
            raise FloodmarkError(_STOPPED)

    def rest(self) -> None:
        """End a session that failed, is idle or is old; call it between rounds."""
        with self._lock:
            now = time.monotonic()
            idle, age = now - self._used, now - self._began
            if self._failed or idle > IDLE_SECONDS or age > OLDEST_SECONDS:
                self._close()

    def release(self) -> None:
        """End a session that is for one run, in the background; it starts again if needed.

        Call it when nothing is left to read: loading needs its memory.
        """
        if self._one_run and self._attached is None:
            Thread(target=self._release, name="release Spark", daemon=True).start()

    def _release(self) -> None:
        self._end_processes()
        with self._lock:
            self._close()

    def stop(self) -> None:
        """End the session and all its jobs, for good."""
        self._stopped = True
        self._end_processes()
        with self._lock:
            self._close()

    def _end_processes(self) -> None:
        if self._processes is not None:
            self._processes.close()

    def _close(self) -> None:
        self._session, self._failed = None, False
        try:
            self._running.close()
        except Exception as error:  # noqa: BLE001 - Spark may be gone already
            self._report(Notice("debug", f"Spark did not stop cleanly: {error}"))

    def _start_ahead(self) -> None:
        with suppress(Exception):  # the first job starts it again, and raises the error
            self._started()
        self._launched.set()

    def _started(self) -> Any:
        with self._lock:
            self.check()
            if self._session is not None and not self._session.is_alive():
                self._report(Notice("warning", "Spark stopped unexpectedly; starting it again"))
                self._close()
            if self._session is None:
                self._began = time.monotonic()
                self._session = self._start()
                if self.on_cluster:
                    self._watch_executors(self._session)
            return self._session

    def _watch_executors(self, session: "Spark") -> None:
        """Report that a cluster has no executor for us; its tasks wait, and Spark only logs it."""

        def look() -> None:
            with suppress(Exception):  # Spark has ended
                joined = session.executors()
                if joined is not None and joined[0] == 0:
                    self._report(Notice("warning", _NO_EXECUTOR, hint=_NO_EXECUTOR_HINT))

        timer = Timer(JOINING_SECONDS, look)
        timer.daemon = True
        timer.start()
        self._running.callback(timer.cancel)

    def _start(self) -> "Spark":
        """Use the caller's Spark, attach to one in the background, or start one for this run."""
        settings, running = self._settings, self._running
        if self._attached is not None:
            from floodmark.spark.attached_session import attached_spark

            insecure = settings.allow_insecure
            return running.enter_context(attached_spark(self._attached, allow_insecure=insecure))
        if settings.keep_seconds is not None and not self._needs_own:
            from floodmark.spark.background.client import background_spark
            from floodmark.spark.background.place import Unavailable

            try:
                return running.enter_context(background_spark(settings, self._report))
            except Unavailable as why:
                self._report(Notice("warning", f"Spark is not kept in the background: {why}"))
        from floodmark.spark.session import spark_session

        self._report(Notice("info", "starting Spark"))
        # The JVM and the workers log a lot; errors are raised anyway.
        log_file = None if self._verbose else os.devnull
        if log_file and self.on_cluster:  # there, the reason is often in the log alone
            log_file = running.enter_context(self._driver_log())
        try:
            return running.enter_context(
                spark_session(
                    master=settings.master,
                    remote=settings.remote,
                    memory=settings.memory,
                    window_mb=self._window_mb,
                    options=settings.options,
                    log_file=log_file,
                    allow_insecure=settings.allow_insecure,
                    fast_start=settings.fast_start == "auto",
                    launched=self._launched.set,
                )
            )
        except FloodmarkError:
            self._note_failure()
            raise


def _without_attempt(
    work: Callable[[int], bytes], numbers: Sequence[int], number: int, _: "Attempt"
) -> bytes:
    return work(numbers[number])
