"""Files of other systems: what is taken as it is, what is written anew, what is refused."""

import io
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from floodmark.engine.foreign import look_into, write_anew
from floodmark.model.manifest import Column

MOMENT = Column("at", "timestamp(6)", True, "timestamp[us, UTC]")
LOCAL = Column("at", "datetime(6)", True, "timestamp[us]")
TIMES = [
    datetime(1583, 1, 1, 1, 2, 3, 456789, tzinfo=UTC),  # too far away for nanoseconds
    datetime(2025, 6, 1, tzinfo=UTC),
    None,
    datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
]


def int96(values: list[Any]) -> bytes:
    sink = io.BytesIO()
    table = pa.table({"at": pa.array(values, pa.timestamp("us", "UTC"))})
    pq.write_table(table, sink, use_deprecated_int96_timestamps=True)
    return sink.getvalue()


def test_int96_is_a_moment_and_keeps_it() -> None:
    file = look_into(int96(TIMES), [MOMENT], ())
    assert (file.rows, file.exact, file.misfits) == (4, False, ())
    anew = write_anew(int96(TIMES), [MOMENT])
    assert pq.read_table(io.BytesIO(anew)).column("at").to_pylist() == TIMES
    assert look_into(anew, [MOMENT], ()).exact


def test_int96_is_no_local_time() -> None:
    (misfit,) = look_into(int96(TIMES), [LOCAL], ()).misfits
    assert "(INT96) in the file, and timestamp[us] by the source" in misfit


@pytest.mark.parametrize(
    ("found", "wanted", "values"),
    [
        (pa.int64(), "int16", [1, -32768, None]),
        (pa.uint64(), "decimal128(20, 0)", [2**64 - 1, 0, None]),
        (pa.int32(), "int64", [1, None]),
        (pa.float32(), "float64", [0.5, None]),
        (pa.large_string(), "string", ["é", "", None]),
        (pa.dictionary(pa.int32(), pa.string()), "string", ["a", "a", None]),
        (pa.binary(2), "binary", [b"ab", None]),
        (pa.timestamp("s"), "timestamp[us]", [datetime(2025, 1, 1), None]),  # noqa: DTZ001
        (pa.timestamp("us", "+00:00"), "timestamp[us, UTC]", [TIMES[1], None]),
    ],
    ids=str,
)
def test_the_same_values_in_another_type_are_written_anew(
    found: pa.DataType, wanted: str, values: list[Any]
) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"v": pa.array(values, found)}), sink)
    column = Column("v", "", True, wanted)
    file = look_into(sink.getvalue(), [column], ())
    assert file.misfits == ()
    anew = write_anew(sink.getvalue(), [column])
    assert pq.read_table(io.BytesIO(anew)).column("v").to_pylist() == values
    assert look_into(anew, [column], ()).exact


def test_what_may_not_be_null_by_now_may_have_been() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"v": pa.array([1, None], pa.int32())}), sink)
    column = Column("v", "", False, "int64")
    assert look_into(sink.getvalue(), [column], ()).misfits == ()
    anew = write_anew(sink.getvalue(), [column])
    assert pq.read_table(io.BytesIO(anew)).column("v").to_pylist() == [1, None]


@pytest.mark.parametrize(
    ("found", "wanted", "value"),
    [
        (pa.int64(), "int16", 40_000),
        (pa.float64(), "int64", 1.0),
        (pa.bool_(), "int16", True),
        (pa.string(), "int64", "1"),
        (pa.int64(), "string", 1),
        (pa.timestamp("us"), "date32", datetime(2025, 1, 1)),  # noqa: DTZ001
        (pa.timestamp("us"), "timestamp[us, UTC]", datetime(2025, 1, 1)),  # noqa: DTZ001
        (pa.list_(pa.int64()), "int64", [1]),
        (pa.struct([("a", pa.int64())]), "string", {"a": 1}),
    ],
    ids=str,
)
def test_nothing_is_guessed_or_cut(found: pa.DataType, wanted: str, value: Any) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"v": pa.array([value], found)}), sink)
    (misfit,) = look_into(sink.getvalue(), [Column("v", "", True, wanted)], ()).misfits
    assert misfit.startswith("v ")
    assert wanted in misfit
