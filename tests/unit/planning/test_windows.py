"""Windows tile their range for any data; a database evaluates their predicates."""

import sqlite3
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise, repeat
from math import ceil

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from floodmark.errors import IllegalTransition
from floodmark.model.cursor import Cursor
from floodmark.model.extraction import Edge
from floodmark.model.position import START, KeyScan, Position
from floodmark.model.schema import SourceColumn, SourceTable
from floodmark.model.table import TableName
from floodmark.mysql.predicates import window_predicate
from floodmark.planning.windows import (
    check_tiling,
    even_edges,
    even_rows,
    is_dense,
    merged_edges,
    plan_chunks,
    scanned_rows,
)

NOON = datetime(2025, 8, 4, 12, tzinfo=UTC)
BOUND = Position(NOON)
CURSOR = Cursor(kind="timestamp", timestamp="update_at", key=("shop", "id"))
TABLE = SourceTable(
    name=TableName("S", "a", "b"),
    columns=tuple(
        SourceColumn(name=name, data_type=kind, column_type=kind, nullable=False)
        for name, kind in (("update_at", "datetime"), ("shop", "int"), ("id", "int"))
    ),
    primary_key=("shop", "id"),
    indexes=(),
)

Row = tuple[int, int, int]  # second, shop, id
# Few different values: most rows tie in time, and many in the first part of the key.
rows = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 30)),
    unique_by=lambda row: row[1:],
    max_size=40,
).map(sorted)
sizes = st.integers(1, 7)


def at(row: Row) -> Position:
    return Position(NOON + timedelta(seconds=row[0]), row[1:])


def predicate(start: Position, end: Position) -> str:
    return window_predicate(TABLE, CURSOR, start, end)


def selected(data: list[Row], condition: str) -> list[Row]:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE t (update_at TEXT, shop INT, id INT, second INT)")
    database.executemany(
        "INSERT INTO t VALUES (?, ?, ?, ?)",
        [((NOON + timedelta(seconds=s)).strftime("%F %T"), shop, i, s) for s, shop, i in data],
    )
    found = database.execute(f"SELECT second, shop, id FROM t WHERE {condition}").fetchall()
    database.close()
    return found


@given(data=rows, rows_per_window=sizes, windows_per_chunk=sizes)
def test_every_row_is_in_exactly_one_window(
    data: list[Row], rows_per_window: int, windows_per_chunk: int
) -> None:
    groups = [data[i : i + rows_per_window] for i in range(0, len(data), rows_per_window)]
    edges = [Edge(at(group[-1]), len(group)) for group in groups]
    chunks = list(
        plan_chunks(
            START,
            edges,
            windows_per_chunk=repeat(windows_per_chunk),
            most_rows=7,
            predicate=predicate,
        )
    )
    check_tiling(
        START,
        edges[-1].end if edges else START,
        [window for chunk in chunks for window in chunk.windows],
    )
    windows = [window for chunk in chunks for window in chunk.windows]
    assert [selected(data, window.predicate) for window in windows] == groups
    assert [chunk.final for chunk in chunks] == [False] * (len(chunks) - 1) + [True] * bool(chunks)
    assert sum(chunk.rows for chunk in chunks) == len(data)
    assert all(len(chunk.windows) <= windows_per_chunk for chunk in chunks)


@given(data=rows, start=st.integers(-1, 3), bound=st.integers(0, 3), rows_per_window=sizes)
def test_a_key_scan_reads_every_row_of_its_range_once(
    data: list[Row], start: int, bound: int, rows_per_window: int
) -> None:
    begin = Position(NOON + timedelta(seconds=start))
    end = Position(NOON + timedelta(seconds=max(bound, start + 1)))
    keys = sorted(row[1:] for row in data)[rows_per_window - 1 :: rows_per_window]
    edges = [Edge(structs.replace(begin, walk=KeyScan(key, end)), 0) for key in keys]
    chunks = list(
        plan_chunks(
            begin,
            [*edges, Edge(end, 0)],
            windows_per_chunk=repeat(2),
            most_rows=7,
            predicate=predicate,
        )
    )
    found = Counter(
        row
        for chunk in chunks
        for window in chunk.windows
        for row in selected(data, window.predicate)
    )
    assert found == Counter(row for row in data if start < row[0] <= max(bound, start + 1))
    assert chunks[-1].end == end


@given(data=rows, cut=st.integers(0, 40))
def test_a_timestamp_is_after_all_rows_that_have_it(data: list[Row], cut: int) -> None:
    moment = Position(NOON + timedelta(seconds=cut % 4))
    last = Position(NOON + timedelta(seconds=9))
    assert selected(data, predicate(START, moment)) == [r for r in data if r[0] <= cut % 4]
    assert selected(data, predicate(moment, last)) == [r for r in data if r[0] > cut % 4]


