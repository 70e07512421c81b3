"""How much is read at once."""

from collections.abc import Iterator
from itertools import repeat

from hypothesis import given
from hypothesis import strategies as st

from floodmark.planning.parallelism import (
    chunks_at_once,
    connection_limit,
    fewest_windows,
    readers,
    tables_at_once,
    walkers,
    windows_per_chunk,
)

few = st.integers(1, 500)
perhaps = st.none() | few


@given(configured=perhaps, slots=perhaps)
def test_a_chunk_fills_the_slots_unless_its_size_is_configured(
    configured: int | None, slots: int | None
) -> None:
    windows = windows_per_chunk(configured, "intra-table", slots)
    assert windows == configured or (configured is None and windows == max(8, slots or 0))
    assert windows_per_chunk(configured, "inter-table", slots) == 1
    assert windows_per_chunk(configured, "sequential", slots) == 1


@given(configured=perhaps, slots=perhaps)
def test_chunks_in_flight_fill_the_slots_when_one_of_them_ends(
    configured: int | None, slots: int | None
) -> None:
    windows = windows_per_chunk(configured, "intra-table", slots)
    chunks = len(filled(repeat(windows), slots))
    assert 2 <= chunks <= 8
    assert chunks == 8 or (chunks - 1) * windows >= (slots or 1)
    assert configured or chunks == 2
    assert (
        chunks_at_once([], "inter-table", slots) == chunks_at_once([1], "inter-table", slots) == 1
    )
    assert chunks_at_once([1], "sequential", slots) == 1


@given(slots=few, more=st.lists(few, min_size=8, max_size=8))
def test_chunks_of_different_size_fill_the_slots(slots: int, more: list[int]) -> None:
    in_flight = filled((fewest_windows(slots) + n - 1 for n in more), slots)
    assert sum(in_flight[1:]) >= slots
    assert sum(in_flight[1:-1]) < slots


def filled(chunks: Iterator[int], slots: int | None) -> list[int]:
    """Add chunks of so many windows, as long as more may be in flight."""
    in_flight: list[int] = []
    while chunks_at_once(in_flight, "intra-table", slots) > len(in_flight):
        in_flight.append(next(chunks))
    return in_flight


@given(configured=perhaps, slots=perhaps, connections=perhaps)
def test_tables_at_once(configured: int | None, slots: int | None, connections: int | None) -> None:
    assert tables_at_once(configured, "sequential", slots, connections) == 1
    assert tables_at_once(configured, "intra-table", slots, connections) == 1
    tables = tables_at_once(configured, "inter-table", slots, connections)
    if configured:
        assert tables == configured
    else:
        assert 1 <= tables <= 64
        assert connections is None or tables == 1 or 2 * tables <= connections
        assert connections is None or tables == 1 or tables + 6 <= connections
        assert connections or tables == min(64, max(4, slots or 64))


@given(configured=perhaps, server=perhaps, account=st.integers(0, 500))
def test_no_more_connections_than_the_account_may_have(
    configured: int | None, server: int | None, account: int
) -> None:
    limit = connection_limit(configured, server, account)
    assert limit >= 1
    assert not account or limit <= account
    assert not configured or limit <= configured
    assert configured or not server or limit <= max(2, server / 5)


def test_a_fifth_of_the_server_by_default() -> None:
    assert connection_limit(None, 151, 0) == 30
    assert connection_limit(None, 10_000, 0) == 2_000
    assert connection_limit(None, 4, 0) == 2
    assert connection_limit(100, 151, 0) == 100
    assert connection_limit(100, 151, 5) == 5


@given(
    slots=perhaps, limit=few, planning=st.integers(0, 50), rate=st.none() | st.integers(1, 10**7)
)
def test_readers_stay_within_every_limit(
    slots: int | None, limit: int, planning: int, rate: int | None
) -> None:
    at_once = readers(slots, limit, planning, rate)
    assert 1 <= at_once <= (slots or max(1, limit - planning))
    assert at_once == 1 or at_once + planning <= limit
    # A second connection is only used if one may be too slow.
    assert rate is None or at_once == 1 or rate > 50_000 * (at_once - 1)
    if rate is None and limit - planning >= (slots or 1):
        assert at_once == (slots or limit - planning)


@given(at_once=few)
def test_few_connections_find_edges_and_leave_most_to_the_readers(at_once: int) -> None:
    many = walkers(at_once, "intra-table")
    assert 1 <= many <= min(16, 1 + at_once // 8)
    assert walkers(at_once, "inter-table") == walkers(at_once, "sequential") == 1


def test_one_connection_finds_edges_for_up_to_eight_readers() -> None:
    assert [walkers(n, "intra-table") for n in (1, 8, 9, 27, 120, 200)] == [1, 1, 2, 4, 15, 16]
