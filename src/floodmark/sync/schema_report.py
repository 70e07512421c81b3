"""Report how the columns of a table differ: source, last reading, and target."""

from collections.abc import Iterable, Sequence

from msgspec import structs

from floodmark.config.models import TableSettings
from floodmark.model.manifest import Chunk, Column, chunks_in
from floodmark.model.position import START
from floodmark.model.schema import SourceTable
from floodmark.model.schema_change import KEY, STOPS, Mismatch, SchemaDifference
from floodmark.model.table import TableName
from floodmark.model.watermark import Watermark
from floodmark.mysql.connection import MysqlSession
from floodmark.planning.joined_types import joined_table
from floodmark.planning.load_batches import pending_manifests
from floodmark.planning.schema_change import ACCEPT_HINT, ColumnChange, column_changes
from floodmark.planning.value_change import value_change
from floodmark.state.watermark_store import WatermarkStore
from floodmark.sync.load import manifests_behind
from floodmark.sync.load_checks import load_again_hint
from floodmark.sync.log_facts import columns_in, known_of, newest_columns
from floodmark.sync.plan import lake_columns, read_shape
from floodmark.warehouse.target import Target

_KEPT = "the target keeps it, and new rows have NULL in it"
_CHECKED = "the sync stops if rows that were read before have other values now"


def schema_differences(
    store: WatermarkStore,
    session: MysqlSession,
    table: TableName,
    table_settings: TableSettings,
    watermark: Watermark | None,
    target: Target | None,
    target_name: str,
) -> list[SchemaDifference]:
    """Return every column that differs, and what the next sync does; read no rows.

    Without a target, only the source and its last reading are compared.
    """
    source, _, planned = read_shape(
        session, table, table_settings, known_of(store.log, table, watermark)
    )
    now = lake_columns(source, planned)
    before = newest_columns(store.log, table)
    stop = table_settings.schema_changes == "stop"
    changed = [_changed(change, stop=stop) for change in column_changes(before, now) if before]
    left_out = _left_out(source, [*now, *before], table_settings) if before else []
    found = {difference.column.lower(): difference for difference in [*changed, *left_out]}
    types = {column.name.lower(): column.type for column in now}
    types[KEY.lower()] = f"({', '.join(source.primary_key)})"
    coming = Chunk(
        start=START,
        end=START,
        files=(),
        strategy="sequential",
        columns=now,
        primary_key=source.primary_key,
    )
    for mismatch in _mismatches(store, table, [coming], watermark, target, target_name):
        name = mismatch.column.lower()
        found[name] = _with_target(found.get(name), mismatch, types.get(name))
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


def _changed(change: ColumnChange, *, stop: bool) -> SchemaDifference:
    if stop:
        will = STOPS
    elif change.now is None:
        will = _KEPT
    elif change.before is None:
        will = f"it is added; {_CHECKED}"
    else:
        same = value_change(change.before, change.now) == "same"
        will = "all values stay the same" if same else _CHECKED
    if change.renamed:
        will += f"; perhaps it was renamed {'from' if change.now else 'to'} {change.renamed}"
    return SchemaDifference(
        column=change.name,
        source=_shown(change.now),
        last_read=_shown(change.before) or "not there",
        will=will,
        stops=stop,
        hint=ACCEPT_HINT if stop else None,
    )


def _shown(column: Column | None) -> str | None:
    return (column.source or column.type) if column else None


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
    return structs.replace(
        known,
        target=mismatch.target,
        will=known.will if known.stops else f"{mismatch.will}; {known.will}",
        stops=known.stops or mismatch.stops,
        hint=known.hint or mismatch.hint,
    )
