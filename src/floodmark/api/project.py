"""The public API: a project and the operations on its tables; `project_reader` only reads."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Self

from floodmark.api.arguments import (
    Names,
    Table,
    as_list,
    expect,
    expect_flags,
    expect_session,
)
from floodmark.api.callbacks import OnProgress
from floodmark.api.context import RunContext
from floodmark.api.project_reader import ProjectReader
from floodmark.api.runner import Runner
from floodmark.config.loading import LoadedConfig
from floodmark.model.notice import Report
from floodmark.model.run import Stage, Strategy
from floodmark.model.table import TableName

if TYPE_CHECKING:
    from datetime import datetime

    from floodmark.api.callbacks import OnResult
    from floodmark.api.drill import DrillResult
    from floodmark.api.lake import Lake
    from floodmark.api.planning import TablePlan
    from floodmark.api.recovery import RecoveryResult
    from floodmark.api.results import SyncResult
    from floodmark.api.validation import ValidationResult
    from floodmark.api.watermarks import Watermarks
    from floodmark.checks.check import Check
    from floodmark.model.reconcile_policy import Deletes

Verify = Literal["new", "all"]
BOTH: tuple[Stage, ...] = ("extract", "load")


class Project(ProjectReader):
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
        one_command: bool = False,
    ) -> None:
        """With `one_command`, `watermarks` and `lake` share the state that the run has read."""
        runner = Runner(
            config,
            spark=spark,
            on_progress=on_progress,
            on_notice=on_notice,
            on_result=on_result,
            verbose=verbose,
        )
        super().__init__(runner, one_command=one_command)

    def expect_one_run(self) -> None:
        """Stop Spark as soon as the last rows of the next run are read.

        By default it is kept for the runs after it, until close(). Loading then has more memory.
        """
        self._runner.only_one_run = True

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
        every               the interval, if you call this repeatedly: a table counts as behind
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
        return self._runner.run("sync", tables, pipelines, **options)

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
        return plan_sync(self._runner.compose(self.new_run(), tables, pipelines, **options))

    def verify(
        self, tables: Names = None, pipelines: Names = None, *, everything: bool = False
    ) -> "SyncResult":
        """Compare source and target: rows loaded since the last verification, or everything.

        Syncs nothing. Tables that differ are in `failures`, with the rows that differ.
        """
        expect_flags(everything=everything)
        return self._runner.run("verify", tables, pipelines, verify="all" if everything else "new")

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
        return self._runner.run(
            "reconcile", tables, pipelines, strategy=strategy, reconcile=options
        )

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
        return self._runner.run("backfill", tables, pipelines, strategy=strategy, backfill=options)

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
        return self._runner.run("takeover", tables, pipelines, strategy=strategy, takeover=options)

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
        with self._runner.one_run() as run:
            if tables is None:
                chosen = sorted({*run.store.log.tables(), *self.config.tables})
            else:
                chosen = run.tables(as_list("tables", tables))
            return Validating(
                run=run,
                engine=self._runner.engine(),
                spark=self._runner.spark_settings(),
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
        session = self._runner.engine().sql_session if spark is None else lambda: spark
        return read_table(run, name, session, as_of)

    def recover(
        self,
        tables: Names = None,
        pipelines: Names = None,
        *,
        dry_run: bool = False,
        plan: "RecoveryResult | None" = None,
    ) -> "RecoveryResult":
        """Bring lost state back from the mirror; by default of every table in the mirror.

        Existing objects are kept. A table's position goes back if rows are neither in the warehouse
        nor in the lake. A failed table does not raise: the result has its error. With a `plan`, the
        result of a dry run, tables that lacked nothing are not read again.
        """
        from floodmark.api.recovery import RecoveryResult, recover_tables

        expect("plan", plan, RecoveryResult, optional=True)

        expect_flags(dry_run=dry_run)
        tables = None if tables is None else as_list("tables", tables)
        pipelines = None if pipelines is None else as_list("pipelines", pipelines)
        mirror = self._runner.required_mirror
        with self._runner.one_run() as run:
            lake = RunContext(self.config, self._runner.raw_lake, run.report)
            found = recover_tables(
                lake, mirror.open(), tables, pipelines, dry_run=dry_run, plan=plan
            )
            if not dry_run:
                recovered = (table for table in found.tables if table.changed and not table.error)
                mirror.mark(*(TableName.parse(table.table_name) for table in recovered))
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
        with self._runner.one_run() as run:
            chosen = run.selected(tables, pipelines)
            lake = RunContext(self.config, self._runner.raw_lake, run.report)
            mirror = self._runner.mirror.open() if self._runner.mirror else None
            return run_drill(lake, mirror, chosen, target=target)

    @property
    def watermarks(self) -> "Watermarks":
        """Inspect and change the watermarks of tables."""
        from floodmark.api.watermarks import Watermarks

        return Watermarks(self._run_of_call)

    @property
    def lake(self) -> "Lake":
        """List and remove the data files of tables."""
        from floodmark.api.lake import Lake

        return Lake(self._run_of_call)

    def doctor(self, tables: Names = None, *, start_spark: bool = False) -> "Iterator[Check]":
        """Check configuration, lake, Spark, warehouses, sources, tables and leases, one by one."""
        from floodmark.api.doctor import run_checks

        expect_flags(start_spark=start_spark)
        run = self.new_run()
        chosen = (
            list(self.config.tables) if tables is None else run.tables(as_list("tables", tables))
        )
        settings, session = self._runner.spark_settings(), self._runner.spark
        return run_checks(run, chosen, settings, start_spark=start_spark, session=session)

    def release_spark(self) -> None:
        """Stop Spark if this project started it; the next sync starts it again."""
        self._runner.release_spark()

    def rest(self) -> None:
        """Between two syncs, stop a Spark session that failed, is idle for long, or is old."""
        self._runner.rest()

    def close(self) -> None:
        """Stop Spark if this project started it. A session passed in keeps running."""
        self._runner.close()

    def finish_mirroring(self) -> None:
        """Wait for the last copies to the mirror, for a limited time; report what is left."""
        self._runner.finish_mirroring()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
