"""Windows are large if a load is, and never so large that slots are idle."""

import heapq
from collections.abc import Iterable
from itertools import repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.model.extraction import ChunkPlan, Edge, Window
from floodmark.model.position import START, Position
from floodmark.planning.parallelism import windows_per_chunk
from floodmark.planning.window_sizes import WindowSize, file_rows, window_size
from floodmark.planning.windows import check_tiling, even_rows, plan_chunks

MEBIBYTE = 1024 * 1024
MOST_ROWS = 150_000
ROW_BYTES = 70


def load(
    rows: int, slots: int, *, expected: int | None = None, configured: int | None = None
) -> list[ChunkPlan]:
    """Plan a load of wide rows with the default settings."""
    expected = rows if expected is None else expected
    per_chunk = windows_per_chunk(configured, "intra-table", slots)
    stride = even_rows(expected, most_rows=MOST_ROWS, windows_per_chunk=per_chunk)
    known = file_rows(192 * MEBIBYTE, average_row_bytes=0, rows=rows, size=70 * rows, rate=None)

    def size(planned: int) -> WindowSize:
        return window_size(
            planned,
            expected=expected,
            file_rows=known,
            at_once=slots,
            slices_per_chunk=configured,
        )

    edges = (
        Edge(Position(id=min(rows, first + stride)), min(stride, rows - first))
        for first in range(0, rows, stride)
    )
    return list(
        plan_chunks(
            START,
            edges,
            windows_per_chunk=repeat(per_chunk),
            most_rows=MOST_ROWS,
            predicate=lambda start, end: f"{start}-{end}",
            window_size=size,
        )
    )


def windows_of(chunks: Iterable[ChunkPlan]) -> list[Window]:
    return [window for chunk in chunks for window in chunk.windows]


def megabytes(window: Window) -> float:
    assert isinstance(window.end.id, int)
    assert isinstance(window.start.id, int | None)
    return (window.end.id - (window.start.id or 0)) * ROW_BYTES / MEBIBYTE


def idle(windows: Iterable[Window], slots: int) -> float:
    """Return how much longer all slots take than they would if none was ever idle."""
    sizes = [len(window.statements) for window in windows]
    busy_until = [0] * slots
    for size in sizes:
        heapq.heapreplace(busy_until, busy_until[0] + size)
    return max(busy_until) * slots / sum(sizes)


def in_large_files(windows: list[Window]) -> float:
    """Return the share of the bytes that is in files of 128 to 256 MB."""
    sizes = [megabytes(window) for window in windows]
    return sum(size for size in sizes if 128 <= size <= 256) / sum(sizes)


@pytest.mark.parametrize("slots", [1, 2, 8])
def test_a_first_load_of_two_million_rows_is_read_in_windows_of_one_slice(slots: int) -> None:
    windows = windows_of(load(2_000_000, slots))
    assert not any(window.slices for window in windows)


@pytest.mark.parametrize(
    ("rows", "slots", "files", "large"),
    [
        (100_000_000, 2, 55, 0.9),
        (1_000_000_000, 2, 450, 0.99),
        (1_000_000_000, 16, 450, 0.95),
        (1_000_000_000, 200, 1_100, 0.45),
        (10_000_000_000, 200, 4_500, 0.98),
    ],
)
def test_files_of_large_loads_have_a_good_size(
    rows: int, slots: int, files: int, large: float
) -> None:
    windows = windows_of(load(rows, slots))
    assert len(windows) <= files
    assert in_large_files(windows) >= large
    assert max(map(megabytes, windows)) <= 192
    assert idle(windows, slots) <= 1.05


def test_rows_that_no_estimate_knew_of_are_in_large_files_too() -> None:
    windows = windows_of(load(200_000_000, 2, expected=100_000_000))
    assert in_large_files(windows) >= 0.9
    assert idle(windows, 2) <= 1.05


