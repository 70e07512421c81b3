"""Compare the synced ranges of one table, and record how far both sides agree."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial

from msgspec import Struct, structs

from floodmark.model.extraction import Edge
from floodmark.model.formatting import counted
from floodmark.model.log_state import ManifestId
from floodmark.model.position import START, Position
from floodmark.model.table import TableName
from floodmark.model.verification import (
    Comparison,
    DifferenceKind,
    DifferingKey,
    SyncedRange,
    VerificationResult,
    WindowPair,
)
from floodmark.model.verification_transitions import differs, verified
from floodmark.mysql.connection import MysqlSession
from floodmark.mysql.predicates import window_predicate
from floodmark.mysql.window_edges import cursor_edges, key_edges, read_numbers
from floodmark.planning.verify_ranges import (
    agreed_position,
    compared_cursor,
    compared_position,
    target_extents,
)
from floodmark.planning.windows import is_dense, plan_chunks
from floodmark.state.lease import Lease
from floodmark.sync.compare_windows import MOST_SHOWN, WindowComparison
from floodmark.sync.extraction import Extraction
from floodmark.sync.plan import TablePlan
from floodmark.sync.plan_windows import even_key_edges, window_rows


class Scope(Struct, frozen=True, kw_only=True):
    """What to compare: the synced ranges of a table after `since`, beginning at `position`.

    With `everything`, the verified position is recorded only at the end.
    """

    table: TableName
    since: ManifestId
    position: Position
    ranges: list[SyncedRange]
    everything: bool


class RangeComparison:
    """Compare one table's windows, and add up the results."""

    def __init__(
        self,
        extraction: Extraction,
        plan: TablePlan,
        lease: Lease,
        scope: Scope,
        windows: WindowComparison,
    ) -> None:
        self._extraction = extraction
        self._plan = plan
        self._lease = lease
        self._scope = scope
        self._windows = windows
        self._position = scope.position
        self._began = time.monotonic()
        self._counts: Counter[DifferenceKind] = Counter()
        self._keys: list[DifferingKey] = []
        self._result = VerificationResult(position=scope.position)

    def run(self, session: MysqlSession) -> None:
        """Compare the synced ranges; a table without a cursor as a whole."""
        if self._plan.choice.cursor.kind == "none":
            self._compare_all(session)
            return
        for synced in self._scope.ranges:
            self._compare_range(session, synced)

    def _compare_all(self, session: MysqlSession) -> None:
        """Compare a whole table that has no cursor."""
        end = Position(self._extraction.store.now())  # not a real bound, but windows need an end
        edges = self._key_edges(session, START, end) if self._plan.route.by == "key" else ()
        self._compare(START, _to_the_end(edges, end))

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
        now, position, since = store.now(), self._position, self._scope.since
        result = structs.replace(
            self._result,
            position=position,
            differences=dict(self._counts),
            keys=tuple(self._keys),
            read_columns=self._windows.read_columns,
            seconds=time.monotonic() - self._began,
        )
        if result.undated:
            rows = counted(result.undated, "row")
            remark = f"{rows} not compared: the cursor is a zero or partial date"
            result = structs.replace(result, remarks=(*result.remarks, remark))
        if result.differences:
            error = result.summary
            store.update(
                self._scope.table, lambda w: differs(w, position, error, since=since, now=now)
            )
        else:
            store.update(
                self._scope.table, lambda w: verified(w, position, through=loaded, now=now)
            )
        return result

    def _compare(self, start: Position, edges: Iterable[Edge]) -> None:
        extraction, source = self._extraction, self._plan.source
        cursor = self._plan.choice.cursor
        chunks = plan_chunks(
            start,
            edges,
            windows_per_chunk=iter(lambda: extraction.windows_per_chunk, 0),
            most_rows=self._stride,
            predicate=partial(window_predicate, source, cursor),
        )
        for chunk in chunks:
            self._lease.check()
            pairs = [WindowPair(w, target_extents(source, cursor, w)) for w in chunk.windows]
            comparisons = self._windows.compare(pairs)
            agreed_before = not self._counts
            self._add(comparisons)
            reached = agreed_position(chunk.start, chunk.windows, comparisons)
            if agreed_before and cursor.kind != "none" and reached.walk is None:
                self._advance(reached)

    def _advance(self, reached: Position) -> None:
        if reached.compare(self._position) in (-1, 0):
            return  # this position was verified before
        self._position = reached
        if not self._scope.everything:
            store = self._extraction.store
            now = store.now()
            store.update(self._scope.table, lambda w: verified(w, reached, through=None, now=now))

    def _add(self, comparisons: list[Comparison]) -> None:
        result = self._result
        for comparison in comparisons:
            self._counts.update(comparison.differences)
            self._keys += comparison.keys
        shown = (*result.shown, *(row for c in comparisons for row in c.shown))
        remarks = [remark for c in comparisons for remark in c.remarks]
        self._result = structs.replace(
            result,
            rows=result.rows + sum(comparison.source.rows for comparison in comparisons),
            windows=result.windows + len(comparisons),
            checksum_windows=result.checksum_windows + sum(c.by_checksum for c in comparisons),
            moved=result.moved + sum(comparison.moved for comparison in comparisons),
            quarantined=result.quarantined + sum(c.quarantined for c in comparisons),
            undated=result.undated + sum(c.undated for c in comparisons),
            shown=shown[:MOST_SHOWN],
            # One remark of a kind is enough: all windows are read in the same way.
            remarks=tuple(dict.fromkeys((*result.remarks, *remarks))),
        )

    def _key_edges(self, session: MysqlSession, start: Position, end: Position) -> Iterator[Edge]:
        """Divide a scan along the key: evenly, or by counting rows if the key has gaps."""
        source, cursor = self._plan.source, self._plan.choice.cursor
        numbers, rows = read_numbers(session, source), source.estimated_rows
        if numbers is None or not is_dense(numbers, rows):
            return key_edges(session, source, cursor, start, end, stride=self._stride)
        return even_key_edges(start, end, numbers, rows, self._stride)

    @property
    def _stride(self) -> int:
        return window_rows(self._plan.source, self._extraction.settings)


def _to_the_end(edges: Iterable[Edge], end: Position) -> Iterator[Edge]:
    """Extend the last window to `end`: the target may have rows after the source's last one."""
    last: Edge | None = None
    for edge in edges:
        if last is not None:
            yield last
        last = edge
    yield structs.replace(last, end=end) if last else Edge(end, 0, counted=False)
