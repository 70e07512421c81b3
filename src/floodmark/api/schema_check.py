"""Compare the columns of many tables with their targets, before anything is read."""

from contextlib import ExitStack
from typing import Self

from floodmark.api.context import RunContext
from floodmark.errors import FloodmarkError
from floodmark.model.notice import Notice
from floodmark.model.schema_change import SchemaDifference
from floodmark.model.table import TableName
from floodmark.mysql.connection import MysqlSession
from floodmark.sync.schema_report import load_differences, schema_differences
from floodmark.tunnels.tunnel import Tunnels
from floodmark.warehouse.factory import open_reader, surely_missing
from floodmark.warehouse.target import Target


class SchemaCheck:
    """Compares tables with their targets; each target is opened once, for reading."""

    def __init__(self, run: RunContext, tunnels: Tunnels) -> None:
        self._run = run
        self._tunnels = tunnels
        self._targets: dict[str, Target | None] = {}
        self._closing = ExitStack()

    def differences(
        self, table: TableName, session: MysqlSession | None, *, loads: bool = True
    ) -> list[SchemaDifference]:
        """Return the columns that differ; without a session, only those still to be loaded."""
        run = self._run
        watermark = run.store.get(table, write_back=False)
        settings, (name, target_name) = run.table_settings(table), run.config.target_of(table)
        target = self._target(table, name) if loads else None
        if target is not None:
            target.frozen = settings.schema_changes == "freeze"
        if session is None:
            return load_differences(run.store, table, watermark, target, target_name)
        return schema_differences(
            run.store,
            session,
            table,
            settings,
            watermark,
            target,
            target_name,
            run.config.settings.extraction.zero_dates,
        )

    def _target(self, table: TableName, name: str) -> Target | None:
        if name not in self._targets:
            try:
                self._targets[name] = self._open(table)
            except FloodmarkError as error:
                self._targets[name] = None
                message = f"target {name}: its columns are not compared: {error.message}"
                self._run.report(Notice("warning", message, hint=error.hint))
        return self._targets[name]

    def _open(self, table: TableName) -> Target | None:
        connection = self._run.target(table)
        if surely_missing(connection):
            return None
        reached = self._closing.enter_context(self._tunnels.through(connection))
        return self._closing.enter_context(open_reader(reached, self._run.config.lake))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()
