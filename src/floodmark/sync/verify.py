"""Verify one table: compare source and target, window by window.

    lease → loaded and unverified chunks → windows → compare → watermark

Only rows with a cursor value in a synced range are compared. The verified position moves up to the
first window that differs, and never beyond what is loaded; later windows are compared as well, so
that one run finds every difference.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from msgspec import Struct, structs

from floodmark.config.models import TableSettings
from floodmark.errors import DifferenceFound, ExitCode, FloodmarkError
from floodmark.model.cursor import Cursor
from floodmark.model.extraction import Route
from floodmark.model.load import TargetTable
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Chunk, Column
from floodmark.model.position import START, Position
from floodmark.model.schema import PRIMARY
from floodmark.model.table import TableName
from floodmark.model.unfilled_columns import backfill_hint, describe_unfilled
from floodmark.model.verification import SyncedRange, VerificationResult
from floodmark.model.watermark import Watermark
from floodmark.mysql.connection import MysqlSession
from floodmark.mysql.row_estimates import estimate_rows
from floodmark.mysql.window_edges import read_numbers
from floodmark.planning.access_path import MOST_OF_A_TABLE
from floodmark.planning.cursor_change import refuse_another_cursor
from floodmark.planning.row_checksums import ComparedColumns, checked_columns, compared_columns
from floodmark.planning.verify_ranges import can_split_by_key, synced_ranges
from floodmark.planning.windows import is_dense
from floodmark.state.watermark_store import WatermarkStore
from floodmark.sync.compare_ranges import RangeComparison, Scope
from floodmark.sync.compare_windows import WindowComparison
from floodmark.sync.extraction import Extraction
from floodmark.sync.log_facts import known_of, loaded_chunks
from floodmark.sync.not_compared import (
    count_not_compared,
    known_not_compared,
    nothing_compared,
    outside,
    quarantined,
)
from floodmark.sync.plan import TablePlan, read_shape
from floodmark.sync.result import TableResult, attach
from floodmark.warehouse.target import Target

LARGE_TABLE_ROWS = 100_000
"""From so many rows on, the order of the clustered key is worth it."""


class Verification(Struct, frozen=True, kw_only=True):
    """How to compare tables in this run: what is new since the last time, or everything.

    Without `by_checksum`, every row is read.
    """

    extraction: Extraction
    open_target: Callable[[], Target]
    target_name: str
    everything: bool = False
    by_checksum: bool = True


def load_again(table: str, *, everything: bool = True, keyed: bool = True) -> str:
    """Return a hint on how to load rows that differ."""
    if not keyed:
        return (
            f"empty its table in the target, then 'floodmark watermark reset -t {table} --force'"
            " and sync load all rows again"
        )
    option = "--verify-data=all" if everything else "--verify-data"
    return (
        f"'floodmark sync -t {table} {option} --repair' loads them again; it removes rows that only"
        " the target has if the table has 'reconcile: {deletes: hard}' or soft"
    )


def verify_after(
    synced: TableResult,
    verification: Verification,
    table: TableName,
    settings: TableSettings,
) -> TableResult:
    """Compare a table after its load; a failure keeps the result so far."""
    synced = synced.beginning("verify", verification.extraction.store.now())
    try:
        result = verify_table(verification, table, settings)
    except FloodmarkError as error:
        return synced.with_failure(error, "verify")
    except Exception as error:
        attach(error, synced)
        raise
    if not result.differences:
        return structs.replace(synced, verification=result)
    again = load_again(str(table), everything=verification.everything, keyed=bool(result.keys))
    watermark = verification.extraction.store.known(table)
    fill = backfill_hint(table, watermark.mysql_state.unfilled) if watermark else None
    return structs.replace(
        synced,
        status="differs",
        stage="verify",
        verification=result,
        error=result.summary,
        hint=f"{fill}; if rows differ after that, {again}" if fill else again,
        exit_code=ExitCode.DIFFERENCE,
    )


def verify_table(
    verification: Verification, table: TableName, settings: TableSettings
) -> VerificationResult:
    """Compare all rows of a table that are loaded and not verified yet."""
    extraction = verification.extraction
    store = extraction.store
    with store.lease(table, "verify") as lease:
        watermark = store.get(table)
        if watermark is None:
            return _nothing_loaded(verification, table, settings, watermark, START)
        since, position = _verified_so_far(watermark, everything=verification.everything)
        chunks = loaded_chunks(store.log, table, watermark, since)
        if not chunks:
            return _nothing_loaded(verification, table, settings, watermark, position)
        with extraction.source.session() as session:
            plan, compared, remarks = _plan(verification, session, table, settings, watermark)
            chunks = [chunk for chunk in chunks if _same_cursor(chunk, plan.choice.cursor)]
            loaded = _loaded_position(store, table, watermark)
            ranges = synced_ranges(chunks, position, loaded)
            if verification.everything:
                plan = _along_the_key(session, plan, ranges)
            windows = WindowComparison(
                extraction,
                plan,
                verification.target_name,
                verification.open_target,
                compared,
                ranges,
                loaded,
                watermark.mysql_state.deleted_at,
            )
            scope = Scope(
                table=table,
                since=since,
                position=position,
                ranges=ranges,
                everything=verification.everything,
            )
            run = RangeComparison(extraction, plan, lease, scope, windows)
            counts = verification.everything and bool(ranges)
            with ThreadPoolExecutor(1) as pool:
                # The target counts while the source is divided into windows.
                held = pool.submit(windows.count_rows) if counts else None
                run.run(session)
            left = known_not_compared(watermark)
            if verification.everything:
                left = count_not_compared(session, plan.source, plan.choice, ranges)
            result = run.finish(watermark.loaded_head)
            if held:
                left = (*left, *outside(_rows_outside(windows, result, held.result())))
            return structs.replace(
                result,
                remarks=(*remarks, *result.remarks, *_unfilled(watermark)),
                not_compared=(*left, *quarantined(result)),
            )


def _rows_outside(windows: WindowComparison, result: VerificationResult, held: int) -> int:
    """Count the rows that the target holds in no window; not again if all were compared."""
    all_equal = result.checksum_windows == result.windows
    if all_equal and windows.are_disjoint and result.rows == held:
        return 0
    return windows.count_outside() - result.undated


def _unfilled(watermark: Watermark) -> tuple[str, ...]:
    left = watermark.mysql_state.unfilled
    how = backfill_hint(watermark.table_name, left)
    return (f"{describe_unfilled(left)}; {how}",) if how else ()


def _nothing_loaded(
    verification: Verification,
    table: TableName,
    settings: TableSettings,
    watermark: Watermark | None,
    position: Position,
) -> VerificationResult:
    left = known_not_compared(watermark)
    if verification.everything:
        extraction = verification.extraction
        known = known_of(extraction.store.log, table, watermark)
        left = nothing_compared(extraction.source, table, settings, known)
    return VerificationResult(position=position, not_compared=left)


def _verified_so_far(watermark: Watermark, *, everything: bool) -> tuple[ManifestId, Position]:
    first = ManifestId(watermark.redshift_state.eligible_from_epoch, 0)
    state = watermark.verified_state
    # As long as earlier rows lack values of a column, they differ, whatever was verified.
    everything = everything or bool(watermark.mysql_state.unfilled)
    return (first, START) if everything else (max(first, state.head), state.position)


def _loaded_position(store: WatermarkStore, table: TableName, watermark: Watermark) -> Position:
    loaded = watermark.loaded_head
    if loaded == watermark.head:
        return watermark.position.base
    return store.log.read(table, loaded).standing.mysql_state.position.base


def _plan(
    verification: Verification,
    session: MysqlSession,
    table: TableName,
    settings: TableSettings,
    watermark: Watermark,
) -> tuple[TablePlan, ComparedColumns, tuple[str, ...]]:
    """Plan how to read the source: like an extraction, but only columns that the target has.

    Also return how columns are compared, and remarks on what is compared.
    """
    known = known_of(verification.extraction.store.log, table, watermark)
    source, choice, columns = read_shape(session, table, settings, known)
    refuse_another_cursor(known.cursor, source, choice.cursor, watermark.position)
    expected = tuple(Column(c.name, c.type, c.nullable, c.arrow) for c in columns)
    with verification.open_target() as target:
        shape = TargetTable(
            name=verification.target_name, columns=expected, primary_key=(), version=None
        )
        held, by_meaning = target.columns_held(shape), target.rewritten_json(shape)
        shape = structs.replace(shape, columns=tuple(c for c in expected if c.name in held))
        checked = None
        if verification.by_checksum:
            checked = checked_columns(shape.columns, any_length=target.hashes_any_length)
        checkable = target.checkable(shape, checked) if checked else ()
    if not held:
        raise DifferenceFound(
            f"the target has no table {verification.target_name}, but {table} was loaded",
            hint=f"'floodmark watermark reset -t {table} --load-only', then sync, loads it again",
        )
    by_key = choice.index is None and can_split_by_key(source)
    plan = TablePlan(
        source=source,
        choice=choice,
        columns=tuple(column for column in columns if column.name in held),
        route=Route(
            by="key" if by_key else "cursor",
            index=source.key_index if by_key else choice.index,
            chunked=not by_key,
            why="",
        ),
        start=START,
        bound=None,
        expected_rows=source.estimated_rows,
        warnings=(),
    )
    left_out = [column.name for column in columns if column.name not in held]
    remarks = []
    if left_out:
        remarks.append(f"not in the target yet, and not compared: {', '.join(left_out)}")
    if by_meaning:
        remarks.append(
            f"JSON is compared by meaning, not by text, as the target rewrites it:"
            f" {', '.join(by_meaning)}"
        )
    compared = compared_columns(shape.columns, source.primary_key, checked or (), checkable)
    return plan, structs.replace(compared, by_meaning=by_meaning), tuple(remarks)


def _along_the_key(session: MysqlSession, plan: TablePlan, ranges: list[SyncedRange]) -> TablePlan:
    """Scan a large table by its clustered key if most of it is compared, and the key has few gaps.

    The rows are in that order, in the target as well, and no index is read to divide them. But if
    some differ, it is not known up to which position both sides agree.
    """
    source, index = plan.source, plan.route.index
    if plan.route.by == "key" or index is None or len(ranges) != 1:
        return plan
    if source.key_index != PRIMARY or source.estimated_rows < LARGE_TABLE_ROWS:
        return plan
    numbers = read_numbers(session, source) if can_split_by_key(source) else None
    if numbers is None or not is_dense(numbers, source.estimated_rows):
        return plan
    start, end = ranges[0].start, ranges[0].end
    rows = estimate_rows(session, source, plan.choice.cursor, start, end, index=index)
    if rows < MOST_OF_A_TABLE * source.estimated_rows:
        return plan
    route = Route(by="key", index=PRIMARY, chunked=False, why="")
    return structs.replace(plan, route=route)


def _same_cursor(chunk: Chunk, cursor: Cursor) -> bool:
    """Whether a chunk was read by this cursor; older versions recorded only the time column."""
    if chunk.cursor is None:
        return chunk.version == cursor.timestamp
    names = tuple(column.name for column in chunk.cursor)
    return bool(names) and cursor.columns[: len(names)] == names
