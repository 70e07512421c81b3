"""Plan the reconciliation of a table: how to read it, and which of its rows to compare."""

from msgspec import structs

from floodmark.config.models import TableSettings
from floodmark.errors import DifferenceFound, UsageError
from floodmark.model.extraction import Route
from floodmark.model.load import TargetTable
from floodmark.model.manifest import Chunk, Column
from floodmark.model.position import START, Position
from floodmark.model.table import TableName
from floodmark.model.verification import SyncedRange
from floodmark.model.watermark import Watermark
from floodmark.mysql.connection import MysqlSession
from floodmark.planning.verify_ranges import can_split_by_key, synced_ranges
from floodmark.state.watermark_store import WatermarkStore
from floodmark.sync.extraction import Extraction
from floodmark.sync.loading import Loading
from floodmark.sync.log_facts import known_of, loaded_chunks
from floodmark.sync.plan import TablePlan, lake_columns, plan_table


def plan_reading(
    extraction: Extraction,
    session: MysqlSession,
    table: TableName,
    settings: TableSettings,
    watermark: Watermark,
) -> TablePlan:
    """Plan as an extraction does: cursor, columns, and how far the source can be trusted."""
    return plan_table(
        extraction.source,
        session,
        table,
        settings,
        extraction.settings,
        position=watermark.position,
        known=known_of(extraction.store.log, table, watermark),
        default_start=extraction.default_start,
        limit=None,
    )


def comparable(plan: TablePlan, loading: Loading) -> TablePlan:
    """Leave out columns that the target does not have yet: the next sync adds them."""
    table = plan.source.name
    shape = target_table(plan, loading)
    with loading.open_target() as target:
        held = target.columns_held(shape)
    if not held:
        raise DifferenceFound(
            f"the target has no table {shape.name}, but {table} was loaded",
            hint=f"'floodmark watermark reset -t {table} --load-only', then sync, loads it again",
        )
    by_key = plan.choice.index is None and can_split_by_key(plan.source)
    return structs.replace(
        plan,
        columns=tuple(column for column in plan.columns if column.name in held),
        route=Route(
            by="key" if by_key else "cursor",
            index=plan.source.key_index if by_key else plan.choice.index,
            chunked=not by_key,
            why="",
        ),
    )


def target_table(plan: TablePlan, loading: Loading) -> TargetTable:
    """Describe the table in the target."""
    return TargetTable(
        name=loading.target_name,
        columns=lake_columns(plan.source, plan.columns),
        primary_key=plan.source.primary_key,
        version=None,
    )


def refuse_type_of_mark(plan: TablePlan, loading: Loading, name: str) -> None:
    """Raise UsageError if the target has a column of this name that cannot mark deleted rows."""
    mark = Column(name, "datetime(6)", True, "timestamp[us]")
    shape = structs.replace(target_table(plan, loading), columns=(mark,))
    with loading.open_target() as target:
        found = target.compare(shape)
    for mismatch in found:
        held = mismatch.target
        if mismatch.column.lower() == name.lower():
            if mismatch.change == "add" and mismatch.stops:
                raise UsageError(
                    f"{plan.source.name}: deleted rows cannot be marked: the target has no column"
                    f" {name}, and 'schema_changes' is 'freeze'",
                    hint=f"add {name} {mismatch.source} to {shape.name} in the target, or set"
                    " 'schema_changes: follow' for the table",
                )
            if mismatch.change == "add" or held.upper().startswith("TIMESTAMP"):
                continue
            raise UsageError(
                f"{plan.source.name}: deleted rows cannot be marked in {name!r}: it is {held} in"
                " the target",
                hint="drop that column there, or set another 'deleted_at' under 'reconcile:'",
            )


def loaded_ranges(
    store: WatermarkStore, table: TableName, watermark: Watermark, plan: TablePlan
) -> list[SyncedRange]:
    """Return the ranges of positions that are loaded; only their rows are compared."""
    chunks = loaded_chunks(store.log, table, watermark)
    names = plan.choice.cursor.columns
    read = [chunk for chunk in chunks if _same_cursor(chunk, names)]
    if not read:  # after a reset of the load, there is no manifest to read the position from
        return []
    return synced_ranges(read, START, loaded_position(store, table, watermark))


def loaded_position(store: WatermarkStore, table: TableName, watermark: Watermark) -> Position:
    """Return the position up to which rows are loaded."""
    loaded = watermark.loaded_head
    if loaded == watermark.head:
        return watermark.position.base
    return store.log.read(table, loaded).standing.mysql_state.position.base


def _same_cursor(chunk: Chunk, names: tuple[str, ...]) -> bool:
    """Whether a chunk was read by this cursor; older versions recorded only the time column."""
    if chunk.cursor is None:
        return chunk.version in names
    read_by = tuple(column.name for column in chunk.cursor)
    return bool(read_by) and names[: len(read_by)] == read_by
