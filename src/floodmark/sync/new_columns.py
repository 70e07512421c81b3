"""Handle columns that earlier rows lack, or whose values a change of type may have changed.

A row that gets a new column is not stamped, so no cursor finds it again. If all rows up to the
position have the same value, the next chunk records it, and the target's rows get it. Otherwise
they must be read again: a new column stays NULL until then, a changed one stops the table.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

from msgspec import Struct, structs

from floodmark.errors import FloodmarkError
from floodmark.model.cursor import Cursor
from floodmark.model.extraction import ColumnPlan, ZeroDates
from floodmark.model.log_state import ManifestId, UnfilledColumn
from floodmark.model.manifest import Chunk, Column
from floodmark.model.notice import Notice, Report
from floodmark.model.position import START, Position
from floodmark.model.schema import SourceTable
from floodmark.model.table import TableName
from floodmark.model.unfilled_columns import Unfilled, backfill_hint
from floodmark.model.watermark import Watermark
from floodmark.mysql.common_values import Different, NoRows, common_value, may_be_cut
from floodmark.mysql.connection import MysqlSession
from floodmark.mysql.predicates import cursor_predicate
from floodmark.mysql.window_edges import cursor_edges
from floodmark.planning.cursor_change import other_keys_hint
from floodmark.planning.next_position import right_before
from floodmark.planning.schema_change import ColumnChange, column_changes, read_again_hint
from floodmark.planning.value_change import exchanged, value_change
from floodmark.state.manifest_log import ManifestLog
from floodmark.sync.log_facts import chunks_before, columns_in
from floodmark.sync.plan import TablePlan, lake_columns
from floodmark.sync.source import Source

Fills = dict[str, str | None]
Sessions = Callable[[], AbstractContextManager[MysqlSession]]


class Judgement(Struct, frozen=True, kw_only=True):
    """What becomes of one column's values in rows that were read before.

    Either all of them get the value in `fills`, if it is not empty; or, with `unfilled`, they keep
    NULL until they are read again; or the table stops with the `refusal`. `before` is how the
    column was read, None if it was not.
    """

    name: str
    before: Column | None
    fills: Fills = {}
    unfilled: bool = False
    refusal: FloodmarkError | None = None


class NewColumns(Struct, frozen=True, kw_only=True):
    """What the next chunk records: values of new columns in earlier rows, and those it cannot know.

    `notice` reports the latter.
    """

    fills: Fills = {}
    unfilled: Unfilled = ()
    notice: Notice | None = None


def find_new_columns(
    source: Source,
    log: ManifestLog,
    watermark: Watermark,
    plan: TablePlan,
    zero_dates: ZeroDates,
    report: Report,
) -> NewColumns:
    """Return the values of new columns in rows that were read before.

    Raise FloodmarkError, before anything is read, if these rows must be read again.
    """
    table, cursor = plan.source.name, plan.choice.cursor
    chunks = chunks_before(log, table, watermark)
    if not chunks:
        return NewColumns()
    lake = lake_columns(plan.source, plan.columns)
    changes = column_changes(chunks[-1].columns, lake)
    renamed = {change.name: change.renamed for change in changes if change.renamed}
    for change in changes:
        if change.now is None:
            report(_gone(table, change))
    fills: Fills = {}
    unfilled: list[str] = []
    for found in judge_columns(
        source.session, plan.source, cursor, plan.columns, chunks, watermark.position, zero_dates
    ):
        name = found.name
        if found.refusal:
            raise found.refusal
        if found.unfilled:
            unfilled.append(name)
            if _comes_back(name, chunks[-1], log, table):
                fills[name] = None  # the target has what it was before
        elif found.fills and found.before is None:
            report(_added(table, name, found.fills[name], renamed.get(name)))
        fills |= found.fills
    if not unfilled:
        return NewColumns(fills=fills)
    end = _end(watermark.position)
    with source.session() as session:
        start = _before_first_row(session, plan, _first_position(log, table, watermark), end)
    rows = tuple(UnfilledColumn(column=name, start=start, up_to=end) for name in unfilled)
    return NewColumns(fills=fills, unfilled=rows, notice=_not_filled(table, rows, renamed))


def judge_columns(
    sessions: Sessions,
    source: SourceTable,
    cursor: Cursor,
    columns: Sequence[ColumnPlan],
    chunks: Sequence[Chunk],
    position: Position,
    zero_dates: ZeroDates,
) -> Iterator[Judgement]:
    """Yield what becomes of every column whose values in earlier rows may not be in the target.

    These rows are up to the position, and from the `chunks`.
    """
    if position.is_start or cursor.kind == "none":
        return  # no row was read before, or all are read again
    planned = lake_columns(source, columns)
    now = {column.name.lower(): column for column in planned}
    known = _columns_before(chunks)
    # Files of an older system have their own column order.
    moved = {n for c in chunks if not c.adopted for n in exchanged(c.columns, planned)}
    keyed = bool(source.primary_key) and all(chunk.primary_key for chunk in chunks)
    where = cursor_predicate(source, cursor, START, _end(position))
    for column in columns:
        name = column.name.lower()
        before = known.get(name, [None])
        if column.hashed:  # rows with clear text are reported already
            before = [one for one in before if one is None or one.source is not None]
        kinds = [value_change(one, now[name]) for one in before]
        other = [one for one, kind in zip(before, kinds, strict=True) if kind != "same"]
        if not other and (name not in moved or not before):
            continue
        with sessions() as session:
            rows = _EarlierRows(
                session=session,
                table=source,
                position=position,
                column=column,
                zero_dates=zero_dates,
                where=where,
                keyed=keyed,
                before=next(iter(other), before[-1]),
                now=now[name],
                only_new=name not in moved and other == [None],
            )
            yield rows.judge(only_cut="unknown" not in kinds and name not in moved)


def _end(position: Position) -> Position:
    """Return the end of the rows that may have been read.

    A key scan has read only some rows up to its bound; the others count as well.
    """
    return position.walk.bound if position.walk else position


def _first_position(log: ManifestLog, table: TableName, watermark: Watermark) -> Position:
    """Return the first position from which rows were read."""
    first: Position | None = None
    since = ManifestId(watermark.redshift_state.eligible_from_epoch, 0)
    for chunk in log.chunks(table, since=since):
        part = chunk.reconciled.backfill if chunk.reconciled else None
        if part is None and (not chunk.moves_position or chunk.only_columns):
            continue
        start = part.start if part else chunk.start.base
        order = -1 if first is None else start.compare(first)
        if order is None:
            return START
        first = start if order == -1 else first
    return first or START


def _before_first_row(
    session: MysqlSession, plan: TablePlan, start: Position, end: Position
) -> Position:
    """Return a position from which all rows in `(start, end]` are read, as late as possible."""
    edges = cursor_edges(
        session, plan.source, plan.choice.cursor, start, end, index=plan.choice.index, stride=1
    )
    first = next((edge.end for edge in edges), start)
    if first.timestamp is not None:
        first = right_before(first.timestamp)
    elif isinstance(first.id, int):
        first = Position(id=first.id - 1)
    return first if first.compare(start) == 1 else start


def _comes_back(name: str, last: Chunk, log: ManifestLog, table: TableName) -> bool:
    """Whether the target may have values of an earlier column of this name."""
    if name.lower() in {column.name.lower() for column in last.columns}:
        return False
    return name.lower() in {known.lower() for known in columns_in(log, table)}


def _gone(table: TableName, change: ColumnChange) -> Notice:
    message = (
        f"{table}: {change.name} is no longer in the source; the target keeps the column, and new"
        " rows have NULL in it"
    )
    if change.renamed:
        message += (
            f"; perhaps it was renamed to {change.renamed}, which MySQL does not record: the target"
            " has both"
        )
    return Notice("info", message, "column_dropped", str(table))


def _added(table: TableName, name: str, value: str | None, renamed: str | None) -> Notice:
    """Report a new column; its value is not shown, as it may be personal data."""
    rows = "have NULL in it, as in the source" if value is None else "get its value in the source"
    message = f"{table}: {name} is new; rows that were read before {rows}{_perhaps(renamed)}"
    return Notice("info", message, "column_added", str(table))


def _not_filled(table: TableName, rows: Unfilled, renamed: Mapping[str, str]) -> Notice:
    names = [one.column + _perhaps(renamed.get(one.column)) for one in rows]
    verb, them = ("is", "it") if len(rows) == 1 else ("are", "them")
    message = (
        f"{table}: {', '.join(names)} {verb} new, and rows up to {rows[0].up_to} were read without"
        f" {them}: they have different values in the source, and NULL in the target until they are"
        " read again"
    )
    hint = backfill_hint(table, rows)
    return Notice("warning", message, "column_unfilled", str(table), hint=hint)


def _perhaps(renamed: str | None) -> str:
    if renamed is None:
        return ""
    return f" (perhaps {renamed} under a new name, which MySQL does not record)"


def _columns_before(chunks: Sequence[Chunk]) -> dict[str, list[Column | None]]:
    """Return how these chunks read each column; None is among them if some lacked it."""
    by_name: dict[str, list[Column | None]] = {}
    for chunk in chunks:
        for column in chunk.columns:
            by_name.setdefault(column.name.lower(), [])
    for chunk in chunks:
        columns = {column.name.lower(): column for column in chunk.columns}
        for name, found in by_name.items():
            if columns.get(name) not in found:
                found.append(columns.get(name))
    return by_name


class _EarlierRows(Struct, frozen=True, kw_only=True):
    """The values of one column in the rows up to the position.

    With `only_new`, rows were read as the column is now, or without it.
    """

    session: MysqlSession
    table: SourceTable
    position: Position
    column: ColumnPlan
    zero_dates: ZeroDates
    where: str
    keyed: bool
    before: Column | None
    now: Column
    only_new: bool

    def judge(self, *, only_cut: bool) -> Judgement:
        """Return what becomes of the values."""
        session, table, name = self.session, self.table, self.column.name
        found = Judgement(name=name, before=self.before)
        if only_cut and not may_be_cut(session, table, table.column(name), self.where):
            return found
        try:
            value = common_value(session, table, self.column, self.where)
        except NoRows:
            return found
        except Different:
            if self.only_new and self.keyed and not self._is_key:
                return structs.replace(found, unfilled=True)
            return structs.replace(found, refusal=self._refusal())
        zero = value is not None and self._is_zero_date(value)
        if self._is_key or (zero and self.zero_dates != "null"):
            return structs.replace(found, refusal=self._refusal())
        return structs.replace(found, fills={name: None if zero else value})

    @property
    def _is_key(self) -> bool:
        """Whether the column is part of the key, so rows could not be found by a new value."""
        return self.column.name in self.table.primary_key

    def _is_zero_date(self, value: str) -> bool:
        from floodmark.worker.conversion import is_no_day

        return self.column.zero_dates and is_no_day(value)

    def _refusal(self) -> FloodmarkError:
        table, name, read = self.table.name, self.column.name, f"rows up to {self.position.base}"
        was, becomes = (
            column and (column.source or column.type) for column in (self.before, self.now)
        )
        if self.before is None:
            what = f"its column {name} is new, and {read} were read without it: they hold different"
            what += " values"
        elif was == becomes:
            what = f"its column {name} has changed places with another {becomes} since {read} were"
            what += " read: their names may have been swapped"
        else:
            what = f"its column {name} was {was} when {read} were read, and is now {becomes}: their"
            what += " values may have changed"
        if self._is_key or (self.table.primary_key and not self.keyed):
            return FloodmarkError(f"{table}: {what}", hint=other_keys_hint(table))
        hint = read_again_hint(table, keyed=bool(self.table.primary_key))
        return FloodmarkError(f"{table}: {what}", hint=hint)
