"""`floodmark doctor`: check what can be checked, and say how to mend what is wrong."""

import os
from collections.abc import Callable, Iterator
from typing import Literal

import click
from msgspec import Struct

from floodmark.cli.app import App, command_options, table_option
from floodmark.errors import FloodmarkError, UsageError, WriteConflict
from floodmark.model.bound import Activity
from floodmark.model.table import TableName
from floodmark.model.timestamps import stamped
from floodmark.planning.cursor import choose_cursor
from floodmark.sources.bounds import read_activity
from floodmark.sources.catalog import read_table
from floodmark.sources.connection import MysqlSession, connect
from floodmark.sources.projection import plan_columns
from floodmark.sources.strides import query
from floodmark.state import layout
from floodmark.state.lease import break_lease, read_lease
from floodmark.storage.objects import ObjectStore
from floodmark.tunnels.tunnel import open_tunnel

_MARKS = {"ok": ("✓", "green"), "note": ("•", "yellow"), "failed": ("✗", "red")}


class Check(Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    subject: str
    state: Literal["ok", "note", "failed"]
    finding: str
    hint: str | None = None


@click.command()
@table_option(required=False)
@click.option("--break-lease", "break_it", is_flag=True, help="End the leases on the -t tables.")
@command_options
def doctor(app: App, names: tuple[str, ...], *, break_it: bool) -> None:
    """Check configuration, lake, sources and tables, and show who is at work."""
    if break_it and not names:
        raise UsageError("--break-lease needs to know whose", hint="name tables with -t")
    tables = app.tables(names) if names else list(app.config.tables)
    if break_it:
        for table in tables:
            break_lease(app.store.objects, table)
    checks = [
        Check(subject="configuration", state="ok", finding=app.config.path),
        _check_lake(app.store.objects),
        *_check_sources(app, tables),
    ]
    if all(check.state != "failed" for check in checks[:2]):
        checks += _check_leases(app, tables)
    app.print("\n".join(map(_show, checks)), checks)
    failed = sum(check.state == "failed" for check in checks)
    if failed:
        raise FloodmarkError(f"{failed} of {len(checks)} checks failed")


def _check_lake(objects: ObjectStore) -> Check:
    """Write a probe, and see that conditional writes are refused when they must be."""
    key = f"{layout.LEASES}probe-{os.urandom(4).hex()}.json"
    finding = f"{objects} is writable and honours conditional writes"
    try:
        etag = objects.put_if_absent(key, b"1")
        if _accepts(lambda: objects.put_if_absent(key, b"2")):
            finding = f"{objects} overwrites objects that must not be"
        etag = objects.get(key).etag
        objects.put_if_match(key, b"3", etag)
        if _accepts(lambda: objects.put_if_match(key, b"4", etag)):
            finding = f"{objects} ignores If-Match"
        objects.delete(key)
    except FloodmarkError as error:
        return Check(subject="lake", state="failed", finding=error.message, hint=error.hint)
    state: Literal["ok", "failed"] = "ok" if finding.endswith("conditional writes") else "failed"
    hint = None if state == "ok" else "use a store that checks If-Match and If-None-Match"
    return Check(subject="lake", state=state, finding=finding, hint=hint)


def _accepts(write: Callable[[], str]) -> bool:
    try:
        write()
    except WriteConflict:
        return False
    return True


def _check_sources(app: App, tables: list[TableName]) -> Iterator[Check]:
    for scope in dict.fromkeys(table.scope for table in tables):
        try:
            folder = os.path.dirname(app.config.path)
            with (
                open_tunnel(app.mysql(scope), folder=folder) as connection,
                connect(connection) as session,
            ):
                activity = read_activity(session)
                yield from _check_server(scope, session, activity)
                for table in tables:
                    if table.scope == scope:
                        yield from _check_table(app, table, session, activity.server_zone)
        except FloodmarkError as error:
            yield Check(
                subject=f"source {scope}", state="failed", finding=error.message, hint=error.hint
            )


def _check_server(scope: str, session: MysqlSession, activity: Activity) -> Iterator[Check]:
    version = query(session, "SELECT VERSION()")[0][0]
    finding = f"{version}, time zone {activity.server_zone}"
    yield Check(subject=f"source {scope}", state="ok", finding=finding)
    if activity.unseen:
        yield Check(
            subject=f"source {scope}",
            state="note",
            finding=f"transactions in flight cannot be seen ({activity.unseen}),"
            " so reading stays 'extraction.lag_seconds' behind, 60 if not set",
            hint="GRANT PROCESS ON *.* TO the user, if this is a primary",
        )
    elif activity.holder:
        yield Check(
            subject=f"source {scope}", state="note", finding=f"now held back by {activity.holder}"
        )


def _check_table(
    app: App, table: TableName, session: MysqlSession, server_zone: str
) -> Iterator[Check]:
    try:
        source = read_table(session, table)
        choice = choose_cursor(source, app.cursor_columns(table))
        plan_columns(source, app.config.settings.extraction.zero_dates)
    except FloodmarkError as error:
        yield Check(subject=str(table), state="failed", finding=error.message, hint=error.hint)
        return
    key = ", ".join(source.primary_key) or "none, so rows are appended"
    index = f"index {choice.index}" if choice.index else "no index"
    finding = f"cursor {choice.cursor} by {index}; primary key {key}"
    reasons = "; ".join(choice.reasons)
    yield Check(subject=str(table), state="ok", finding=f"{finding} ({reasons})")
    time = choice.cursor.timestamp
    if time is not None and source.column(time).data_type == "datetime":
        zone = app.config.settings.extraction.cursor_time_zone
        whose = (
            "as configured"
            if zone
            else "the server's; 'extraction.cursor_time_zone' can say otherwise"
        )
        finding = f"{time} is taken to be in time zone {zone or server_zone} ({whose})"
        yield Check(subject=str(table), state="ok", finding=finding)
    for warning in choice.warnings:
        yield Check(subject=str(table), state="note", finding=warning)


def _check_leases(app: App, tables: list[TableName]) -> Iterator[Check]:
    for table in tables:
        lease = read_lease(app.store.objects, table)
        if lease is not None and lease.held(app.run.clock()):
            yield Check(
                subject=str(table),
                state="note",
                finding=f"held by {lease.owner}, session {lease.session_id},"
                f" until {stamped(lease.expires_at)}",
                hint=f"if that run is dead: floodmark doctor -t {table} --break-lease",
            )


def _show(check: Check) -> str:
    mark, colour = _MARKS[check.state]
    line = f"{click.style(mark, fg=colour)} {check.subject}: {check.finding}"
    return f"{line}\n    {click.style('hint:', fg='cyan')} {check.hint}" if check.hint else line
