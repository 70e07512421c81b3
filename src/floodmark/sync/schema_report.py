"""Report how the columns of a table differ: source, last reading, and target."""

from collections.abc import Iterable, Sequence
from contextlib import nullcontext

from msgspec import structs

from floodmark.config.models import TableSettings
from floodmark.model.extraction import ZeroDates
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Chunk, Column, chunks_in
from floodmark.model.position import START
from floodmark.model.schema import SourceTable
from floodmark.model.schema_change import KEY, RELATION, STOPS, Mismatch, SchemaDifference
from floodmark.model.table import TableName
from floodmark.model.watermark import Watermark
from floodmark.mysql.connection import MysqlSession
from floodmark.planning.joined_types import joined_table
from floodmark.planning.key_change import key_change
from floodmark.planning.load_batches import pending_manifests
from floodmark.planning.schema_change import ACCEPT_HINT, ColumnChange, before_loads, column_changes
from floodmark.state.manifest_log import ManifestLog
from floodmark.state.watermark_store import WatermarkStore
from floodmark.sync.load_checks import load_again_hint, read_into_new_hint
from floodmark.sync.log_facts import chunks_before, columns_in, known_of, newest_columns
from floodmark.sync.new_columns import Judgement, judge_columns
from floodmark.sync.pending_loads import manifests_behind
from floodmark.sync.plan import lake_columns, read_shape
from floodmark.warehouse.target import Target

_KEPT = "the target keeps it, and new rows have NULL in it"
_ADDED = "the column is added"
_EARLIER = "rows that were read before"


def schema_differences(
    store: WatermarkStore,
    session: MysqlSession,
    table: TableName,
    table_settings: TableSettings,
    watermark: Watermark | None,
    target: Target | None,
    target_name: str,
    zero_dates: ZeroDates,
) -> list[SchemaDifference]:
    """Return every column that differs, and what the next sync does, as its rows are now.

    Without a target, only the source and its last reading are compared.
    """
    source, choice, planned = read_shape(
        session, table, table_settings, known_of(store.log, table, watermark)
    )
    now = lake_columns(source, planned)
    before = newest_columns(store.log, table)
    stop = table_settings.schema_changes == "stop"
    judged: dict[str, Judgement] = {}
    chunks: list[Chunk] = []
    if watermark is not None:
        chunks = chunks_before(store.log, table, watermark)
        judgements = judge_columns(
            lambda: nullcontext(session),
            source,
            choice.cursor,
            planned if chunks else (),
            chunks,
            watermark.position,
            zero_dates,
        )
        judged = {one.name: one for one in judgements}
    changes = column_changes(before, now) if before else []
    changed = [_changed(change, judged.pop(change.name, None), stop=stop) for change in changes]
    changed += [_swapped(one, now) for one in judged.values() if one.refusal]
    coming = Chunk(
        start=START,
        end=START,
        files=(),
        strategy="sequential",
        columns=now,
        primary_key=source.primary_key,
        reload=choice.cursor.kind == "none",
    )
    hint = read_into_new_hint(table, target_name)
    changed += _other_key(store.log, table, watermark, coming, hint)
    left_out = _left_out(source, [*now, *before], table_settings) if before else []
    found = {difference.column.lower(): difference for difference in [*changed, *left_out]}
    types = {column.name.lower(): column.type for column in now}
    types |= {KEY.lower(): _key(source.primary_key), RELATION.lower(): "a table"}
    for mismatch in _mismatches(store, table, [coming], watermark, target, target_name):
        name = mismatch.column.lower()
        unread = before_loads(mismatch) if watermark is None else mismatch
        found[name] = _with_target(found.get(name), unread, types.get(name))
    return _with_hints(found.values(), table, target_name)


def load_differences(
    store: WatermarkStore,
    table: TableName,
    watermark: Watermark | None,
    target: Target | None,
    target_name: str,
) -> list[SchemaDifference]:
    """Return the columns of manifests that are not loaded yet and do not fit the target."""
    found = _mismatches(store, table, (), watermark, target, target_name)
    differences = [_with_target(None, mismatch, mismatch.source) for mismatch in found]
    return _with_hints(differences, table, target_name)


def _with_hints(
    found: Iterable[SchemaDifference], table: TableName, target_name: str
) -> list[SchemaDifference]:
    hint = load_again_hint(table, target_name)
    return [structs.replace(d, hint=hint) if d.stops and not d.hint else d for d in found]


def _mismatches(
    store: WatermarkStore,
    table: TableName,
    coming: Sequence[Chunk],
    watermark: Watermark | None,
    target: Target | None,
    target_name: str,
) -> list[Mismatch]:
    """Compare the target with the columns of all rows that are still to be loaded."""
    behind = manifests_behind(store, table, watermark) if watermark else []
    chunks = [*chunks_in(pending_manifests(behind, {})), *coming]
    if target is None or not chunks:
        return []
    expected = joined_table(target_name, chunks)
    return target.compare(expected, lambda: columns_in(store.log, table))


