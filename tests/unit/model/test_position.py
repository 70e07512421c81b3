"""Positions: their order and their text."""

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.model.position import LARGEST_NUMBER, START, Identity, KeyScan, Position

EARLY, LATE = datetime(2025, 8, 1, tzinfo=UTC), datetime(2025, 8, 2, tzinfo=UTC)

numbers = st.integers(0, 5) | st.just(LARGEST_NUMBER)
parts = numbers | st.sampled_from(["a", "B"])
identities: st.SearchStrategy[Identity] = parts | st.tuples(parts, parts)
bases = st.builds(Position, st.none() | st.sampled_from([EARLY, LATE]), st.none() | identities)
positions = bases | st.builds(
    Position,
    st.none() | st.just(EARLY),
    st.none() | numbers,
    st.builds(KeyScan, identities, bases),
)


@pytest.mark.parametrize(
    ("left", "right", "order"),
    [
        (START, START, 0),
        (START, Position(id=0), -1),
        (Position(EARLY), START, 1),
        (Position(id=1), Position(id=2), -1),
        (Position(id=10), Position(id=9), 1),
        (Position(EARLY, 9), Position(LATE, 1), -1),
        (Position(EARLY, 9), Position(EARLY, 10), -1),
        (Position(EARLY), Position(EARLY, 10), 1),  # after every row of that time
        (Position(EARLY, 10), Position(EARLY), -1),
        (Position(EARLY), Position(LATE, 1), -1),
        (Position(id=(1, 2)), Position(id=(1, 3)), -1),
        (Position(id=(2, "a")), Position(id=(1, "b")), 1),
        (Position(id="a"), Position(id="a"), 0),
        (Position(id="a"), Position(id="b"), None),  # the collation decides
        (Position(id=(1, "a")), Position(id=(1, "b")), None),
        (Position(id=1), Position(id="1"), None),
        (Position(id=(1, 2)), Position(id=1), None),
        (Position(EARLY), Position(id=1), None),
        (Position(EARLY, 1), Position(id=1), None),
        (Position(walk=KeyScan(5, Position(LATE, 9))), START, 1),
        (
            Position(walk=KeyScan(5, Position(LATE, 9))),
            Position(walk=KeyScan(6, Position(LATE, 9))),
            -1,
        ),
        (Position(walk=KeyScan(5, Position(LATE, 9))), Position(LATE, 9), -1),
        (
            Position(walk=KeyScan(5, Position(LATE))),
            Position(walk=KeyScan(6, Position(EARLY))),
            None,
        ),
    ],
)
def test_positions_compare(left: Position, right: Position, order: int) -> None:
    assert left.compare(right) == order


@given(positions, positions)
def test_comparison_is_antisymmetric(left: Position, right: Position) -> None:
    there, back = left.compare(right), right.compare(left)
    assert there == (None if back is None else -back)


@given(positions, positions, positions)
def test_comparison_is_transitive(first: Position, second: Position, third: Position) -> None:
    if first.compare(second) == second.compare(third) == -1:
        assert first.compare(third) in (-1, None)


@given(positions)
def test_no_position_is_before_the_start(position: Position) -> None:
    assert START.compare(position) == (0 if position.is_start else -1)
    assert position.compare(position) == 0


@given(positions)
def test_a_position_survives_json(position: Position) -> None:
    assert msgspec.json.decode(msgspec.json.encode(position), type=Position) == position


@pytest.mark.parametrize(
    ("position", "text"),
    [
        (START, "the start"),
        (Position(id=5), "id 5"),
        (Position(EARLY), "2025-08-01 00:00:00"),
        (Position(EARLY.replace(microsecond=1), ("x", 2)), "2025-08-01 00:00:00.000001, id (x, 2)"),
        (
            Position(walk=KeyScan(5, Position(LATE, 9))),
            "the start, walking to 2025-08-02 00:00:00, id 9 at key 5",
        ),
    ],
)
def test_a_position_as_text(position: Position, text: str) -> None:
    assert str(position) == text
