"""What a target holds is compared in the source's types."""

import json
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.errors import FloodmarkError
from floodmark.worker.compare_window import fitted
from floodmark.worker.row_hashes import Fingerprints

FLAG = pa.schema([("x", pa.bool_())])


@pytest.mark.parametrize(
    "held",
    [
        pa.array([1, 0, None], pa.int32()),
        pa.array([1.0, -0.0, None], pa.float64()),
        pa.array([Decimal("1.00"), Decimal("0.00"), None], pa.decimal128(12, 2)),
        pa.array(["1", "0", None]),
    ],
    ids=lambda array: str(array.type),
)
def test_a_flag_that_is_held_as_another_type(held: pa.Array) -> None:
    found = fitted(pa.record_batch([held], names=["x"]), FLAG, "t")
    assert found.column(0).to_pylist() == [True, False, None]


@pytest.mark.parametrize(
    "held",
    [
        pa.array([5], pa.int32()),
        pa.array([-1], pa.int16()),
        pa.array([0.5]),
        pa.array([Decimal("1.50")], pa.decimal128(12, 2)),
        pa.array(["2"]),
    ],
    ids=lambda array: str(array.type),
)
def test_other_numbers_are_no_flags(held: pa.Array) -> None:
    found = fitted(pa.record_batch([held], names=["x"]), FLAG, "t")
    assert found.column(0).to_pylist() == [None]
    (unfit,) = found.column(1).to_pylist()
    assert json.loads(unfit) == {"x": str(held[0].as_py())}


@given(
    st.lists(st.none() | st.decimals(-100, 100, places=3), max_size=40),
    st.lists(st.none() | st.integers(-100, 100), max_size=40),
)
def test_only_values_of_the_source_type_are_kept(
    numbers: list[Decimal | None], more: list[int | None]
) -> None:
    held = pa.array([*numbers, *more], pa.decimal128(12, 3))
    schema = pa.schema([("x", pa.decimal128(10, 2))])
    found = fitted(pa.record_batch([held], names=["c0"]), schema, "t")
    texts = found.column(1).to_pylist() if found.num_columns > 1 else [None] * len(held)
    for value, kept, unfit in zip(held.to_pylist(), found[0].to_pylist(), texts, strict=True):
        assert (kept == value) is (unfit is None)
        assert unfit is None or json.loads(unfit) == {"x": str(value)}


@pytest.mark.parametrize("key", [(), ("id",)])
def test_a_value_of_another_type_equals_nothing(key: tuple[str, ...]) -> None:
    """Not even NULL in the source."""
    schema = pa.schema([("id", pa.int32()), ("x", pa.decimal128(10, 2))])
    source = pa.record_batch([pa.array([1, 2], pa.int32()), pa.nulls(2, schema[1].type)], schema)
    held = pa.record_batch({"c0": ["1", "2"], "c1": ["0.104", None]})
    with Fingerprints(schema, key, []) as prints:
        target = fitted(held, schema, "t", key)
        assert prints.add("source", [source]) != prints.add("target", [target])
        prints.suspect()
        prints.keep("source", [source])
        prints.keep("target", [target])
        prints.judge()
        assert prints.counts() == ({"changed": 1} if key else {"missing": 1, "extra": 1})
        shown = [row for _, _, row in prints.differing(9) if row]
    assert shown == [{"id": 1, "x": "0.104"}]


def test_a_key_of_another_type_is_refused() -> None:
    schema = pa.schema([("id", pa.int32()), ("x", pa.int32())])
    held = pa.record_batch({"c0": ["7", "1.5"], "c1": ["1", "1"]})
    with pytest.raises(FloodmarkError, match=r"t\.id has the value 1\.5 in the target") as refused:
        fitted(held, schema, "t", ["id"])
    assert refused.value.hint == "correct or delete these rows in the target"
