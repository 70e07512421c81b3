"""Handle columns that earlier rows lack, or whose values a change of type may have changed.

A row that gets a new column is not stamped, so no cursor finds it again. If all rows up to the
position have the same value, the next chunk records it, and the target's rows get it. Otherwise
they must be read again.
"""

from collections.abc import Sequence

from floodmark.errors import FloodmarkError
from floodmark.model.extraction import ColumnPlan, ZeroDates
from floodmark.model.manifest import Chunk, Column
from floodmark.model.notice import Notice, Report
from floodmark.model.position import START
from floodmark.model.table import TableName
from floodmark.model.watermark import Watermark
from floodmark.mysql.common_values import Different, NoRows, common_value, may_be_cut
from floodmark.mysql.connection import MysqlSession
from floodmark.mysql.predicates import cursor_predicate
from floodmark.planning.cursor_change import other_keys_hint
from floodmark.planning.schema_change import ColumnChange, column_changes, read_again_hint
from floodmark.planning.value_change import exchanged, value_change
from floodmark.state.manifest_log import ManifestLog
from floodmark.sync.log_facts import chunks_before
from floodmark.sync.plan import TablePlan, lake_columns
from floodmark.sync.source import Source

Fills = dict[str, str | None]


def find_fills(
    source: Source,
    log: ManifestLog,
    watermark: Watermark,
    plan: TablePlan,
    zero_dates: ZeroDates,
    report: Report,
) -> Fills:
    """Return the values of new columns in rows that were read before.

    Raise FloodmarkError, before anything is read, if these rows must be read again.
    """
    table = plan.source.name
    chunks = chunks_before(log, table, watermark)
    if not chunks:
        return {}
    lake = lake_columns(plan.source, plan.columns)
    now = {column.name.lower(): column for column in lake}
    changes = column_changes(chunks[-1].columns, lake)
    renamed = {change.name.lower(): change.renamed for change in changes if change.renamed}
    for change in changes:
        if change.now is None:
            report(_gone(table, change))
    if watermark.position.is_start or plan.choice.cursor.kind == "none":
        return {}  # no row was read before, or all are read again
    known = _columns_before(chunks)
    # Files of an older system have their own column order.
    moved = {n for c in chunks if not c.adopted for n in exchanged(c.columns, lake)}
    keyed = all(chunk.primary_key for chunk in chunks)
    fills: Fills = {}
    for column in plan.columns:
        name = column.name.lower()
        before = known.get(name, [None])
        if column.hashed:  # rows with clear text are reported already
            before = [one for one in before if one is None or one.source is not None]
        kinds = [value_change(one, now[name]) for one in before]
        if not before:
            continue
        if set(kinds) != {"same"} or name in moved:
            was = next(
                (one for one, kind in zip(before, kinds, strict=True) if kind != "same"), before[-1]
            )
            with source.session() as session:
                rows = _EarlierRows(session, watermark, plan, column, zero_dates, keyed=keyed)
                only_cut = "unknown" not in kinds and name not in moved
                fill = rows.find_fill(was, now[name], only_cut=only_cut, renamed=renamed.get(name))
            if fill and was is None:
                report(_added(table, column.name, fill[column.name], renamed.get(name)))
            fills |= fill
    return fills


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
    message = f"{table}: {name} is new; rows that were read before {rows}"
    if renamed:
        message += f"; perhaps it is {renamed} under a new name, which MySQL does not record"
    return Notice("info", message, "column_added", str(table))


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


class _EarlierRows:
    """The values of one column in the rows up to the position."""

    def __init__(
        self,
        session: MysqlSession,
        watermark: Watermark,
        plan: TablePlan,
        column: ColumnPlan,
        zero_dates: ZeroDates,
        *,
        keyed: bool,
    ) -> None:
        position = watermark.position
        self._session = session
        self._table = plan.source
        self._position = position
        self._column = column
        self._zero_dates = zero_dates
        self._keyed = keyed
        # A key scan has read only some rows up to its bound; the others count as well.
        end = position.walk.bound if position.walk else position
        self._where = cursor_predicate(plan.source, plan.choice.cursor, START, end)

    def find_fill(
        self, before: Column | None, now: Column, *, only_cut: bool, renamed: str | None = None
    ) -> Fills:
        """Return the value that all rows have; nothing if the target has the right values."""
        session, table, where = self._session, self._table, self._where
        name = self._column.name
        if only_cut and not may_be_cut(session, table, table.column(name), where):
            return {}
        try:
            value = common_value(session, table, self._column, where)
        except NoRows:
            return {}
        except Different:
            raise self._refusal(before, now, renamed) from None
        if self._is_key:
            raise self._refusal(before, now)
        if value is None or not self._is_zero_date(value):
            return {name: value}
        if self._zero_dates == "null":
            return {name: None}
        raise self._refusal(before, now)

    @property
    def _is_key(self) -> bool:
        """Whether the column is part of the key, so rows could not be found by a new value."""
        return self._column.name in self._table.primary_key

    def _is_zero_date(self, value: str) -> bool:
        from floodmark.worker.conversion import is_no_day

        return self._column.zero_dates and is_no_day(value)

    def _refusal(
        self, before: Column | None, now: Column, renamed: str | None = None
    ) -> FloodmarkError:
        table, name, read = self._table.name, self._column.name, f"rows up to {self._position.base}"
        was, becomes = (column and (column.source or column.type) for column in (before, now))
        if before is None:
            what = f"its column {name} is new, and {read} were read without it: they hold different"
            what += " values"
            if renamed:
                what += f"; perhaps it is {renamed} under a new name, which MySQL does not record"
        elif was == becomes:
            what = f"its column {name} has changed places with another {becomes} since {read} were"
            what += " read: their names may have been swapped"
        else:
            what = f"its column {name} was {was} when {read} were read, and is now {becomes}: their"
            what += " values may have changed"
        if self._is_key or (self._table.primary_key and not self._keyed):
            return FloodmarkError(f"{table}: {what}", hint=other_keys_hint(table))
        hint = read_again_hint(table, keyed=bool(self._table.primary_key))
        return FloodmarkError(f"{table}: {what}", hint=hint)
