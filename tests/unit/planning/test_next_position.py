"""A table's position after a chunk."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from floodmark.model.extraction import ChunkPlan, Receipt
from floodmark.model.manifest import DataFile
from floodmark.model.position import START, Identity, KeyScan, Position
from floodmark.planning.next_position import position_after

NOON = datetime(2025, 8, 4, 12, tzinfo=UTC)
BOUND = Position(NOON + timedelta(hours=1))
A_FILE = DataFile("a", 1, 1, "e", "c", START, START)


def at(second: int, key: Identity | None = None) -> Position:
    return Position(NOON + timedelta(seconds=second), key)


def chunk(end: Position, start: Position = START) -> ChunkPlan:
    return ChunkPlan(start=start, end=end, windows=(), rows=1, counted=True, final=end.walk is None)


def wrote(*newest: Position, aside: bool = False) -> Receipt:
    files = tuple(DataFile(str(n), 1, 1, "e", "c", START, last) for n, last in enumerate(newest))
    return Receipt(part=1, rows=1, files=files, quarantine=(A_FILE,) if aside else (), seconds=0.0)


def after(end: Position, *receipts: Receipt, before: Position = START) -> Position:
    return position_after(chunk(end, before), receipts, before=before, by_key=True)


def test_along_the_cursor_the_position_is_the_chunks_end() -> None:
    assert position_after(chunk(at(9, 9)), [wrote(at(8, 8))], before=START, by_key=False) == at(
        9, 9
    )


def test_along_the_key_the_position_is_the_newest_row() -> None:
    assert after(BOUND, wrote(at(5, 2), at(3, 9)), wrote(at(5, 1))) == at(5, 2)


def test_without_rows_it_is_the_bound() -> None:
    assert after(BOUND, wrote()) == BOUND
    assert after(BOUND, wrote(START)) == BOUND


def test_quarantined_rows_may_be_the_newest() -> None:
    assert after(BOUND, wrote(at(5, 2), aside=True)) == BOUND


def test_text_keys_are_after_all_rows_of_their_time() -> None:
    assert after(BOUND, wrote(at(5, "b"), at(5, "a"), at(4, "c"))) == at(5)
    assert after(BOUND, wrote(at(5, (1, "b")), at(5, (2, "a")))) == at(5)
    limited = at(5, "a")
    assert after(limited, wrote(at(5, "a"))) == limited


@given(chunks=st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9))), min_size=1))
def test_a_key_scan_keeps_its_newest_row(chunks: list[list[tuple[int, int]]]) -> None:
    position = START
    for number, rows in enumerate(chunks, start=1):
        end = BOUND if number == len(chunks) else Position(walk=KeyScan(number, BOUND))
        written = wrote(*(at(*row) for row in rows))
        position = after(end, written, before=position)
    assert position == max(
        (at(*row) for rows in chunks for row in rows), key=_values, default=BOUND
    )


def _values(position: Position) -> tuple[datetime | None, Identity | None]:
    return position.timestamp, position.id
