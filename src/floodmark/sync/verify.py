"""Verify one table: compare source and target, window by window.

    lease → loaded and unverified chunks → windows → compare → watermark

Only rows with a cursor value in a synced range are compared. The verified position moves up to the
first window that differs, and never beyond what is loaded; later windows are compared as well, so
that one run finds every difference.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from floodmark.config.models import TableSettings
from floodmark.errors import DifferenceFound, ExitCode, FloodmarkError
from floodmark.model.cursor import Cursor
from floodmark.model.extraction import Edge, Route
from floodmark.model.formatting import counted
from floodmark.model.load import TargetTable
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Chunk, Column
from floodmark.model.position import START, Position
from floodmark.model.table import TableName
from floodmark.model.transitions import differs, verified
from floodmark.model.verification import (
    Comparison,
    DifferenceKind,
    SyncedRange,
    VerificationResult,
    WindowPair,
)
from floodmark.model.watermark import Watermark
from floodmark.mysql.connection import MysqlSession
from floodmark.mysql.predicates import keys_predicate, relation, window_predicate
from floodmark.mysql.window_edges import cursor_edges, key_edges
from floodmark.planning.cursor_change import refuse_another_cursor
from floodmark.planning.verify_ranges import (
    agreed_position,
    can_split_by_key,
    compared_cursor,
    compared_position,
    synced_ranges,
    target_extents,
)
from floodmark.planning.windows import plan_chunks
from floodmark.state.lease import Lease
from floodmark.state.watermark_store import WatermarkStore
from floodmark.sync.extract import Extraction
from floodmark.sync.extraction_job import extraction_job
from floodmark.sync.log_facts import known_of
from floodmark.sync.not_compared import (
    count_not_compared,
    known_not_compared,
    nothing_compared,
    quarantined,
)
from floodmark.sync.plan import TablePlan, read_shape, window_rows
from floodmark.sync.result import TableResult
from floodmark.warehouse.target import Target

if TYPE_CHECKING:
    from floodmark.worker.compare_window import VerificationJob

MOST_SHOWN = 20


class Verification(Struct, frozen=True, kw_only=True):
    """How to compare tables in this run: what is new since the last time, or everything."""

    extraction: Extraction
    open_target: Callable[[], Target]
    target_name: str
    everything: bool = False


def load_again(table: str) -> str:
    """Return a hint on how to load rows that differ."""
    return (
        f"'floodmark watermark set -t {table} --timestamp …' (or --id …) to before the rows, then"
        " sync, loads them again; rows that are in the target only must be removed there by hand"
    )


def verify_after(
    synced: TableResult,
    verification: Verification,
    table: TableName,
    settings: TableSettings,
) -> TableResult:
    """Compare a table after its load; a failure keeps the result so far."""
    try:
        result = verify_table(verification, table, settings)
    except FloodmarkError as error:
        return synced.with_failure(error, "verify")
    if not result.differences:
        return structs.replace(synced, verification=result)
    return structs.replace(
        synced,
        status="differs",
        stage="verify",
        verification=result,
        error=result.summary,
        hint=load_again(str(table)),
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
        chunks = _loaded_chunks(store, table, watermark, since)
        if not chunks:
            return _nothing_loaded(verification, table, settings, watermark, position)
        with extraction.source.session() as session:
            plan, by_meaning, remarks = _plan(verification, session, table, settings, watermark)
            chunks = [chunk for chunk in chunks if _same_cursor(chunk, plan.choice.cursor)]
            ranges = synced_ranges(chunks, position, _loaded_position(store, table, watermark))
            run = _Comparing(
                verification,
                table,
                plan,
                lease,
                since,
                position,
                ranges,
                by_meaning,
                watermark.mysql_state.deleted_at,
            )
            if plan.choice.cursor.kind == "none":
                run.compare_all(session)
            else:
                run.compare_ranges(session)
            left = known_not_compared(watermark)
            if verification.everything:
                left = count_not_compared(session, plan.source, plan.choice, ranges)
            result = run.finish(watermark.loaded_head)
            return structs.replace(
                result,
                remarks=(*remarks, *result.remarks),
                not_compared=(*left, *quarantined(result)),
            )


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
    return (first, START) if everything else (max(first, state.head), state.position)


def _loaded_chunks(
    store: WatermarkStore, table: TableName, watermark: Watermark, since: ManifestId
) -> list[Chunk]:
    return list(store.log.chunks(table, after=since, through=watermark.loaded_head))


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
) -> tuple[TablePlan, tuple[str, ...], tuple[str, ...]]:
    """Plan how to read the source: like an extraction, but only columns that the target has.

    Also return the JSON columns to compare by meaning, and remarks on what is compared.
    """
    known = known_of(verification.extraction.store.log, table, watermark)
    source, choice, columns = read_shape(session, table, settings, known)
    refuse_another_cursor(known.cursor, source, choice.cursor, watermark.position)
    with verification.open_target() as target:
        expected = tuple(Column(c.name, c.type, c.nullable, c.arrow) for c in columns)
        shape = TargetTable(
            name=verification.target_name, columns=expected, primary_key=(), version=None
        )
        held, by_meaning = target.columns_held(shape), target.rewritten_json(shape)
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
    return plan, by_meaning, tuple(remarks)


def _same_cursor(chunk: Chunk, cursor: Cursor) -> bool:
    """Whether a chunk was read by this cursor; older versions recorded only the time column."""
    if chunk.cursor is None:
        return chunk.version == cursor.timestamp
    names = tuple(column.name for column in chunk.cursor)
    return bool(names) and cursor.columns[: len(names)] == names


class _Comparing:
    """Compare one table's windows, and add up the results."""

    def __init__(
        self,
        verification: Verification,
        table: TableName,
        plan: TablePlan,
        lease: Lease,
        since: ManifestId,
        position: Position,
        ranges: list[SyncedRange],
        by_meaning: tuple[str, ...],
        deleted_at: str | None,
    ) -> None:
        self._verification = verification
        self._extraction = verification.extraction
        self._table = table
        self._plan = plan
        self._lease = lease
        self._since = since
        self._position = position
        self._ranges = ranges
        self._by_meaning = by_meaning
        self._deleted_at = deleted_at
        self._began = time.monotonic()
        self._counts: Counter[DifferenceKind] = Counter()
        self._result = VerificationResult(position=position)
        self._job = self._describe()

    def compare_all(self, session: MysqlSession) -> None:
        """Compare a whole table that has no cursor."""
        end = Position(self._extraction.store.now())  # not a real bound, but windows need an end
        edges = self._key_edges(session, START, end) if self._plan.route.by == "key" else ()
        self._compare(START, _to_the_end(edges, end))

    def compare_ranges(self, session: MysqlSession) -> None:
        """Compare the synced ranges."""
        for synced in self._ranges:
            self._compare_range(session, synced)

    def _compare_range(self, session: MysqlSession, synced: SyncedRange) -> None:
        source, cursor = self._plan.source, self._plan.choice.cursor
        start, end = synced.start, synced.end
        if start == self._position:
            start = compared_position(source, cursor, start)
        route = self._plan.route
        edges: Iterable[Edge] = ()
        if route.by == "key":
            edges = self._key_edges(session, start, end)
        elif route.index is not None:
            compared = compared_cursor(source, cursor)
            edges = cursor_edges(
                session,
                source,
                compared,
                compared_position(source, cursor, start),
                end if compared == cursor else Position(end.timestamp),
                index=route.index,
                stride=self._stride,
            )
        self._compare(start, _to_the_end(edges, end))

    def finish(self, loaded: ManifestId) -> VerificationResult:
        """Record how far both sides agree, and return the result."""
        store = self._extraction.store
        now, position, since = store.now(), self._position, self._since
        result = structs.replace(
            self._result,
            position=position,
            differences=dict(self._counts),
            seconds=time.monotonic() - self._began,
        )
        if result.undated:
            rows = counted(result.undated, "row")
            remark = f"{rows} not compared: the cursor is a zero or partial date"
            result = structs.replace(result, remarks=(*result.remarks, remark))
        if result.differences:
            error = result.summary
            store.update(self._table, lambda w: differs(w, position, error, since=since, now=now))
        else:
            store.update(self._table, lambda w: verified(w, position, through=loaded, now=now))
        return result

    def _compare(self, start: Position, edges: Iterable[Edge]) -> None:
        extraction, source = self._extraction, self._plan.source
        cursor = self._plan.choice.cursor
        chunks = plan_chunks(
            start,
            edges,
            windows_per_chunk=extraction.settings.windows_per_chunk,
            most_rows=self._stride,
            predicate=partial(window_predicate, source, cursor),
        )
        for chunk in chunks:
            self._lease.check()
            pairs = [WindowPair(w, target_extents(source, cursor, w)) for w in chunk.windows]
            comparisons = extraction.engine.compare(self._job, pairs)
            agreed_before = not self._counts
            self._add(comparisons)
            reached = agreed_position(chunk.start, chunk.windows, comparisons)
            if agreed_before and cursor.kind != "none" and reached.walk is None:
                self._advance(reached)

    def _advance(self, reached: Position) -> None:
        if reached.compare(self._position) in (-1, 0):
            return  # this position was verified before
        self._position = reached
        if not self._verification.everything:
            store = self._extraction.store
            now = store.now()
            store.update(self._table, lambda w: verified(w, reached, through=None, now=now))

    def _add(self, comparisons: list[Comparison]) -> None:
        result = self._result
        for comparison in comparisons:
            self._counts.update(comparison.differences)
        shown = (*result.shown, *(row for c in comparisons for row in c.shown))
        remarks = [remark for c in comparisons for remark in c.remarks]
        self._result = structs.replace(
            result,
            rows=result.rows + sum(comparison.source.rows for comparison in comparisons),
            windows=result.windows + len(comparisons),
            moved=result.moved + sum(comparison.moved for comparison in comparisons),
            quarantined=result.quarantined + sum(c.quarantined for c in comparisons),
            undated=result.undated + sum(c.undated for c in comparisons),
            shown=shown[:MOST_SHOWN],
            # One remark is enough: all windows are read in the same way.
            remarks=result.remarks or tuple(remarks[:1]),
        )

    def _key_edges(self, session: MysqlSession, start: Position, end: Position) -> Iterator[Edge]:
        source, cursor = self._plan.source, self._plan.choice.cursor
        return key_edges(session, source, cursor, start, end, stride=self._stride)

    @property
    def _stride(self) -> int:
        return window_rows(self._plan.source, self._extraction.settings)

    def _describe(self) -> "VerificationJob":
        from floodmark.worker.compare_window import VerificationJob

        source, columns = self._plan.source, self._plan.columns
        return VerificationJob(
            source=extraction_job(self._extraction, self._plan, self._table, 0),
            table=TargetTable(
                name=self._verification.target_name,
                columns=tuple(Column(c.name, c.type, c.nullable, c.arrow) for c in columns),
                primary_key=source.primary_key,
                version=None,
                deleted_at=self._deleted_at,
            ),
            json_columns=self._by_meaning,
            lookup=relation(source),
            keys=partial(keys_predicate, source),
            open_target=self._verification.open_target,
            synced=tuple(self._ranges),
            most_shown=MOST_SHOWN,
        )


def _to_the_end(edges: Iterable[Edge], end: Position) -> Iterator[Edge]:
    """Extend the last window to `end`: the target may have rows after the source's last one."""
    last = Edge(end, 0, counted=False)
    for edge in edges:
        if last.counted:
            yield last
        last = edge
    yield structs.replace(last, end=end)
