"""The public API: a project, its tables, and the operations on them."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, Self

from floodmark.api.arguments import (
    Names,
    Table,
    as_list,
    expect,
    expect_flags,
    expect_session,
    expect_variables,
)
from floodmark.api.callbacks import Listener, OnProgress, guarded_progress, guarded_result
from floodmark.api.context import RunContext
from floodmark.config.loading import LoadedConfig, load_config
from floodmark.config.logins import LOGINS
from floodmark.errors import BusyError, ConfigError, UsageError
from floodmark.model.notice import Report
from floodmark.model.run import Stage, Strategy
from floodmark.model.table import TableName
from floodmark.storage.opening import open_lake

if TYPE_CHECKING:
    from datetime import datetime

    from floodmark.api.callbacks import OnResult
    from floodmark.api.drill import DrillResult
    from floodmark.api.lake import Lake
    from floodmark.api.planning import TablePlan
    from floodmark.api.recording import Rounds
    from floodmark.api.recovery import RecoveryResult
    from floodmark.api.results import SyncResult
    from floodmark.api.runs import TableHistory
    from floodmark.api.status import TableStatus
    from floodmark.api.syncing import Syncing
    from floodmark.api.validation import ValidationResult
    from floodmark.api.watermarks import Watermarks
    from floodmark.checks.check import Check
    from floodmark.config.models import SparkSettings
    from floodmark.model.reconcile_policy import Deletes
    from floodmark.model.run_record import RunRecord
    from floodmark.state.last_drill import LastDrill
    from floodmark.state.mirror import Mirror, MirrorState
    from floodmark.state.mirror_lag import TableLag
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
    on_result: "OnResult | None" = None,
) -> "Project":
    """Read a configuration; start and connect nothing yet.

    path          the configuration file; by default $FLOODMARK_CONFIG, or ./floodmark.yml
    environment   variables for `${NAME}` in the configuration; by default os.environ
    spark         a SparkSession to use, classic or Spark Connect; by default one is started when
                  there are rows to read, and stopped by close()
    on_progress   called with a table and its Progress, from other threads
    on_notice     called with each Notice, from any thread; by default notices go to the logger
                  `floodmark`
    on_result     called with each TableResult as soon as the table is done, from other threads

    Raises ConfigError if the configuration is missing or invalid.
    """
    expect("path", path, str, os.PathLike, optional=True)
    expect_variables("environment", environment)
    expect("on_progress", on_progress, Callable, optional=True)
    expect("on_notice", on_notice, Callable, optional=True)
    expect("on_result", on_result, Callable, optional=True)
    variables = os.environ if environment is None else environment
    config = load_config(None if path is None else os.fspath(path), variables)
    return Project(
        config, spark=spark, on_progress=on_progress, on_notice=on_notice, on_result=on_result
    )


class Project:
    """The tables of a configuration. Use it as a context manager, or call close().

    Every call reads the current state. Only one sync, verify, reconcile, backfill, takeover or
    validate runs at a time; all other methods may be called from any thread at any time.
    """

    def __init__(
        self,
        config: LoadedConfig,
        *,
        spark: Any = None,
        on_progress: OnProgress | None = None,
        on_notice: Report | None = None,
        on_result: "OnResult | None" = None,
        verbose: bool = False,
    ) -> None:
        self.config = config
        self._spark = spark
        self._verbose = verbose
        self._on_progress = on_progress
        self._on_result = on_result
        self._rounds: Rounds | None = None
        self._listener = Listener(on_notice)
        self._raw_lake = self._lake = open_lake(config.lake, config.settings.retries)
        self._mirror: Mirror | None = None
        if config.mirror is not None:
            from floodmark.api.mirroring import mirrored

            self._lake, self._mirror = mirrored(config, config.mirror, self._raw_lake)
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
        """The context of the current or last run; used by the command line."""
        return self._current

    @property
    def session_id(self) -> str:
        """The session id of the current or last run, or of the first one to come."""
        return self._current.run.session_id

    def sync(
        self,
        tables: Names = None,
        pipelines: Names = None,
        *,
        stages: Stage | Sequence[Stage] = BOTH,
        strategy: Strategy = "intra-table",
        limit: int | None = None,
        verify: Verify | None = None,
        repair: bool = False,
        reconcile: bool = False,
        adopt: bool = False,
        adopt_from: str | None = None,
        every: timedelta | None = None,
    ) -> "SyncResult":
        """Sync tables from MySQL to the lake (`extract`) and to the warehouse (`load`).

        tables, pipelines   what to sync; by default every table of the configuration
        stages              both, or one of them: ["extract"] or ["load"]
        strategy            one table after another (sequential), several in parallel (inter-table),
                            or many windows of one table in parallel (intra-table)
        limit               at most this many rows per table in the extract stage
        verify              compare source and target afterwards: "new" rows, or "all"
        repair              load rows that differ again, and remove those that only the target has,
                            as `reconcile: {deletes: …}` says
        reconcile           reconcile all tables afterwards, and not only those that are due
        adopt, adopt_from   load Parquet files of older systems, from a folder in the lake
        every               the interval, if you call this again and again: a table counts as behind
                            after three of them, and only rounds in which something happens leave a
                            record

        A failed table does not raise: the result has its error, and committed chunks stay. Ctrl-C
        stops the run, releases all leases, and is raised again.
        """
        from floodmark.api.reconciling import ReconcileOptions

        expect_flags(reconcile=reconcile)
        options = {
            "stages": stages,
            "strategy": strategy,
            "limit": limit,
            "verify": verify,
            "repair": repair,
            "reconcile": ReconcileOptions() if reconcile else None,
            "adopt": adopt,
            "adopt_from": adopt_from,
            "every": every,
        }
        return self._synced("sync", tables, pipelines, **options)

    def plan(
        self,
        tables: Names = None,
        pipelines: Names = None,
        *,
        stages: Stage | Sequence[Stage] = BOTH,
        strategy: Strategy = "intra-table",
        limit: int | None = None,
        adopt: bool = False,
        adopt_from: str | None = None,
    ) -> "list[TablePlan]":
        """Return what a sync would do now; change nothing."""
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
        """Compare source and target: rows loaded since the last verification, or everything.

        Syncs nothing. Tables that differ are in `failures`, with the rows that differ.
        """
        expect_flags(everything=everything)
        return self._synced("verify", tables, pipelines, verify="all" if everything else "new")

    def reconcile(
        self,
        tables: Names = None,
        pipelines: Names = None,
        *,
        deletes: "Deletes | None" = None,
        allow_deletes: int | None = None,
        start: "datetime | int | str | None" = None,
        end: "datetime | int | str | None" = None,
        seconds: float | None = None,
        segments: int | None = None,
        dry_run: bool = False,
        strategy: Strategy = "intra-table",
    ) -> "SyncResult":
        """Make the target equal to the source: find deleted, missing, stale and duplicate rows.

        deletes             what happens to deleted rows: "hard", "soft", or only a "report"
        allow_deletes       how many rows may be deleted, if that is more than `max_deletes`
        start, end          compare only rows with these values of the cursor, inclusive
        seconds, segments   the most to spend on a table; the next call continues there
        dry_run             only find and report

        Extracts nothing new. Without an option, the configuration decides. The result of a table
        has its `reconciliation`, with all keys that differed.
        """
        from floodmark.api.reconciling import ReconcileOptions

        options = ReconcileOptions(
            deletes=deletes,
            allow_deletes=allow_deletes,
            start=start,
            end=end,
            seconds=seconds,
            segments=segments,
            dry_run=dry_run,
        )
        return self._synced("reconcile", tables, pipelines, strategy=strategy, reconcile=options)

    def backfill(
        self,
        tables: Names = None,
        pipelines: Names = None,
        *,
        start: "datetime | int | str | None" = None,
        end: "datetime | int | str | None" = None,
        restart: bool = False,
        dry_run: bool = False,
        strategy: Strategy = "intra-table",
    ) -> "SyncResult":
        """Read rows again, and replace what the target holds under their keys.

        start, end   the first and the last value of the cursor; without an end, up to the position
        restart      read all of it, even if an earlier call with this range was interrupted
        dry_run      only estimate the rows

        The position does not move. Rows before the table's start can be read, rows after its
        position cannot. The result of a table has its `backfill`.
        """
        from floodmark.api.backfilling import BackfillOptions

        options = BackfillOptions(start=start, end=end, restart=restart, dry_run=dry_run)
        return self._synced("backfill", tables, pipelines, strategy=strategy, backfill=options)

    def takeover(
        self,
        tables: Names = None,
        pipelines: Names = None,
        *,
        margin: timedelta = timedelta(hours=1),
        skip_mismatches: bool = False,
        dry_run: bool = False,
        strategy: Strategy = "intra-table",
    ) -> "SyncResult":
        """Take over tables that another tool has filled, without loading them again.

        margin            how far to step back from the greatest time that the target holds
        skip_mismatches   take over tables that match, even if others do not
        dry_run           only compare, and find the positions

        Tables that are synced already are left alone. Those taken over are reconciled. The result
        of a table has its `takeover`, and then its `reconciliation`.
        """
        from floodmark.api.takeover import TakeoverOptions

        options = TakeoverOptions(margin=margin, skip_mismatches=skip_mismatches, dry_run=dry_run)
        return self._synced("takeover", tables, pipelines, strategy=strategy, takeover=options)

    def validate(
        self,
        tables: Names = None,
        *,
        repair: bool = False,
        lake_only: bool = False,
        data: bool = False,
    ) -> "ValidationResult":
        """Check that the tracking matches the lake and the warehouse; by default for all tables.

        repair      repair the tracking; data is never changed
        lake_only   skip the warehouse
        data        also compare all synced rows with the source
        """
        from floodmark.api.validation import Validating

        expect_flags(repair=repair, lake_only=lake_only, data=data)
        with self._one_run() as run:
            if tables is None:
                chosen = sorted({*run.store.log.tables(), *self.config.tables})
            else:
                chosen = run.tables(as_list("tables", tables))
            return Validating(
                run=run,
                engine=self._started_engine(),
                spark=self._spark_settings(),
                tables=chosen,
                repair=repair,
                lake_only=lake_only,
                data=data,
            ).validate()

    def read(self, table: Table, spark: Any = None, *, as_of: str | None = None) -> Any:
        """Return a table's current rows, from the lake alone, as a Spark DataFrame.

        table   its name
        spark   the SparkSession to use; by default that of open_project(), or one that is started
                and that close() stops
        as_of   read the rows as of this manifest, an id of `watermark history`: EPOCH-SEQUENCE

        These are the rows that a load into an empty warehouse would give: the newest version of
        each key, without deleted and quarantined rows. The workers need this package, and find the
        lake's credentials as they do in a sync.
        """
        from floodmark.api.reading import read_table

        expect("as_of", as_of, str, optional=True)
        expect_session("spark", spark)
        run = self.new_run()
        name = run.table(table)
        session = self._started_engine().sql_session if spark is None else lambda: spark
        return read_table(run, name, session, as_of)

    @property
    def mirror_state(self) -> "MirrorState | None":
        """How far the mirror is behind, as the last run left it; None if there is none."""
        from floodmark.state.mirror import read_mirror_state

        return read_mirror_state(self._raw_lake) if self._mirror else None

    def mirror_lag(self, table: Table) -> "TableLag | None":
        """Compare the mirror's state of a table with the lake's; None if they are equal."""
        from floodmark.state.mirror_lag import measure_lag

        name = self.new_run().table(table)
        if self._mirror is None:
            raise ConfigError("there is no mirror", hint="set 'mirror:' in the configuration")
        return measure_lag(self._raw_lake, self._mirror.open(), name)

    def recover(
        self, tables: Names = None, pipelines: Names = None, *, dry_run: bool = False
    ) -> "RecoveryResult":
        """Bring lost state back from the mirror; by default of every table in the mirror.

        Existing objects are kept. A table's position goes back if rows are neither in the warehouse
        nor in the lake. A failed table does not raise: the result has its error.
        """
        from floodmark.api.recovery import recover_tables

        expect_flags(dry_run=dry_run)
        tables = None if tables is None else as_list("tables", tables)
        pipelines = None if pipelines is None else as_list("pipelines", pipelines)
        if self._mirror is None:
            raise ConfigError("there is no mirror", hint="set 'mirror:' in the configuration")
        with self._one_run() as run:
            lake = RunContext(self.config, self._raw_lake, run.report)
            mirror = self._mirror.open()
            found = recover_tables(lake, mirror, tables, pipelines, dry_run=dry_run)
            if not dry_run:
                recovered = (table for table in found.tables if table.changed and not table.error)
                self._mirror.mark(*(TableName.parse(table.table_name) for table in recovered))
            return found

    def drill(
        self, tables: Names = None, pipelines: Names = None, *, target: bool = False
    ) -> "DrillResult":
        """Rehearse recovery on a copy of the state; by default of every table.

        The state itself is only read. With `target`, also load a sample of each table's data files
        into a scratch schema of its warehouse. A failed rehearsal does not raise.
        """
        from floodmark.api.drill import run_drill

        expect_flags(target=target)
        with self._one_run() as run:
            chosen = run.selected(tables, pipelines)
            lake = RunContext(self.config, self._raw_lake, run.report)
            mirror = self._mirror.open() if self._mirror else None
            return run_drill(lake, mirror, chosen, target=target)

    @property
    def last_drill(self) -> "LastDrill | None":
        """The result of the last drill; None if there was none."""
        from floodmark.state.last_drill import read_last_drill

        return read_last_drill(self._raw_lake)

    @property
    def watermarks(self) -> "Watermarks":
        """Inspect and change the watermarks of tables."""
        from floodmark.api.watermarks import Watermarks

        return Watermarks(self.new_run)

    @property
    def lake(self) -> "Lake":
        """List and remove the data files of tables."""
        from floodmark.api.lake import Lake

        return Lake(self.new_run)

    def status(self, tables: Names = None, pipelines: Names = None) -> "tuple[TableStatus, ...]":
        """Return how each table is doing, the worst first, from the lake alone.

        By default all tables of the configuration, and those in the lake that are no longer in it.
        """
        from floodmark.api.status import read_status

        return read_status(self.new_run(), tables, pipelines)

    def runs(
        self, *, pipelines: Names = None, failed: bool = False, most: int | None = None
    ) -> "Iterator[RunRecord]":
        """Yield the recorded runs, newest first.

        pipelines   only runs with tables of these
        failed      only runs that failed, or did not finish
        most        at most this many
        """
        from floodmark.api.runs import read_runs

        expect_flags(failed=failed)
        expect("most", most, int, optional=True)
        return read_runs(self.new_run(), pipelines, failed=failed, most=most)

    def run(self, run_id: str) -> "RunRecord":
        """Return the record of a run, given its id or the beginning of it."""
        from floodmark.api.runs import read_run

        expect("run_id", run_id, str)
        return read_run(self.new_run(), run_id)

    def history(self, table: Table, *, days: int = 30) -> "TableHistory":
        """Return what happened to a table: rows a day, commits, runs and recoveries."""
        from floodmark.api.runs import read_history

        expect("days", days, int)
        run = self.new_run()
        return read_history(run, run.table(table), days=days)

    def doctor(self, tables: Names = None, *, start_spark: bool = False) -> "Iterator[Check]":
        """Check configuration, lake, Spark, warehouses, sources, tables and leases, one by one."""
        from floodmark.api.doctor import run_checks

        expect_flags(start_spark=start_spark)
        run = self.new_run()
        chosen = (
            list(self.config.tables) if tables is None else run.tables(as_list("tables", tables))
        )
        settings = self._spark_settings()
        return run_checks(run, chosen, settings, start_spark=start_spark, session=self._spark)

    def release_spark(self) -> None:
        """Stop Spark if this project started it; the next sync starts it again."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.stop()

    def rest(self) -> None:
        """Between two syncs, stop a Spark session that failed, is idle for long, or is old."""
        if self._engine is not None:
            self._engine.rest()

    def close(self) -> None:
        """Stop Spark if this project started it. A session passed in keeps running."""
        self._closed = True
        self.release_spark()
        self.finish_mirroring()

    def finish_mirroring(self) -> None:
        """Wait for the last copies to the mirror, for a limited time; report what is left."""
        if self._mirror is not None:
            self._mirror.drain(self._listener)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def new_run(self) -> RunContext:
        """Return a context with fresh state and its own session id."""
        return RunContext(self.config, self._lake, self._listener, self._mirror)

    @contextmanager
    def _one_run(self) -> Iterator[RunContext]:
        """Yield the context of a run; BusyError if another one is running."""
        if self._closed:
            raise UsageError("the project is closed", hint="open it again with open_project()")
        if not self._running.acquire(blocking=False):
            raise BusyError(
                "this project is running in another thread",
                hint="wait for it to finish",
            )
        try:
            if self._used:
                self._current = self.new_run()
            self._used = True
            self._listener.start()
            if self._mirror is not None:
                self._mirror.begin_round()
            yield self._current
        finally:
            self.finish_mirroring()
            self._listener.take()
            if self._engine is not None and self._engine.is_stopped:
                self._engine = None  # the run was interrupted
            self._running.release()

    def _synced(
        self, command: str, tables: Names, pipelines: Names, **options: Any
    ) -> "SyncResult":
        """Run a sync or a comparison, and record it."""
        from floodmark.api.options import SyncOptions, compose
        from floodmark.api.recording import Recording, Rounds, RunTask
        from floodmark.api.results import SyncResult, notices_of

        # They may be iterators, and are needed more than once.
        tables = None if tables is None else as_list("tables", tables)
        pipelines = None if pipelines is None else as_list("pipelines", pipelines)
        sync_options = SyncOptions(tables=tables, pipelines=pipelines, **options)
        self._rounds = self._rounds or Rounds()
        with self._one_run() as run:
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
                engine, spark = self._started_engine(), self._spark_settings()
                syncing = compose(sync_options, run, engine, spark, progress, recording)
                recording.start()
                results = syncing.sync()
                self.finish_mirroring()  # its notice belongs to the result
                of_tables = [notice for result in results for notice in notices_of(result)]
                notices = (*self._listener.take(), *of_tables)
                recording.finish(results, notices)
            return SyncResult(session_id=run.run.session_id, tables=tuple(results), notices=notices)

    def _composed(
        self, run: RunContext, tables: Names, pipelines: Names, **options: Any
    ) -> "Syncing":
        from floodmark.api.options import SyncOptions, compose

        sync_options = SyncOptions(tables=tables, pipelines=pipelines, **options)
        progress = guarded_progress(self._on_progress, run.report)
        return compose(sync_options, run, self._started_engine(), self._spark_settings(), progress)

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