def test_edges_are_read_at_most_one_chunk_ahead() -> None:
    asked = []

    def edges() -> Iterator[Edge]:
        for number in range(1, 100):
            asked.append(number)
            yield Edge(Position(id=number), 1)

    chunks = plan_chunks(
        START,
        edges(),
        windows_per_chunk=repeat(3),
        most_rows=7,
        predicate=lambda start, end: f"{start}{end}",
    )
    next(chunks)
    assert asked == [1, 2, 3, 4]


def test_a_single_chunk() -> None:
    edges = [Edge(Position(id=number), 1) for number in range(1, 50)]
    (chunk,) = plan_chunks(
        START, edges, windows_per_chunk=None, most_rows=7, predicate=lambda _a, _b: ""
    )
    assert len(chunk.windows) == 49
    assert [window.part for window in chunk.windows] == list(range(1, 50))


def test_gaps_and_overlaps_are_refused() -> None:
    edges = [Edge(Position(id=number), 1) for number in (1, 2, 3)]
    (chunk,) = plan_chunks(
        START, edges, windows_per_chunk=None, most_rows=7, predicate=lambda _a, _b: ""
    )
    first, second, third = chunk.windows
    for windows in ([first, third], [first, second], [first, second, second, third], []):
        with pytest.raises(IllegalTransition):
            check_tiling(START, chunk.end, windows)
    backwards = structs.replace(first, start=Position(id=9))
    with pytest.raises(IllegalTransition):
        check_tiling(Position(id=9), first.end, [backwards])


# Windows of the same size


@given(
    rows=st.integers(0, 50_000_000),
    most=st.integers(1, 1_000_000),
    per_chunk=st.integers(1, 16),
)
def test_windows_are_of_equal_size_and_never_too_large(
    rows: int, most: int, per_chunk: int
) -> None:
    each = even_rows(rows, most_rows=most, windows_per_chunk=per_chunk)
    assert 1 <= each <= most
    assert each >= min(most, 50_000)
    if each > 50_000:  # there are no more chunks than full windows would need
        windows = ceil(rows / each)
        assert ceil(windows / per_chunk) == ceil(rows / (most * per_chunk))


def test_two_windows_share_the_rows_of_one() -> None:
    assert even_rows(100_000, most_rows=250_000, windows_per_chunk=8) == 50_000
    assert even_rows(2_000_000, most_rows=226_000, windows_per_chunk=8) == 125_000
    assert even_rows(10, most_rows=250_000, windows_per_chunk=8) == 50_000
    assert even_rows(0, most_rows=250_000, windows_per_chunk=8) == 50_000


# Integer keys


@given(
    first=st.integers(-(2**63), 2**64 - 1),
    count=st.integers(1, 3000),
    share=st.floats(0.5, 2),
    stride=st.integers(1, 500),
    read=st.none() | st.integers(-4000, 3200),
)
def test_numbers_are_split_evenly(
    first: int, count: int, share: float, stride: int, read: int | None
) -> None:
    """Every number is in one window of one stride; only the last window may be smaller."""
    numbers = range(first, first + count)
    base = Position(NOON - timedelta(1), 5)
    reached = None if read is None else first + read - 1
    read = max(0, read or 0)  # a key scan may be before all remaining keys

    def at(key: int) -> Position:
        return structs.replace(base, walk=KeyScan(key, BOUND))

    edges = list(
        even_edges(numbers, round(count * share), at, BOUND, stride=stride, reached=reached)
    )
    assert edges[-1].end == BOUND
    assert not any(edge.counted or edge.may_exceed(stride) for edge in edges)
    walked = [edge.end for edge in edges[:-1]]
    assert all(end.base == base and end.walk and end.walk.bound == BOUND for end in walked)
    keys = [first + read - 1, *(end.walk.key for end in walked if end.walk)]
    assert [int(b) - int(a) for a, b in pairwise(keys)] == [stride] * len(walked)  # type: ignore[arg-type]
    left = max(0, numbers[-1] - int(keys[-1]))  # type: ignore[arg-type]
    assert edges[-1].most == left <= stride
    assert left or read >= count


@given(
    ids=st.lists(st.integers(1, 300), min_size=1, unique=True).map(sorted),
    start=st.none() | st.integers(0, 300),
    stride=st.integers(1, 50),
    per_chunk=sizes,
)
def test_windows_along_ids_hold_every_row_once(
    ids: list[int], start: int | None, stride: int, per_chunk: int
) -> None:
    """Ids have gaps, also at the edges; no window has more rows than numbers."""
    new = [number for number in ids if number > (start or 0)]
    if not new:
        return
    chunks = list(
        plan_chunks(
            Position(id=start),
            even_edges(
                range(new[0], new[-1] + 1),
                len(new),
                lambda number: Position(id=number),
                Position(id=new[-1]),
                stride=stride,
            ),
            windows_per_chunk=repeat(per_chunk),
            most_rows=stride,
            predicate=lambda begin, end: f"id > {begin.id or 0} AND id <= {end.id}",
        )
    )
    windows = [window for chunk in chunks for window in chunk.windows]
    check_tiling(Position(id=start), Position(id=new[-1]), windows)
    held = [selected([(0, 0, n) for n in ids], window.predicate) for window in windows]
    assert [row[2] for rows in held for row in rows] == new
    assert max(map(len, held)) <= stride
    assert not any(window.streamed for window in windows)


