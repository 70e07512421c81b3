"""One round of `floodmark sync`: each table through its stages, in one session."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from threading import Thread
from typing import Literal

from msgspec import Struct, structs

from floodmark.cli.app import App
from floodmark.cli.loading import loading_of
from floodmark.cli.progress import ProgressLine
from floodmark.cli.sync_adopt import adopt_table, mention_foreign_files
from floodmark.cli.sync_plan import show_plans
from floodmark.cli.verification import verification_of
from floodmark.config.logins import LOGINS
from floodmark.config.models import Connection, MysqlConnection
from floodmark.model.history import StartedBy
from floodmark.model.position import Position
from floodmark.model.run import Strategy
from floodmark.model.table import TableName
from floodmark.sources.connection import Sessions
from floodmark.sync.adoption import Adoption
from floodmark.sync.extraction import Extraction, extract_table
from floodmark.sync.loading import Loading, check_target, load_after
from floodmark.sync.result import TableResult
from floodmark.sync.source import Source, Sources
from floodmark.sync.spark import SparkEngine
from floodmark.sync.strategies import run_tables
from floodmark.sync.tunnels import open_tunnels
from floodmark.sync.verification import verify_after
from floodmark.tunnels.tunnel import Tunnels
from floodmark.warehouse.opening import import_kind


class Syncing(Struct, frozen=True, kw_only=True):
    """What a call of sync is to do, in one round or in many.

    `sources` has the tables that are read, `targets` those that are loaded, `owners` those whose
    older files are adopted.
    """

    app: App
    engine: SparkEngine
    tables: list[TableName]
    sources: Mapping[TableName, MysqlConnection]
    targets: Mapping[TableName, Connection]
    strategy: Strategy
    limit: int | None
    load_only: bool = False
    verify: Literal["new", "all"] | None = None
    adoption: Adoption | None = None
    owners: Mapping[TableName, MysqlConnection] = {}

    def run(self) -> list[TableResult]:
        """Bring the tables up to date, within the session that the app has begun."""
        app = self.app
        LOGINS.begin_run()
        settings = app.config.settings.extraction
        start = app.start_of_new_tables()
        progress, sessions = ProgressLine(app), Sessions()
        run = partial(
            run_tables,
            self.tables,
            failed=app.log.traceback,
            at_once=settings.tables_at_once if self.strategy == "inter-table" else 1,
            stop=partial(self._stop, sessions),
        )
        with self._tunnels() as tunnels, Sources(tunnels, sessions.connect) as sources:

            def work(table: TableName) -> TableResult:
                result = TableResult(table_name=str(table))
                if not self.load_only:
                    with sources.of(self.sources[table]) as source:
                        extraction = self._extraction(table, source, start, progress, tunnels)
                        result = extract_table(extraction, table, app.table_settings(table))
                elif self.adoption is None:
                    mention_foreign_files(app, table)
                else:
                    with tunnels.through(self.owners[table]) as connection:
                        result = adopt_table(app, self.adoption, table, connection)
                if table in self.targets:
                    result = load_after(result, self._loading(table, tunnels), table)
                return result

            def compare(table: TableName) -> TableResult:
                result = done[table]
                if result.failed:
                    return result
                everything = self.verify == "all"
                with verification_of(
                    app, table, self.engine, tunnels, everything=everything
                ) as verification:
                    return verify_after(result, verification, table, app.table_settings(table))

            try:
                results = run(work)
                if self.verify:
                    # After all loads: who reads a DuckDB file keeps others from writing to it.
                    done = dict(zip(self.tables, results, strict=True))
                    results = run(compare)
            finally:
                progress.end()
        return results

    def show_plan(self) -> None:
        """Print what a round would do now."""
        start = self.app.start_of_new_tables()
        at_once = self.app.config.settings.extraction.windows_at_once(self.strategy)
        with self._tunnels() as tunnels, Sources(tunnels) as sources:
            loadings = {table: self._loading(table, tunnels) for table in self.targets}
            show_plans(
                self.app,
                self.tables,
                self.sources,
                loadings,
                self.adoption,
                sources,
                start,
                self.limit,
                at_once,
            )

    def _stop(self, sessions: Sessions) -> None:
        sessions.end()
        self.engine.stop()

    @contextmanager
    def _tunnels(self) -> Iterator[Tunnels]:
        config, targets = self.app.config, self.targets.values()
        by_workers = [*self.sources.values(), *(targets if self.verify else ())]
        primaries = filter(None, (source.to_primary for source in self.sources.values()))
        by_us = [*targets, *self.owners.values(), *primaries]
        folder = os.path.dirname(config.path)
        with open_tunnels(by_workers, by_us, config.settings.spark, folder=folder) as tunnels:
            yield tunnels

    def _extraction(
        self,
        table: TableName,
        source: Source,
        start: tuple[Position, StartedBy],
        progress: ProgressLine,
        tunnels: Tunnels,
    ) -> Extraction:
        app = self.app
        return Extraction(
            store=app.store,
            source=source,
            settings=app.config.settings.extraction,
            lake=app.config.lake,
            engine=self.engine,
            prepare=partial(self._prepare, table, tunnels),
            strategy=self.strategy,
            session_id=app.run.session_id,
            default_start=start[0],
            start_by=start[1],
            limit=self.limit,
            reserved=partial(app.reserved, table),
            progress=progress.show,
            report=app.report,
        )

    def _prepare(self, table: TableName, tunnels: Tunnels) -> None:
        """Start Spark, and meanwhile see whether the rows that it reads can be loaded."""
        self.engine.prepare()
        if table in self.targets:
            Thread(target=import_kind, args=[self.targets[table]], daemon=True).start()
            check_target(self._loading(table, tunnels), table)

    def _loading(self, table: TableName, tunnels: Tunnels) -> Loading:
        loading = loading_of(self.app, table, tunnels, self.engine, load_only=self.load_only)
        return structs.replace(loading, check=self.engine.check)