def _changed(change: ColumnChange, judged: Judgement | None, *, stop: bool) -> SchemaDifference:
    refusal = judged.refusal if judged else None
    hint = refusal.hint if refusal else None
    if stop:
        will = STOPS
    elif change.now is None:
        will = _KEPT
    elif refusal:
        will = f"{STOPS}, as {_EARLIER} have other values now"
    elif change.before is None:
        will = f"{_ADDED}; {_filled(judged)}" if judged else _ADDED
    elif judged and judged.fills:
        will = f"{_EARLIER} get the value that all of them have now"
    else:
        will = "all values stay the same"
    if change.renamed:
        will += f"; perhaps it was renamed {'from' if change.now else 'to'} {change.renamed}"
    return SchemaDifference(
        column=change.name,
        source=_shown(change.now, change.before),
        last_read=_shown(change.before, change.now) or "not there",
        will=will,
        stops=stop or refusal is not None,
        hint=ACCEPT_HINT if stop else hint,
    )


def _filled(judged: Judgement) -> str:
    """Describe what rows that were read before have in a new column."""
    if judged.unfilled:
        return f"{_EARLIER} have NULL in it until a backfill, whose command the sync reports"
    if not judged.fills:
        return f"there are no {_EARLIER}"
    is_null = judged.fills[judged.name] is None
    return f"{_EARLIER} {'have NULL in it, as in the source' if is_null else 'get its value'}"


def _swapped(judged: Judgement, now: Sequence[Column]) -> SchemaDifference:
    """Return a column of which only the values may have changed."""
    assert judged.refusal is not None
    kind = next(_shown(column) for column in now if column.name == judged.name)
    return SchemaDifference(
        column=judged.name,
        source=kind,
        last_read=kind,
        will=f"{STOPS}, as its name may have been swapped with another one",
        stops=True,
        hint=judged.refusal.hint,
    )


def _other_key(
    log: ManifestLog, table: TableName, watermark: Watermark | None, coming: Chunk, hint: str
) -> list[SchemaDifference]:
    """Return the key if rows that count were read under another one, which their load refuses.

    They count even if all are read again: those in the target would not be found under the new key.
    """
    if watermark is None or coming.reload:
        return []
    since = ManifestId(watermark.redshift_state.eligible_from_epoch, 0)
    key = coming.primary_key
    for last in log.manifests(table, since=since, newest_first=True):
        if not isinstance(last.change, Chunk) or last.change.only_columns:
            continue
        chunk = structs.replace(last.change, columns=coming.columns, primary_key=key)
        new = structs.replace(last, epoch=watermark.epoch, sequence=last.sequence + 1, change=chunk)
        change = key_change([last, new])
        same = {name.lower() for name in last.change.primary_key} == {n.lower() for n in key}
        if change is None or (same and last.epoch == new.epoch):
            return []  # of a column whose type changed since the last reading, more is reported
        was, now = change
        return [
            SchemaDifference(
                column=KEY, source=now, last_read=was, will=STOPS, stops=True, hint=hint
            )
        ]
    return []


def _key(columns: Sequence[str]) -> str:
    return f"({', '.join(columns)})" if columns else "nothing"


def _shown(column: Column | None, other: Column | None = None) -> str | None:
    """Return a column's type, with NOT NULL if that is what differs from the other one."""
    if column is None:
        return None
    kind = column.source or column.type
    same = other is not None and kind == (other.source or other.type)
    return f"{kind} NOT NULL" if same and not column.nullable else kind


def _left_out(
    source: SourceTable, known: Sequence[Column], table_settings: TableSettings
) -> list[SchemaDifference]:
    """Return new columns that are not read, because the table's columns are frozen."""
    names = {column.name.lower() for column in known}
    names |= {name.lower() for name in table_settings.exclude}
    return [
        SchemaDifference(
            column=column.name,
            source=column.column_type,
            last_read="not there",
            will="it is left out, as 'schema_changes' is 'freeze'",
        )
        for column in source.columns
        if column.name.lower() not in names
    ]


def _with_target(
    known: SchemaDifference | None, mismatch: Mismatch, source: str | None
) -> SchemaDifference:
    """Add the target's side to what is known of a column."""
    if known is None:
        return SchemaDifference(
            column=mismatch.column,
            source=source,
            target=mismatch.target,
            will=mismatch.will,
            stops=mismatch.stops,
            hint=mismatch.hint,
        )
    will = f"{mismatch.will}; {known.will}"
    if known.stops or known.will.startswith(mismatch.will):
        will = known.will
    elif mismatch.stops:
        will = mismatch.will
    return structs.replace(
        known,
        target=mismatch.target,
        will=will,
        stops=known.stops or mismatch.stops,
        hint=known.hint or mismatch.hint,
    )
