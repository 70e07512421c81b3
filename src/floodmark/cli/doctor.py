"""`floodmark doctor`: check the set-up and suggest fixes."""

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import click

from floodmark.checks.check import Check, failed
from floodmark.cli.app import App, command_options, table_option
from floodmark.cli.terminal import entry, fold, say, style
from floodmark.cli.words import counted
from floodmark.errors import FloodmarkError, UsageError
from floodmark.model.history import StartedBy
from floodmark.model.position import Position
from floodmark.model.standing import MysqlState
from floodmark.model.table import TableName
from floodmark.state.lease import break_lease

if TYPE_CHECKING:
    from floodmark.sources.connection import MysqlSession
    from floodmark.sync.source import Source


@click.command()
@table_option(required=False)
@click.option("--spark", "start_spark", is_flag=True, help="Start Spark too, and try a worker.")
@click.option("--break-lease", "break_it", is_flag=True, help="End the leases on the -t tables.")
@command_options
def doctor(app: App, names: tuple[str, ...], *, start_spark: bool, break_it: bool) -> None:
    """Check configuration, lake, sources, warehouses, tables and Spark; show who is at work."""
    if break_it and not names:
        raise UsageError("--break-lease needs to know whose", hint="name tables with -t")
    tables = app.tables(names) if names else list(app.config.tables)
    if break_it:
        for table in tables:
            break_lease(app.store.objects, table)
    checks = []
    for check in _checks(app, tables, start_spark=start_spark):
        checks.append(check)
        if not app.as_json:
            say(_show(check))
    if app.as_json:
        app.print("", checks)
    wrong = sum(check.state == "failed" for check in checks)
    if wrong:
        raise FloodmarkError(f"{wrong} of {counted(len(checks), 'check')} failed")


def _checks(app: App, tables: list[TableName], *, start_spark: bool) -> Iterator[Check]:
    from floodmark.checks.lake import check_lake
    from floodmark.checks.leases import check_leases
    from floodmark.checks.sources import check_zone
    from floodmark.checks.spark import check_spark
    from floodmark.checks.targets import check_target

    config, objects, clock = app.config, app.store.objects, app.run.clock
    folder = os.path.dirname(config.path)
    yield _check_configuration(config.path, tables)
    lake = list(check_lake(objects, clock))
    yield from lake
    yield from check_spark(config.settings.spark, start=start_spark)
    yield from check_zone(config.settings.extraction)
    targets = {config.pipeline_of(table).target for table in tables if table in config.tables}
    for name in sorted(targets):
        try:
            connection = config.connection(name)
        except FloodmarkError as error:
            yield failed(f"target {name}", error)
        else:
            yield from check_target(name, connection, objects, config.lake, clock, folder)
    for scope in dict.fromkeys(table.scope for table in tables):
        yield from _check_source(app, scope, [table for table in tables if table.scope == scope])
    if all(check.state != "failed" for check in lake):
        yield from check_leases(objects, tables, clock())


def _check_configuration(path: str, tables: list[TableName]) -> Check:
    finding = f"{path}, {counted(len(tables), 'table')}"
    if tables:
        return Check(subject="configuration", finding=finding)
    hint = "list tables under 'tables:' of a pipeline, as 'schema.table: {}'"
    return Check(subject="configuration", state="failed", finding=finding, hint=hint)


def _check_source(app: App, scope: str, tables: list[TableName]) -> Iterator[Check]:
    from floodmark.checks.encryption import check_encryption
    from floodmark.checks.sources import check_bounds, check_server
    from floodmark.checks.tables import check_table
    from floodmark.sync.source import Sources
    from floodmark.tunnels.tunnel import Tunnels

    folder = os.path.dirname(app.config.path)
    settings = app.config.settings.extraction
    try:
        with (
            Tunnels(folder) as tunnels,
            Sources(tunnels) as sources,
            sources.of(app.mysql(scope)) as source,
            source.session() as session,
        ):
            activity, connection = source.activity(), source.connection
            yield from check_server(scope, session, activity.server_zone, app.run.clock)
            yield check_encryption(f"source {scope}", app.mysql(scope), session.encryption)
            yield from check_bounds(scope, connection, source.server, activity, settings)
            start = app.start_of_new_tables()
            for table in tables:
                wanted, zone = app.table_settings(table), activity.server_zone
                yield from check_table(
                    table,
                    session,
                    connection,
                    wanted,
                    settings,
                    zone,
                    _state(app, table),
                    partial(_known_key, app, table),
                    partial(app.reserved, table),
                )
                yield from _check_history(app, table, source, session, start)
    except FloodmarkError as error:
        yield failed(f"source {scope}", error)


def _state(app: App, table: TableName) -> MysqlState | None:
    """How far a table has been read; None if nothing is known, or it cannot be told."""
    with suppress(FloodmarkError):  # what is wrong with the lake is another check's finding
        watermark = app.store.get(table, mend=False)
        return watermark.mysql_state if watermark else None
    return None


def _known_key(app: App, table: TableName) -> tuple[str, ...] | None:
    from floodmark.sync.known import find_known_key

    return find_known_key(app.store.log, table, app.store.get(table, mend=False))


def _check_history(
    app: App,
    table: TableName,
    source: "Source",
    session: "MysqlSession",
    start: tuple[Position, StartedBy],
) -> Iterator[Check]:
    """Rows of a table that will not be read."""
    from floodmark.sync.history import foresee_outside
    from floodmark.sync.known import known_of

    settings, wanted = app.config.settings.extraction, app.table_settings(table)
    with suppress(FloodmarkError):  # what is wrong with a table or the lake is reported already
        watermark = app.store.get(table, mend=False)
        known = known_of(app.store.log, table, watermark)
        remarks = foresee_outside(
            source, session, table, wanted, settings, watermark, known, start, app.run.clock()
        )
        for remark in remarks:
            text = remark.text.removeprefix(f"{table}: ")
            yield Check(subject=str(table), state="note", finding=text, hint=remark.hint)


def _show(check: Check) -> str:
    line = entry(check.state, f"{check.subject}: {check.finding}")
    if not check.hint:
        return line
    hint = fold(f"hint: {check.hint}", indent=6, first=4)
    return f"{line}\n{hint.replace('hint:', style('hint:', 'cyan'), 1)}"
