"""Columns that rows read before lack, or whose values a change of type may have changed.

A row that gets a new column is not stamped, so no cursor leads back to it. Where all rows up to the
position hold one value, that value is noted with the next chunk, and the target's rows get it.
Otherwise they must be read again.
"""

from floodmark.errors import FloodmarkError
from floodmark.model.extraction import ColumnPlan, ZeroDates
from floodmark.model.manifest import Chunk, Column, Reset
from floodmark.model.notice import Notice, Report
from floodmark.model.position import START
from floodmark.model.standing import Head
from floodmark.model.table import TableName
from floodmark.model.watermark import Watermark
from floodmark.planning.column_types import gone_columns
from floodmark.planning.value_change import value_change
from floodmark.sources.common_values import Different, NoRows, common_value, may_be_cut
from floodmark.sources.connection import MysqlSession
from floodmark.sources.statements import cursor_predicate
from floodmark.state.log import ManifestLog
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
    """The values of new columns in rows that were read before.

    FloodmarkError, before anything is read, if these rows must be read again.
    """
    if watermark.position.is_start or plan.choice.cursor.kind == "none":
        return {}
    table = plan.source.name
    known, latest = _columns_before(log, table, watermark)
    now = {column.name.lower(): column for column in lake_columns(plan.source, plan.columns)}
    for name in gone_columns(now.values(), latest):
        report(
            Notice(
                "info",
                f"{table}: {name} is no longer in the source; the target keeps the column, and rows"
                " that come from now on have NULL there",
            )
        )
    fills: Fills = {}
    if not latest:
        return fills
    for column in plan.columns:
        before = known.get(column.name.lower(), [None])
        changes = {value_change(one, now[column.name.lower()]) for one in before}
        if column.hashed and None not in before:
            continue  # rows that have it in clear are reported already
        if changes != {"same"}:
            with source.session() as session:
                fills |= _Question(session, watermark, plan, column, zero_dates).answer(
                    before[-1], only_cut="unknown" not in changes
                )
    return fills


def _columns_before(
    log: ManifestLog, table: TableName, watermark: Watermark
) -> tuple[dict[str, list[Column | None]], tuple[Column, ...]]:
    """How each column was read by the chunks that rows up to the position may be from.

    That is the last chunk, as it answers for those before it. Where an operator moved the position,
    any chunk may have read them; what only some of them had is None.
    """
    chunks = _chunks_before(log, table, watermark)
    by_name: dict[str, list[Column | None]] = {}
    for chunk in chunks:
        for column in chunk.columns:
            by_name.setdefault(column.name.lower(), [])
    for chunk in chunks:
        columns = {column.name.lower(): column for column in chunk.columns}
        for name, found in by_name.items():
            if columns.get(name) not in found:
                found.append(columns.get(name))
    return by_name, chunks[-1].columns if chunks else ()


def _chunks_before(log: ManifestLog, table: TableName, watermark: Watermark) -> list[Chunk]:
    state = watermark.mysql_state
    if state.last_manifest is None:
        return []
    change = log.read(table, Head.parse(state.last_manifest)).change
    if isinstance(change, Chunk):
        return [change]
    first = Head(state.counted_from_epoch, 0)
    changes = [log.read(table, head).change for head in log.heads(table, since=first)]
    chunks = [change for change in changes if isinstance(change, Chunk) and change.columns]
    moved = [c for c in changes if not isinstance(c, Chunk | Reset)]
    return chunks if moved else chunks[-1:]


class _Question:
    """What rows up to the position hold in one column."""

    def __init__(
        self,
        session: MysqlSession,
        watermark: Watermark,
        plan: TablePlan,
        column: ColumnPlan,
        zero_dates: ZeroDates,
    ) -> None:
        position = watermark.position
        self._session = session
        self._table = plan.source
        self._position = position
        self._column = column
        self._zero_dates = zero_dates
        # A walk has read some of the rows up to its bound; the others hold the same by now.
        end = position.walk.bound if position.walk else position
        self._where = cursor_predicate(plan.source, plan.choice.cursor, START, end)

    def answer(self, before: Column | None, *, only_cut: bool) -> Fills:
        """The value that all rows hold; nothing if what the target has is right."""
        session, table, where = self._session, self._table, self._where
        name = self._column.name
        if only_cut and not may_be_cut(session, table, table.column(name), where):
            return {}
        try:
            value = common_value(session, table, self._column, where)
        except NoRows:
            return {}
        except Different:
            raise self._refusal(before) from None
        if value is None or not self._is_zero_date(value):
            return {name: value}
        if self._zero_dates == "null":
            return {name: None}
        raise self._refusal(before)

    def _is_zero_date(self, value: str) -> bool:
        from floodmark.engine.arrow import is_no_day

        return self._column.zero_dates and is_no_day(value)

    def _refusal(self, before: Column | None) -> FloodmarkError:
        table, name = self._table.name, self._column.name
        if before is None:
            what = f"its column {name} is new, and rows up to {self._position.base} were read"
            what += " without it: they hold different values"
        else:
            now = self._column.type
            what = f"its column {name} was {before.type} when rows up to {self._position.base} were"
            what += f" read, and is {now}: their values may be others by now"
        stage = " --extract-only" if self._table.primary_key else ""
        return FloodmarkError(
            f"{table}: {what}",
            hint=f"'floodmark watermark reset -t {table}{stage} --force', then sync, reads them"
            " again",
        )
