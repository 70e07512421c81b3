"""What a target holds is compared in the source's types."""

from decimal import Decimal

import pyarrow as pa
import pytest

from floodmark.errors import FloodmarkError
from floodmark.worker.compare_window import fitted

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
    with pytest.raises(FloodmarkError, match=r"t\.x has a value in the target that is not bool"):
        fitted(pa.record_batch([held], names=["x"]), FLAG, "t")
