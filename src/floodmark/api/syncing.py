"""Run one sync: each table through its stages."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from threading import Lock, Thread
from typing import Literal

from msgspec import Struct, structs

from floodmark.api.adoption import adopt_table, warn_of_adoptable_files
from floodmark.api.backfilling import BackfillOptions, backfill_of
from floodmark.api.callbacks import traceback_notice
from floodmark.api.context import RunContext
from floodmark.api.loading import copies_of, loading_of
from floodmark.api.reconciling import ReconcileOptions, is_due, reconciliation_of
from floodmark.api.recording import Recording
from floodmark.api.takeover import TakeoverOptions, take_over_tables
from floodmark.api.verification import verification_of
from floodmark.config.logins import LOGINS
from floodmark.config.models import Connection, DuckdbConnection, MysqlConnection, SparkSettings
from floodmark.model.history import StartedBy
from floodmark.model.manifest import Column
from floodmark.model.position import Position
from floodmark.model.reconciliation import IntervalDifferences
from floodmark.model.run import Strategy, WorkStage
from floodmark.model.table import TableName
from floodmark.model.verification import VerificationResult
from floodmark.mysql.connection import Sessions
from floodmark.planning.cursor import version_column
from floodmark.planning.parallelism import tables_at_once
from floodmark.planning.verified_differences import to_repair
from floodmark.sync.adopt import Adoption
from floodmark.sync.backfill import backfill_table
from floodmark.sync.extract import extract_table
from floodmark.sync.extraction import Engine, Extraction
from floodmark.sync.load import load_after
from floodmark.sync.loading import Loading
from floodmark.sync.look_ahead import LookAhead
from floodmark.sync.notices import HELD_BACK
from floodmark.sync.plan import TablePlan
from floodmark.sync.progress import Progress
from floodmark.sync.reconcile import reconcile_after
from floodmark.sync.result import TableResult
from floodmark.sync.round_catalog import RoundCatalog
from floodmark.sync.run_tables import run_tables
from floodmark.sync.source import Source, Sources
from floodmark.sync.spark_engine import SparkEngine
from floodmark.sync.target_checks import check_frozen, check_target
from floodmark.sync.tunnels import open_tunnels
from floodmark.sync.unchanged import find_unchanged
from floodmark.sync.verify import verify_after
from floodmark.tunnels.tunnel import Tunnels
from floodmark.warehouse.factory import import_kind


class Syncing(Struct, frozen=True, kw_only=True):
    """A sync and its options.

    `sources` has the tables to read, `targets` those to load, `owners` those whose older files are
    adopted. `reconcile` is set to reconcile the tables even if they are not due. With `repair`,
    rows that `verify` finds to differ are loaded again or removed, and compared once more.
    `progress` is called from other threads.
    """

    run: RunContext
    engine: SparkEngine
    spark: SparkSettings
    tables: list[TableName]
    sources: Mapping[TableName, MysqlConnection]
    targets: Mapping[TableName, Connection]
    strategy: Strategy = "intra-table"
    limit: int | None = None
    extract: bool = True
    load: bool = True
    verify: Literal["new", "all"] | None = None
    repair: bool = False
    reconcile: ReconcileOptions | None = None
    backfill: BackfillOptions | None = None
    takeover: TakeoverOptions | None = None
    adoption: Adoption | None = None
    owners: Mapping[TableName, MysqlConnection] = {}
    every_seconds: float | None = None
    progress: Callable[[TableName, Progress], None] = lambda _table, _progress: None
    recording: Recording | None = None

    def sync(self) -> list[TableResult]:
        """Sync the tables, then compare them if `verify` is set."""
        run = self.run
        LOGINS.begin_run()
        start, sessions = run.start_of_new_tables(), Sessions()
        with self.open_tunnels() as tunnels, Sources(tunnels, sessions.connect) as sources:
            each = partial(
                run_tables,
                self.tables,
                failed=lambda error: run.report(traceback_notice(error)),
                clock=run.run.clock,
                at_once=self._tables_at_once(sources),
                stop=partial(self._stop, sessions),
            )
            if self.takeover is not None:
                with_table = partial(self._with_table, sources, tunnels, start)
                return take_over_tables(
                    self.run, self.takeover, self.tables, each, with_table, self._compared
                )
            read = Countdown(len(self.tables), self._release_spark)
            with self._looks(sources, tunnels, start) as unchanged:
                results = each(
                    lambda table: self._sync_table(
                        table, sources, tunnels, start, unchanged, read.one_done
                    ),
                    stage=self._first_stage,
                    finished=self._synced,
                )
            if self.verify:
                # After all loads: a DuckDB file that is being read cannot be written to.
                done = dict(zip(self.tables, results, strict=True))
                results = each(
                    lambda table: self._compare(table, done[table], tunnels),
                    stage="verify",
                    finished=lambda *end: None if done[end[0]].failed else self._verified(*end),
                )
            if self.repair:
                found = dict(zip(self.tables, results, strict=True))
                repaired = each(
                    lambda table: self._repair(
                        table, done[table], found[table], sources, tunnels, start
                    ),
                    stage="reconcile",
                )
                done = dict(zip(self.tables, repaired, strict=True))
                results = each(
                    lambda table: (
                        found[table]
                        if done[table] is found[table]
                        else self._compare(table, done[table], tunnels)
                    ),
                    stage="verify",
                    finished=lambda *end: (
                        self._compared(*end) if found[end[0]].status == "differs" else None
                    ),
                )
        return results

    def _tables_at_once(self, sources: Sources) -> int:
        """Return how many tables are synced at once, within the limits of their sources."""
        configured = self.run.config.settings.extraction.tables_at_once
        limits = []
        if self.strategy == "inter-table" and not configured and len(self.tables) > 1:
            for connection in set(self.sources.values()):
                # Each table reports what is wrong with its source.
                with suppress(Exception), sources.of(connection) as source:
                    limits.append(source.limit)
        slots = self.engine.known_slots
        return tables_at_once(configured, self.strategy, slots, min(limits, default=None))

    @property
    def _first_stage(self) -> WorkStage:
        if self.extract or self.load:
            return "extract" if self.extract else "load"
        if self.backfill:
            return "extract"
        return "reconcile" if self.reconcile or self.takeover else "verify"

    def _with_table(
        self,
        sources: Sources,
        tunnels: Tunnels,
        start: tuple[Position, StartedBy],
        table: TableName,
        work: Callable[[Extraction, Loading], TableResult],
    ) -> TableResult:
        with sources.of(self.sources[table]) as source:
            extraction = self._extraction(table, source, start, tunnels)
            return work(extraction, self.loading(table, tunnels))

    def _synced(self, table: TableName, result: TableResult, began: datetime) -> None:
        """Record a table that is done: it is not to be compared, or failed before."""
        if not self.verify or result.failed:
            self._compared(table, result, began)

    def _verified(self, table: TableName, result: TableResult, began: datetime) -> None:
        """Record a table that was compared, unless it is to be repaired."""
        if not (self.repair and result.status == "differs"):
            self._compared(table, result, began)

    def _compared(self, table: TableName, result: TableResult, began: datetime) -> None:
        if self.recording:
            self.recording.add(table, result, began)

    def _sync_table(
        self,
        table: TableName,
        sources: Sources,
        tunnels: Tunnels,
        start: tuple[Position, StartedBy],
        unchanged: Callable[[TableName], TableResult | None],
        read: Callable[[], None],
    ) -> TableResult:
        """Extract or adopt, then load, then reconcile if that is asked for or due.

        Call `read` when nothing is left to extract.
        """
        if (idle := unchanged(table)) is not None:
            read()
            return self._reconciled(idle, table, sources, tunnels, start)
        result = TableResult(table_name=str(table))
        if self.backfill is not None:
            with sources.of(self.sources[table]) as source:
                extraction = self._extraction(table, source, start, tunnels)
                again = backfill_of(extraction, self.loading(table, tunnels), self.backfill)
                return backfill_table(again, table, self.run.table_settings(table))
        if self.extract and self.load:
            with copies_of(self.run, table, self.engine) as copies:
                loading = self.loading(table, tunnels, copies)
                result = self._extract(table, sources, tunnels, start, read, loading)
                result = load_after(result, loading, table)
            return self._reconciled(result, table, sources, tunnels, start)
        if self.extract:
            result = self._extract(table, sources, tunnels, start, read)
        elif self.adoption is not None:
            with tunnels.through(self.owners[table]) as connection:
                result = adopt_table(self.run, self.adoption, table, connection)
        elif self.load:
            warn_of_adoptable_files(self.run, table)
        if self.load:
            result = load_after(result, self.loading(table, tunnels), table)
        return self._reconciled(result, table, sources, tunnels, start)

    def _extract(
        self,
        table: TableName,
        sources: Sources,
        tunnels: Tunnels,
        start: tuple[Position, StartedBy],
        read: Callable[[], None],
        loading: Loading | None = None,
    ) -> TableResult:
        with sources.of(self.sources[table]) as source:
            extraction = self._extraction(table, source, start, tunnels)
            extraction = structs.replace(extraction, loading=loading)
            try:
                return extract_table(extraction, table, self.run.table_settings(table))
            finally:
                read()

    def _reconciled(
        self,
        result: TableResult,
        table: TableName,
        sources: Sources,
        tunnels: Tunnels,
        start: tuple[Position, StartedBy],
    ) -> TableResult:
        """Reconcile a table that is synced, if that is asked for or due."""
        if not result.failed and result.status != HELD_BACK and self._reconciles(table):
            with sources.of(self.sources[table]) as source:
                extraction = self._extraction(table, source, start, tunnels)
                loading = self.loading(table, tunnels)
                how = reconciliation_of(self.run, table, extraction, loading, self.reconcile)
                result = reconcile_after(result, how, table, self.run.table_settings(table))
        return result

    @contextmanager
    def _looks(
        self, sources: Sources, tunnels: Tunnels, start: tuple[Position, StartedBy]
    ) -> Iterator[Callable[[TableName], TableResult | None]]:
        """Look ahead for tables that have nothing new, several at once."""
        if not self.extract or self.backfill is not None:
            yield lambda _table: None
            return
        catalog = RoundCatalog(self.tables)

        def look(table: TableName) -> TableResult | None:
            with sources.of(self.sources[table]) as source:
                extraction = self._extraction(table, source, start, tunnels)
                loading = self.loading(table, tunnels) if self.load else None
                settings = self.run.table_settings(table)
                return find_unchanged(extraction, loading, table, settings, catalog)

        with LookAhead(self.tables, look) as ahead:
            yield ahead.result

    def _release_spark(self) -> None:
        """Stop Spark if what is left of this run needs only memory: DuckDB loads in our process."""
        in_process = all(isinstance(one, DuckdbConnection) for one in self.targets.values())
        if (
            self.load
            and in_process
            and not (self.verify or any(map(self._reconciles, self.tables)))
        ):
            self.engine.release()

    def _reconciles(self, table: TableName) -> bool:
        """Whether to reconcile a table; by its schedule only after a whole sync."""
        whole = self.extract and self.load and self.limit is None
        return self.reconcile is not None or (whole and is_due(self.run, table))

    def _compare(self, table: TableName, result: TableResult, tunnels: Tunnels) -> TableResult:
        if result.failed:
            return result
        everything = self.verify == "all"
        with verification_of(
            self.run, table, self.engine, tunnels, everything=everything
        ) as verification:
            return verify_after(result, verification, table, self.run.table_settings(table))

    def _repair(
        self,
        table: TableName,
        synced: TableResult,
        compared: TableResult,
        sources: Sources,
        tunnels: Tunnels,
        start: tuple[Position, StartedBy],
    ) -> TableResult:
        """Repair the rows that differ; return the same result if there are none."""
        verified = compared.verification
        if verified is None or not verified.keys:
            return compared
        with sources.of(self.sources[table]) as source:
            how = reconciliation_of(
                self.run,
                table,
                self._extraction(table, source, start, tunnels),
                self.loading(table, tunnels),
                ReconcileOptions(),
            )
            how = structs.replace(how, known=partial(_differences, verified))
            result = reconcile_after(synced, how, table, self.run.table_settings(table))
        if result.reconciliation is None:  # the guard stopped it, or it failed
            return structs.replace(result, verification=verified)
        # Whether rows are left that differ is what the next comparison finds.
        return structs.replace(
            result,
            status=synced.status,
            stage=synced.stage,
            error=synced.error,
            hint=synced.hint,
            exit_code=synced.exit_code,
        )

    def loading(self, table: TableName, tunnels: Tunnels, copies: str | None = None) -> Loading:
        """Return how to load a table, of whose files there may be `copies`."""
        load_only = self.load and not self.extract
        return loading_of(self.run, table, tunnels, self.engine, load_only=load_only, copies=copies)

    @contextmanager
    def open_tunnels(self) -> Iterator[Tunnels]:
        """Open the SSH tunnels that the tables need."""
        targets = self.targets.values()
        by_workers = [*self.sources.values(), *(targets if self.verify else ())]
        primaries = filter(None, (source.to_primary for source in self.sources.values()))
        by_us = [*targets, *self.owners.values(), *primaries]
        folder = self.run.folder
        with open_tunnels(by_workers, by_us, self.spark, folder=folder) as tunnels:
            yield tunnels

    def _stop(self, sessions: Sessions) -> None:
        sessions.end()
        self.engine.stop()

    def _extraction(
        self,
        table: TableName,
        source: Source,
        start: tuple[Position, StartedBy],
        tunnels: Tunnels,
    ) -> Extraction:
        run = self.run
        return Extraction(
            store=run.store,
            source=source,
            settings=run.config.settings.extraction,
            lake=run.config.lake,
            engine=self.engine,
            prepare=partial(self._prepare, table, tunnels),
            check_frozen=partial(self._check_frozen, table, tunnels),
            strategy=self.strategy,
            session_id=run.run.session_id,
            default_start=start[0],
            start_by=start[1],
            limit=self.limit,
            every_seconds=self.every_seconds,
            reserved=partial(run.reserved, table),
            progress=self.progress,
            report=run.report,
        )

    def _prepare(self, table: TableName, tunnels: Tunnels, engine: Engine) -> None:
        """Start what reads the rows, and meanwhile check that the target can take them."""
        engine.prepare()
        if self.recording:
            self.recording.begin()
        if self.load:
            Thread(target=import_kind, args=[self.targets[table]], daemon=True).start()
            check_target(self.loading(table, tunnels), table)

    def _check_frozen(
        self,
        table: TableName,
        tunnels: Tunnels,
        columns: tuple[Column, ...],
        key: tuple[str, ...],
    ) -> None:
        if self.load or not self.extract or self.reconcile or self.repair:
            check_frozen(self.loading(table, tunnels), table, columns, key)


class Countdown:
    """Calls `then` when so many things are done, from any threads."""

    def __init__(self, number: int, then: Callable[[], None]) -> None:
        self._left = number
        self._then = then
        self._lock = Lock()

    def one_done(self) -> None:
        """Note that one more is done."""
        with self._lock:
            self._left -= 1
            is_last = self._left == 0
        if is_last:
            self._then()


def _differences(verified: VerificationResult, plan: TablePlan) -> IntervalDifferences:
    return to_repair(verified, plan.source, version_column(plan.source, plan.choice.cursor))
