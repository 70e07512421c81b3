"""Check tables: cursor, index, key and privileges."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from floodmark.checks.check import Check, failed
from floodmark.config.models import ExtractionSettings, MysqlConnection, TableSettings
from floodmark.errors import FloodmarkError
from floodmark.model.cursor import CursorChoice
from floodmark.model.log_state import MysqlState
from floodmark.model.position import START
from floodmark.model.schema import PRIMARY, SourceTable
from floodmark.model.table import TableName
from floodmark.model.unfilled_columns import backfill_hint, describe_unfilled
from floodmark.mysql.catalog import read_table
from floodmark.mysql.collations import not_told_apart
from floodmark.mysql.connection import MysqlSession, query, translated
from floodmark.mysql.keys import KnownKey, free_choice
from floodmark.mysql.predicates import relation
from floodmark.mysql.types import plan_columns, quote_name
from floodmark.planning.columns import check_choices, refuse_names
from floodmark.planning.cursor import NO_INDEX, choose_cursor
from floodmark.planning.cursor_change import refuse_another_cursor


def check_table(
    table: TableName,
    session: MysqlSession,
    connection: MysqlConnection,
    table_settings: TableSettings,
    settings: ExtractionSettings,
    server_zone: str,
    state: MysqlState | None = None,
    known_key: KnownKey = free_choice,
    reserved: Callable[[Iterable[str]], Sequence[str]] = lambda _names: (),
) -> Iterator[Check]:
    """Check how a table will be read from its state on."""
    subject = str(table)
    try:
        column_choices = table_settings.choices
        changed = (*column_choices.exclude, *column_choices.hash, *column_choices.booleans)
        source = read_table(session, table, changed=changed, known_key=known_key)
        known = state.cursor if state else None
        choice = choose_cursor(source, table_settings.cursor_columns, known)
        refuse_another_cursor(known, source, choice.cursor, state.position if state else START)
        choices = check_choices(source, choice.cursor, column_choices)
        columns = plan_columns(source, choices)
        refuse_names(source, choice.cursor, reserved(column.name for column in columns))
        names = ", ".join(column.expression for column in columns)
        with translated(connection):
            query(session, f"SELECT {names} FROM {relation(source)} LIMIT 0")  # noqa: S608
    except FloodmarkError as error:
        yield failed(subject, error)
        return
    how = f"cursor {choice.cursor}" if choice.cursor.columns else "no cursor"
    index = f", index {choice.index}" if choice.index else ""
    shown = ("index ", NO_INDEX)  # above, and below
    reasons = [reason for reason in choice.reasons if not reason.startswith(shown)]
    zone = _zone(source, choice, settings, server_zone)
    finding = f"{how}{index}; {_key(source)} ({'; '.join([*reasons, *zone])})"
    yield Check(subject=subject, finding=finding)
    if choice.better:
        yield Check(
            subject=subject,
            state="note",
            finding=f"the schema now suggests the cursor {choice.better}",
            hint=f"to switch, configure 'cursor: [{', '.join(choice.better.columns)}]' and run"
            f" 'floodmark watermark reset -t {table} --extract-only'",
        )
    if state and state.unfilled:
        yield Check(
            subject=subject,
            state="note",
            finding=describe_unfilled(state.unfilled),
            hint=backfill_hint(table, state.unfilled),
        )
    yield from _check_collations(session, source, choice, subject)
    without_index = [reason for reason in choice.reasons if reason.startswith(NO_INDEX)]
    for warning in (*choice.warnings, *without_index):
        hint = _index(source, choice) if warning.startswith(NO_INDEX) else None
        yield Check(subject=subject, state="note", finding=warning, hint=hint)


def _check_collations(
    session: MysqlSession, source: SourceTable, choice: CursorChoice, subject: str
) -> Iterator[Check]:
    """Report key columns whose collation treats different text as the same key."""
    if not choice.cursor.columns:
        return  # the whole table is replaced every time
    for name in source.primary_key:
        column = source.column(name)
        if same := not_told_apart(session, column):
            yield Check(
                subject=subject,
                state="note",
                finding=f"key column {name} ({column.collation}) does not distinguish"
                f" {', '.join(same)}: a key changed only in that is one row in MySQL but two in"
                " the target",
                hint="if applications change keys like that, use 'cursor: none'",
            )


def _key(source: SourceTable) -> str:
    key = ", ".join(source.primary_key) or "none"
    if source.key_index == PRIMARY:
        return f"primary key {key}"
    return f"no primary key, but unique key {key} (index {source.key_index})"


def _zone(
    source: SourceTable, choice: CursorChoice, settings: ExtractionSettings, server_zone: str
) -> list[str]:
    time = choice.cursor.timestamp
    if time is None or source.column(time).data_type != "datetime":
        return []
    zone = settings.cursor_time_zone
    return [f"{time} in time zone {zone}" if zone else f"{time} in the server's zone {server_zone}"]


def _index(source: SourceTable, choice: CursorChoice) -> str:
    columns = ", ".join(map(quote_name, choice.cursor.columns))
    return f"CREATE INDEX by_change ON {relation(source)} ({columns})"
