"""A project: the tables of a configuration, and everything that can be done with them."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, Self

from floodmark.api.callbacks import Listener, OnProgress, guarded_progress
from floodmark.api.context import Names, RunContext, as_list
from floodmark.config.loading import LoadedConfig, load_config
from floodmark.config.logins import LOGINS
from floodmark.errors import BusyError, UsageError
from floodmark.model.notice import Report
from floodmark.model.run import Stage, Strategy
from floodmark.model.table import TableName
from floodmark.storage.opening import open_lake

if TYPE_CHECKING:
    from floodmark.api.planning import TablePlan
    from floodmark.api.results import SyncResult, TableResult
    from floodmark.api.syncing import Syncing
    from floodmark.api.validation import ValidationResult
    from floodmark.api.watermarks import TableStatus, Watermarks
    from floodmark.checks.check import Check
    from floodmark.config.models import SparkSettings
    from floodmark.sync.spark_engine import SparkEngine

Verify = Literal["new", "all"]
BOTH: tuple[Stage, ...] = ("extract", "load")


def open_project(
    path: str | os.PathLike[str] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    spark: Any = None,
    on_progress: OnProgress | None = None,
    on_notice: Report | None = None,
) -> "Project":
    """Read a configuration and open its lake; nothing is started or connected yet.

    path          the configuration; without it FLOODMARK_CONFIG, or floodmark.yml in this folder
    environment   variables that the configuration refers to; without it those of this process
    spark         a SparkSession to use, classic or Spark Connect; without it one is started when
                  there are rows to read, and stopped by close()
    on_progress   called with a table and its Progress, from other threads
    on_notice     called with each Notice, from any thread; without it they are logged under the
                  name `floodmark`

    ConfigError if the configuration is missing or wrong.
    """
    variables = os.environ if environment is None else environment
    config = load_config(None if path is None else os.fspath(path), variables)
    return Project(config, spark=spark, on_progress=on_progress, on_notice=on_notice)


class Project:
    """The tables of a configuration. Use it in a `with`, or call close() at the end.

    Every call sees the present state. One sync or comparison runs at a time; everything else may be
    called from any thread at any time.
    """

    def __init__(
        self,
        config: LoadedConfig,
        *,
        spark: Any = None,
        on_progress: OnProgress | None = None,
        on_notice: Report | None = None,
        verbose: bool = False,
    ) -> None:
        self.config = config
        self._spark = spark
        self._verbose = verbose
        self._on_progress = on_progress
        self._listener = Listener(on_notice)
        self._lake = open_lake(config.lake, config.settings.retries)
        self._engine: SparkEngine | None = None
        self._lock = Lock()
        self._running = Lock()
        self._closed = False
        LOGINS.forget()
        self._current = self.new_run()
        self._used = False

    @property
    def tables(self) -> tuple[TableName, ...]:
        """The tables of the configuration."""
        return tuple(self.config.tables)

    @property
    def context(self) -> RunContext:
        """The run in progress, or the last one; for the program `floodmark`."""
        return self._current

    @property
    def session_id(self) -> str:
        """The id of the run in progress, of the last one, or if there was none of the first."""
        return self._current.run.session_id

    def sync(
        self,
        tables: Names = None,
        pipelines: Names = None,
        *,
        stages: Sequence[Stage] = BOTH,
        strategy: Strategy = "intra-table",
        limit: int | None = None,
        verify: Verify | None = None,
        adopt: bool = False,
        adopt_from: str | None = None,
    ) -> "SyncResult":
        """Bring tables up to date: from MySQL to the lake (`extract`), and on into the warehouse.

        tables, pipelines   what to sync; without either, every table of the configuration
        stages              both, or one of them: ["extract"] or ["load"]
        strategy            tables one after another (sequential), several at once (inter-table), or
                            many windows of one table at once (intra-table)
        limit               at most so many rows a table in the extract stage
        verify              compare source and target afterwards: what is "new", or "all"
        adopt, adopt_from   load Parquet files of older systems, from a folder of the lake

        A table that fails does not raise: the result has its error, and what was committed stays.
        An interruption (Ctrl-C) ends the work, releases all leases, and is raised.
        """
        options = {
            "stages": stages,
            "strategy": strategy,
            "limit": limit,
            "verify": verify,
            "adopt": adopt,
            "adopt_from": adopt_from,
        }
        with self._one_run() as run:
            return self._result(run, self._composed(run, tables, pipelines, **options).sync())

    def plan(
        self,
        tables: Names = None,
        pipelines: Names = None,
        *,
        stages: Sequence[Stage] = BOTH,
        strategy: Strategy = "intra-table",
        limit: int | None = None,
        adopt: bool = False,
        adopt_from: str | None = None,
    ) -> "list[TablePlan]":
        """What a sync would do now; nothing is changed."""
        from floodmark.api.planning import plan_sync

        options = {
            "stages": stages,
            "strategy": strategy,
            "limit": limit,
            "adopt": adopt,
            "adopt_from": adopt_from,
        }
        return plan_sync(self._composed(self.new_run(), tables, pipelines, **options))

    def verify(
        self, tables: Names = None, pipelines: Names = None, *, everything: bool = False
    ) -> "SyncResult":
        """Compare source and target: what was loaded since the last time, or everything.

        Reads and loads nothing. A table that differs is in `failures`, with the rows that do.
        """
        with self._one_run() as run:
            verify = "all" if everything else "new"
            return self._result(run, self._composed(run, tables, pipelines, verify=verify).sync())

    def validate(
        self,
        tables: Names = None,
        *,
        repair: bool = False,
        lake_only: bool = False,
        data: bool = False,
    ) -> "ValidationResult":
        """Compare what is tracked with what lake and warehouse hold; without names, of all tables.

        repair      repair the tracking; data is never touched
        lake_only   do not look at the warehouse
        data        compare all synced rows with those of the source, too
        """
        from floodmark.api.validation import Validating

        with self._one_run() as run:
            if tables is None:
                chosen = sorted({*run.store.log.tables(), *self.config.tables})
            else:
                chosen = run.tables(as_list(tables))
            return Validating(
                run=run,
                engine=self._started_engine(),
                spark=self._spark_settings(),
                tables=chosen,
                repair=repair,
                lake_only=lake_only,
                data=data,
            ).validate()

    @property
    def watermarks(self) -> "Watermarks":
        """Inspect and change the watermarks of tables."""
        from floodmark.api.watermarks import Watermarks

        return Watermarks(self.new_run)

    def status(self) -> "tuple[TableStatus, ...]":
        """Where every table stands, and who works on it."""
        return self.watermarks.list()

    def doctor(self, tables: Names = None, *, start_spark: bool = False) -> "Iterator[Check]":
        """Check configuration, lake, Spark, warehouses, sources, tables and leases, one by one."""
        from floodmark.api.doctor import run_checks

        run = self.new_run()
        chosen = list(self.config.tables) if tables is None else run.tables(as_list(tables))
        settings = self._spark_settings()
        return run_checks(run, chosen, settings, start_spark=start_spark, session=self._spark)

    def release_spark(self) -> None:
        """Stop the Spark that was started here, if any; the next sync starts another."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.stop()

    def rest(self) -> None:
        """Between two syncs: stop a Spark that failed, that has long been idle, or that is old."""
        if self._engine is not None:
            self._engine.rest()

    def close(self) -> None:
        """Stop the Spark that was started here. A session that was passed in goes on running."""
        self._closed = True
        self.release_spark()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def new_run(self) -> RunContext:
        """A context with fresh state and a session id of its own."""
        return RunContext(self.config, self._lake, self._listener)

    @contextmanager
    def _one_run(self) -> Iterator[RunContext]:
        """The context of a sync, of which there is one at a time."""
        if self._closed:
            raise UsageError("the project is closed", hint="open it again with open_project()")
        if not self._running.acquire(blocking=False):
            raise BusyError(
                "this project is at work in another thread",
                hint="wait for it, or open a project for each thread",
            )
        try:
            if self._used:
                self._current = self.new_run()
            self._used = True
            self._listener.start()
            yield self._current
        finally:
            self._listener.take()
            if self._engine is not None and self._engine.is_stopped:
                self._engine = None  # the run was interrupted
            self._running.release()

    def _result(self, run: RunContext, results: "list[TableResult]") -> "SyncResult":
        from floodmark.api.results import SyncResult, notices_of

        of_tables = [notice for result in results for notice in notices_of(result)]
        return SyncResult(
            session_id=run.run.session_id,
            tables=tuple(results),
            notices=(*self._listener.take(), *of_tables),
        )

    def _composed(
        self, run: RunContext, tables: Names, pipelines: Names, **options: Any
    ) -> "Syncing":
        from floodmark.api.options import SyncOptions, compose

        wanted = SyncOptions(tables=tables, pipelines=pipelines, **options)
        progress = guarded_progress(self._on_progress, run.report)
        return compose(wanted, run, self._started_engine(), self._spark_settings(), progress)

    def _started_engine(self) -> "SparkEngine":
        from floodmark.sync.spark_engine import SparkEngine

        with self._lock:
            if self._engine is None:
                self._engine = SparkEngine(
                    self._spark_settings(),
                    self._listener,
                    verbose=self._verbose,
                    attached=self._spark,
                )
            return self._engine

    def _spark_settings(self) -> "SparkSettings":
        settings = self.config.settings.spark
        if self._spark is None:
            return settings
        from floodmark.spark.attached_session import attached_settings

        return attached_settings(self._spark, settings)