@given(
    rows=st.integers(1, 60_000_000),
    slots=st.integers(1, 300),
    error=st.floats(0.5, 2),
    configured=st.none() | st.integers(1, 400),
)
def test_windows_tile_the_range_and_chunks_are_limited(
    rows: int, slots: int, error: float, configured: int | None
) -> None:
    chunks = load(rows, slots, expected=int(rows * error), configured=configured)
    windows = windows_of(chunks)
    check_tiling(START, Position(id=rows), windows)
    check_tiling(START, Position(id=rows), [s for window in windows for s in window.statements])
    for chunk in chunks:
        assert [window.part for window in chunk.windows] == list(range(1, len(chunk.windows) + 1))
        assert not any(window.slices for window in chunk.windows) or chunk is not chunks[0]
        slices = sum(len(window.statements) for window in chunk.windows)
        if configured:
            assert slices == configured or chunk.final
            assert all(len(w.statements) <= max(1, configured // slots) for w in chunk.windows)
        else:  # 8, or as many as slots; or one window, or a seventh of the slots, of large windows
            largest = max(len(window.statements) for window in chunk.windows)
            assert slices < max(8, slots) + largest * (1 + slots // 7)
    assert all(window.predicate == f"{window.start}-{window.end}" for window in windows)


@given(rows=st.integers(1, 60_000_000), slots=st.integers(1, 300))
def test_slots_are_as_busy_as_with_small_windows(rows: int, slots: int) -> None:
    windows = windows_of(load(rows, slots))
    small = [one for window in windows for one in window.statements]
    most = max(len(window.statements) for window in windows)
    assert idle(windows, slots) <= idle(small, slots) + (0.2 if most > 1 else 0)


def test_a_whole_table_that_is_committed_at_once_has_large_windows_from_the_start() -> None:
    edges = [Edge(Position(id=end), 10) for end in range(10, 1010, 10)]
    size = WindowSize(rows=50)
    (chunk,) = plan_chunks(
        START,
        edges,
        windows_per_chunk=None,
        most_rows=10,
        predicate=lambda _start, _end: "",
        window_size=lambda _planned: size,
    )
    assert [len(window.slices) for window in chunk.windows] == [5] * 20


def test_slices_of_unknown_size_are_windows_of_their_own() -> None:
    edges = [
        Edge(Position(id=1), 10),
        Edge(Position(id=2), 10),
        Edge(Position(id=3), 99),
        Edge(Position(id=4), 10),
        Edge(Position(id=5), 0),
        Edge(Position(id=6), 5, counted=False),
        Edge(Position(id=7), 5, counted=False, most=11),
    ]
    (chunk,) = plan_chunks(
        START,
        edges,
        windows_per_chunk=None,
        most_rows=10,
        predicate=lambda _start, _end: "",
        window_size=lambda _planned: WindowSize(rows=1000),
    )
    assert [window.end.id for window in chunk.windows] == [2, 3, 5, 6, 7]
    assert [window.streamed for window in chunk.windows] == [False, True, False, True, True]


def test_ranges_with_few_rows_count_as_a_third_of_a_slice() -> None:
    edges = [Edge(Position(id=end), 0) for end in range(1, 101)]
    (chunk,) = plan_chunks(
        START,
        edges,
        windows_per_chunk=None,
        most_rows=30,
        predicate=lambda _start, _end: "",
        window_size=lambda _planned: WindowSize(rows=100),
    )
    assert {len(window.slices) for window in chunk.windows} == {10}


def test_rows_of_a_file_are_known_from_files_of_the_table() -> None:
    size = 192 * MEBIBYTE
    assert file_rows(size, average_row_bytes=210, rate=None) == 2_516_582
    assert file_rows(size, average_row_bytes=9, rows=1_000_000, size=70_000_000, rate=None) == (
        2_516_582
    )
    assert file_rows(size, average_row_bytes=210, rows=9_999, size=1, rate=None) == 2_516_582
    assert file_rows(size, average_row_bytes=0, rows=10_000, size=0, rate=None) > 100_000_000


def test_a_limited_rate_limits_a_window_to_a_minute() -> None:
    assert file_rows(192 * MEBIBYTE, average_row_bytes=210, rate=500) == 30_000


@pytest.mark.parametrize(("slots", "windows"), [(2, 1), (16, 3), (200, 29)])
def test_a_chunk_of_large_windows_has_a_part_of_those_in_flight(slots: int, windows: int) -> None:
    chunks = load(2_000_000_000, slots)
    assert {len(chunk.windows) for chunk in chunks[1:5]} == {windows}


def test_a_configured_number_of_slices_is_kept() -> None:
    chunks = load(60_000_000, 2, configured=7)
    sizes = [[len(window.statements) for window in chunk.windows] for chunk in chunks]
    assert sizes[:3] == [[1] * 7, [3, 3, 1], [3, 3, 1]]
