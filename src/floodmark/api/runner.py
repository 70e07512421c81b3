"""What the calls of a project share: one run at a time, one Spark, one mirror."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any

from floodmark.api.arguments import Names, as_list
from floodmark.api.callbacks import Listener, OnProgress, guarded_progress, guarded_result
from floodmark.api.context import RunContext
from floodmark.config.loading import LoadedConfig
from floodmark.config.logins import LOGINS
from floodmark.errors import BusyError, ConfigError, UsageError
from floodmark.model.notice import Report
from floodmark.storage.opening import open_lake

if TYPE_CHECKING:
    from floodmark.api.callbacks import OnResult
    from floodmark.api.recording import Rounds
    from floodmark.api.results import SyncResult
    from floodmark.api.syncing import Syncing
    from floodmark.config.models import SparkSettings
    from floodmark.state.mirror import Mirror
    from floodmark.sync.spark_engine import SparkEngine


class Runner:
    """Composes runs and records them. It starts Spark when a run needs it, and stops it."""

    def __init__(
        self,
        config: LoadedConfig,
        *,
        spark: Any,
        on_progress: OnProgress | None,
        on_notice: Report | None,
        on_result: "OnResult | None",
        verbose: bool,
    ) -> None:
        self.config = config
        self.spark = spark
        self._verbose = verbose
        self._on_progress = on_progress
        self._on_result = on_result
        self._rounds: Rounds | None = None
        self._listener = Listener(on_notice)
        self.raw_lake = self._lake = open_lake(config.lake, config.settings.retries)
        self.mirror: Mirror | None = None
        if config.mirror is not None:
            from floodmark.api.mirroring import mirrored

            self._lake, self.mirror = mirrored(config, config.mirror, self.raw_lake)
        self._engine: SparkEngine | None = None
        self._lock = Lock()
        self._running = Lock()
        self._closed = False
        self.only_one_run = False
        """Whether there will be no other run: Spark ends as soon as the last rows are read."""
        LOGINS.forget()
        self.current = self.new_run()
        self._used = False

    @property
    def required_mirror(self) -> "Mirror":
        """The mirror; ConfigError if there is none."""
        if self.mirror is None:
            raise ConfigError("there is no mirror", hint="set 'mirror:' in the configuration")
        return self.mirror

    def new_run(self) -> RunContext:
        """Return a context with fresh state and its own session id."""
        return RunContext(self.config, self._lake, self._listener, self.mirror)

    def reading(self) -> RunContext:
        """Return a context that only reads, and does not need the mirror."""
        return RunContext(self.config, self.raw_lake, self._listener, self.mirror)

    @contextmanager
    def one_run(self) -> Iterator[RunContext]:
        """Yield the context of a run; BusyError if another one is running."""
        if self._closed:
            raise UsageError("the project is closed", hint="open it again with open_project()")
        self.config.check_run()
        if not self._running.acquire(blocking=False):
            raise BusyError(
                "this project is running in another thread",
                hint="wait for it to finish",
            )
        try:
            if self._used:
                self.current = self.new_run()
            self._used = True
            self._listener.start()
            if self.mirror is not None:
                self.mirror.begin_round()
            yield self.current
        finally:
            self.finish_mirroring()
            self._listener.take()
            if self._engine is not None and self._engine.is_stopped:
                self._engine = None  # the run was interrupted
            self._running.release()

    def run(self, command: str, tables: Names, pipelines: Names, **options: Any) -> "SyncResult":
        """Run a sync or a comparison, and record it."""
        from floodmark.api.options import SyncOptions, compose
        from floodmark.api.recording import Recording, Rounds, RunTask
        from floodmark.api.results import SyncResult, notices_of

        # They may be iterators, and are needed more than once.
        tables = None if tables is None else as_list("tables", tables)
        pipelines = None if pipelines is None else as_list("pipelines", pipelines)
        sync_options = SyncOptions(tables=tables, pipelines=pipelines, **options)
        self._rounds = self._rounds or Rounds()
        with self.one_run() as run:
            sync_options.check()
            task = RunTask(
                command=command,
                tables=tuple(run.selected(tables, pipelines)),
                stage=sync_options.first_stage,
                options=sync_options.given,
                every=sync_options.every,
            )
            progress = guarded_progress(self._on_progress, run.report)
            on_result = guarded_result(self._on_result, run.report)
            with Recording(run, task, self._rounds, on_result) as recording:
                engine, spark = self.engine(), self.spark_settings()
                syncing = compose(sync_options, run, engine, spark, progress, recording)
                recording.start()
                results = syncing.sync()
                self.finish_mirroring()  # its notice belongs to the result
                of_tables = [notice for result in results for notice in notices_of(result)]
                notices = (*self._listener.take(), *of_tables)
                recording.finish(results, notices)
            return SyncResult(session_id=run.run.session_id, tables=tuple(results), notices=notices)

    def compose(
        self, run: RunContext, tables: Names, pipelines: Names, **options: Any
    ) -> "Syncing":
        """Return a sync that is ready to be planned or run."""
        from floodmark.api.options import SyncOptions, compose

        sync_options = SyncOptions(tables=tables, pipelines=pipelines, **options)
        progress = guarded_progress(self._on_progress, run.report)
        return compose(sync_options, run, self.engine(), self.spark_settings(), progress)

    def engine(self) -> "SparkEngine":
        """Return the engine; it starts Spark when there are rows to read."""
        from floodmark.sync.spark_engine import SparkEngine

        with self._lock:
            if self._engine is None:
                self._engine = SparkEngine(
                    self.spark_settings(),
                    self._listener,
                    verbose=self._verbose,
                    attached=self.spark,
                    window_mb=self.config.settings.extraction.window_mb,
                    one_run=self.only_one_run,
                )
            return self._engine

    def spark_settings(self) -> "SparkSettings":
        """Return the settings of Spark; those of the session if the caller passed one in."""
        settings = self.config.settings.spark
        if self.spark is None:
            return settings
        from floodmark.spark.attached_session import attached_settings

        return attached_settings(self.spark, settings)

    def release_spark(self) -> None:
        """Stop Spark if we started it; the next run starts it again."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.stop()

    def rest(self) -> None:
        """Stop a Spark session that failed, is idle for long, or is old."""
        if self._engine is not None:
            self._engine.rest()

    def finish_mirroring(self) -> None:
        """Wait for the last copies to the mirror, for a limited time; report what is left."""
        if self.mirror is not None:
            self.mirror.drain(self._listener)

    def close(self) -> None:
        """Allow no more runs, and stop Spark if we started it."""
        self._closed = True
        self.release_spark()
        self.finish_mirroring()