def test_only_dense_numbers_are_split() -> None:
    assert is_dense(range(1, 101), 50)
    assert not is_dense(range(1, 101), 49)
    assert not is_dense(range(-(2**63), 2**64), 10**12)


# Positions during a key scan


def test_a_key_scan_is_between_its_start_and_its_bound() -> None:
    early, late = Position(walk=KeyScan(5, BOUND)), Position(walk=KeyScan(9, BOUND))
    ordered = [START, early, late, BOUND]
    for i, left in enumerate(ordered):
        for j, right in enumerate(ordered):
            assert left.compare(right) == (i > j) - (i < j)
    assert not early.is_start
    assert early.compare(Position(walk=KeyScan(7, Position(NOON + timedelta(1))))) is None


def test_a_key_scan_survives_json() -> None:
    for position in (START, BOUND, Position(NOON, 3, KeyScan(("a", 7), BOUND))):
        assert msgspec.json.decode(msgspec.json.encode(position), type=Position) == position
    assert msgspec.json.encode(BOUND) == b'{"timestamp":"2025-08-04T12:00:00Z"}'


def test_windows_that_may_be_too_large_are_streamed() -> None:
    edges = [
        Edge(Position(id=1), 100),
        Edge(Position(id=2), 101),  # over the limit, because of ties
        Edge(Position(id=3), 5, counted=False),
        Edge(Position(id=4), 5, counted=False, most=100),
        Edge(Position(id=5), 5, counted=False, most=101),
    ]
    (chunk,) = plan_chunks(
        START, edges, windows_per_chunk=None, most_rows=100, predicate=lambda _a, _b: ""
    )
    assert [window.streamed for window in chunk.windows] == [False, True, True, False, True]
    assert not chunk.counted


@given(
    cells=st.lists(st.integers(1, 40), min_size=1, max_size=60),
    stride=st.integers(1, 100),
    unplaced=st.integers(0, 9),
)
def test_merged_cells_tile_the_range(cells: list[int], stride: int, unplaced: int) -> None:
    ends = [Position(NOON - timedelta(seconds=len(cells) - n)) for n in range(len(cells))]
    rows = sum(cells) + unplaced
    edges = list(merged_edges(zip(ends, cells, strict=True), BOUND, rows, stride=stride))
    (chunk,) = plan_chunks(
        START, edges, windows_per_chunk=None, most_rows=10, predicate=lambda *_: "TRUE"
    )
    check_tiling(START, BOUND, chunk.windows)
    assert sum(edge.rows for edge in edges) == sum(cells)
    taken = iter(zip(ends, cells, strict=True))
    for edge, window in zip(edges, chunk.windows, strict=True):
        inside = [next(taken)]
        while inside[-1][0] != edge.end and sum(n for _, n in inside) < edge.rows:
            inside.append(next(taken))
        assert sum(n for _, n in inside) == edge.rows
        assert len(inside) == 1 or edge.rows <= stride * 17 / 16
        assert window.streamed == (edge.rows + unplaced > 10)
    assert not list(taken)
    if max(cells) * 16 <= stride:
        assert len(edges) <= ceil(sum(cells) / stride)


@given(
    rows=st.integers(1, 10**10),
    others=st.integers(0, 10**10),
    most_rows=st.integers(1, 10**6),
    most_ahead=st.integers(1, 10**8),
)
def test_scans_are_few_and_worth_it(
    rows: int, others: int, most_rows: int, most_ahead: int
) -> None:
    stride = scanned_rows(
        rows, table_rows=rows + others, most_rows=most_rows, most_ahead=most_ahead
    )
    assert ceil(rows / stride) <= 16
    assert stride >= min((rows + others) / 16, rows / 16)
    if rows * 16 <= rows + others:
        assert ceil(rows / stride) == 1
    if ceil(rows / stride) > 4:  # else they are streamed, and more windows would not help
        assert stride * 17 / 16 <= most_ahead


@pytest.mark.parametrize(
    ("rows", "table_rows", "windows"),
    [(40_000, 40_000, 1), (2_000_000, 2_000_000, 4), (5_000_000, 5_000_000, 6), (9e5, 9e7, 1)],
)
def test_windows_of_a_scanned_table(rows: float, table_rows: float, windows: int) -> None:
    stride = scanned_rows(
        int(rows), table_rows=int(table_rows), most_rows=150_000, most_ahead=1_000_000
    )
    assert ceil(rows / stride) == windows
