"""Check the set-up: configuration, lake, Spark, targets, sources, tables, leases."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from floodmark.api.context import RunContext
from floodmark.checks.check import Check, failed
from floodmark.config.models import SparkSettings
from floodmark.errors import FloodmarkError
from floodmark.model.formatting import counted
from floodmark.model.history import StartedBy
from floodmark.model.log_state import MysqlState
from floodmark.model.position import Position
from floodmark.model.table import TableName

if TYPE_CHECKING:
    from floodmark.api.schema_check import SchemaCheck
    from floodmark.checks.executors import Places
    from floodmark.mysql.connection import MysqlSession
    from floodmark.sync.source import Source

__all__ = ["Check", "run_checks"]


def run_checks(
    run: RunContext,
    tables: Sequence[TableName],
    spark: SparkSettings,
    *,
    start_spark: bool,
    session: Any = None,
) -> Iterator[Check]:
    """Yield the checks of the set-up one by one; `session` is the caller's Spark session."""
    from floodmark.checks.lake import check_lake
    from floodmark.checks.leases import check_leases
    from floodmark.checks.sources import check_zone
    from floodmark.checks.spark import check_spark
    from floodmark.checks.targets import check_target

    config, objects, clock = run.config, run.store.objects, run.run.clock
    yield _check_configuration(config.path, tables)
    try:
        config.check_run()
    except FloodmarkError as error:
        yield failed("configuration", error)
    lake = list(check_lake(objects, clock))
    yield from lake
    if run.mirror is not None:
        from floodmark.checks.mirror import check_mirror

        yield from check_mirror(objects, run.mirror.open, tables)
    places = partial(_places, run, tables)
    yield from check_spark(
        spark,
        start=start_spark,
        session=session,
        places=places,
        objects=objects,
        window_mb=config.settings.extraction.window_mb,
    )
    yield from check_zone(config.settings.extraction)
    targets = {config.pipeline_of(table).target for table in tables if table in config.tables}
    for name in sorted(targets):
        try:
            connection = config.connection(name)
        except FloodmarkError as error:
            yield failed(f"target {name}", error)
        else:
            yield from check_target(name, connection, objects, config.lake, clock, run.folder)
    for scope in dict.fromkeys(table.scope for table in tables):
        yield from _check_source(run, scope, [table for table in tables if table.scope == scope])
    if all(check.state != "failed" for check in lake):
        yield from check_leases(objects, tables, clock())


def _places(run: RunContext, tables: Sequence[TableName]) -> AbstractContextManager["Places"]:
    """Return what executors must reach, with the logins that a run would send them."""
    from floodmark.checks.executors import places_of
    from floodmark.config.aws_login import with_login

    config = run.config
    listed = [table for table in tables if table in config.tables]
    sources = {table.scope: with_login(run.mysql(table.scope)) for table in listed}
    names = {config.pipeline_of(table).target for table in listed}
    targets = {name: with_login(config.connection(name)) for name in sorted(names)}
    return places_of(run.store.objects, config.lake, sources, targets)


def _check_configuration(path: str, tables: Sequence[TableName]) -> Check:
    finding = f"{path}, {counted(len(tables), 'table')}"
    if tables:
        return Check(subject="configuration", finding=finding)
    hint = "list tables under 'tables:' of a pipeline, as 'schema.table: {}'"
    return Check(subject="configuration", state="failed", finding=finding, hint=hint)


def _check_source(run: RunContext, scope: str, tables: Sequence[TableName]) -> Iterator[Check]:
    from floodmark.api.schema_check import SchemaCheck
    from floodmark.checks.encryption import check_encryption
    from floodmark.checks.sources import check_bounds, check_server
    from floodmark.checks.tables import check_table
    from floodmark.sync.source import Sources
    from floodmark.tunnels.tunnel import Tunnels

    settings = run.config.settings.extraction
    try:
        with (
            Tunnels(run.folder) as tunnels,
            Sources(tunnels) as sources,
            sources.of(run.mysql(scope)) as source,
            source.session() as session,
            SchemaCheck(run, tunnels) as columns,
        ):
            activity, connection = source.activity(), source.connection
            yield from check_server(scope, session, activity.server_zone, run.run.clock)
            yield check_encryption(f"source {scope}", run.mysql(scope), session.encryption)
            yield from check_bounds(scope, connection, source.server, activity, settings)
            start = run.start_of_new_tables()
            for table in tables:
                table_settings, zone = run.table_settings(table), activity.server_zone
                found = check_table(
                    table,
                    session,
                    connection,
                    table_settings,
                    settings,
                    zone,
                    _state(run, table),
                    partial(_known_key, run, table),
                    partial(run.reserved, table),
                )
                checks = list(found)
                yield from checks
                yield from _check_history(run, table, source, session, start)
                readable = all(check.state != "failed" for check in checks)
                if readable and table in run.config.tables:
                    yield from _check_columns(columns, table, session)
    except FloodmarkError as error:
        yield failed(f"source {scope}", error)


def _check_columns(
    columns: "SchemaCheck", table: TableName, session: "MysqlSession"
) -> Iterator[Check]:
    """Report every column that differs between source, last reading and target."""
    try:
        for found in columns.differences(table, session):
            state: Literal["failed", "note"] = "failed" if found.stops else "note"
            yield Check(subject=str(table), state=state, finding=str(found), hint=found.hint)
    except FloodmarkError as error:
        finding = f"its columns are not compared: {error.message}"
        yield Check(subject=str(table), state="note", finding=finding, hint=error.hint)


def _state(run: RunContext, table: TableName) -> MysqlState | None:
    """Return the state of stage 1; None if there is none, or it cannot be read."""
    with suppress(FloodmarkError):  # another check reports problems of the lake
        watermark = run.store.get(table, write_back=False)
        return watermark.mysql_state if watermark else None
    return None


def _known_key(run: RunContext, table: TableName) -> tuple[str, ...] | None:
    from floodmark.sync.log_facts import find_known_key

    return find_known_key(run.store.log, table, run.store.get(table, write_back=False))


def _check_history(
    run: RunContext,
    table: TableName,
    source: "Source",
    session: "MysqlSession",
    start: tuple[Position, StartedBy],
) -> Iterator[Check]:
    """Report rows of a table that will not be read."""
    from floodmark.sync.history import foresee_outside
    from floodmark.sync.log_facts import known_of

    settings, table_settings = run.config.settings.extraction, run.table_settings(table)
    with suppress(FloodmarkError):  # problems of the table or the lake are already reported
        watermark = run.store.get(table, write_back=False)
        known = known_of(run.store.log, table, watermark)
        remarks = foresee_outside(
            source,
            session,
            table,
            table_settings,
            settings,
            watermark,
            known,
            start,
            run.run.clock(),
        )
        for remark in remarks:
            text = remark.text.removeprefix(f"{table}: ")
            yield Check(subject=str(table), state="note", finding=text, hint=remark.hint)
