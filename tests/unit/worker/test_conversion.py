import os
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from floodmark.errors import StorageError, UnfitValue
from floodmark.model.cursor import Cursor
from floodmark.model.extraction import ColumnPlan, ZeroDates
from floodmark.model.position import START, Position
from floodmark.worker.conversion import Conversion
from floodmark.worker.lake_writer import LocalFile
from floodmark.worker.parquet_writer import repeating_columns
from floodmark.worker.position_range import Span


def convert(
    arrow: str, values: pa.Array, policy: ZeroDates = "null"
) -> tuple[list[object], dict[str, int]]:
    plan = ColumnPlan(
        name="v",
        expression="v",
        arrow=arrow,
        nullable=True,
        zero_dates=arrow.startswith(("date", "timestamp")),
    )
    conversion = Conversion([plan], policy)
    batch = conversion.convert(pa.record_batch([values], names=["c0"]))
    assert batch.schema == conversion.schema
    return batch.column(0).to_pylist(), dict(conversion.zero_dates)


def test_decimals_are_exact_to_the_last_digit() -> None:
    texts = ["0." + "0" * 29 + "1", "-99999999." + "9" * 30, None]
    values, _ = convert("decimal128(38, 30)", pa.array(texts))
    assert values == [Decimal(texts[0] or ""), Decimal(texts[1] or ""), None]


def test_the_largest_unsigned_number_fits() -> None:
    values, _ = convert("decimal128(20, 0)", pa.array([2**64 - 1], pa.uint64()))
    assert values == [Decimal(2**64 - 1)]


@pytest.mark.parametrize(
    ("arrow", "value"),
    [
        ("int32", pa.array([2**31], pa.int64())),
        ("int64", pa.array([2**63], pa.uint64())),
        ("decimal128(4, 2)", pa.array(["123.45"])),
        ("decimal128(4, 2)", pa.array(["1.234"])),
    ],
)
def test_a_value_that_does_not_fit_is_refused(arrow: str, value: pa.Array) -> None:
    with pytest.raises(UnfitValue, match="column 'v'"):
        convert(arrow, value)


NO_DAYS = ["0000-00-00", "2024-00-15", "2024-01-00", "0000-05-03", "2023-02-29", "2024-02-31"]


@pytest.mark.parametrize("text", NO_DAYS)
def test_what_is_no_day_becomes_null_and_is_counted(text: str) -> None:
    values, zeros = convert("date32", pa.array(["2024-02-29", text, None, "1000-01-01"]))
    assert values == [date(2024, 2, 29), None, None, date(1000, 1, 1)]
    assert zeros == {"v": 1}
    with pytest.raises(UnfitValue, match="zero or partial dates"):
        convert("date32", pa.array([text]), "error")


@pytest.mark.parametrize("text", [f"{day} 10:00:01.5" for day in NO_DAYS])
def test_what_is_no_moment_becomes_null_and_is_counted(text: str) -> None:
    last = "9999-12-31 23:59:59.999999"
    values, zeros = convert("timestamp[us]", pa.array(["1000-01-01 00:00:00", text, last]))
    assert values == [
        datetime(1000, 1, 1),  # noqa: DTZ001
        None,
        datetime(9999, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001
    ]
    assert zeros == {"v": 1}


def test_timestamps_are_in_utc() -> None:
    values, zeros = convert("timestamp[us, UTC]", pa.array(["2024-01-02 03:04:05.1", None]))
    assert values == [datetime(2024, 1, 2, 3, 4, 5, 100000, tzinfo=UTC), None]
    assert zeros == {}


def rows(*values: tuple[datetime | None, int]) -> pa.RecordBatch:
    moments, ids = zip(*values, strict=True)
    return pa.record_batch(
        [pa.array(moments, pa.timestamp("us")), pa.array(ids, pa.int64())], names=["at", "id"]
    )


EARLY, LATE = datetime(2024, 1, 1), datetime(2024, 1, 2)  # noqa: DTZ001
BY_TIME = Cursor(kind="timestamp", timestamp="at", key=("id",))


@pytest.mark.parametrize("ordered", [False, True])
def test_span_of_ordered_rows(ordered: bool) -> None:
    span = Span(BY_TIME, ordered=ordered)
    assert (span.first, span.last) == (START, START)
    span.add(rows((None, 99), (EARLY, 7)))
    span.add(rows((EARLY, 8), (LATE, 1)))
    span.add(rows((LATE, 2)))
    assert span.first == Position(timestamp=EARLY.replace(tzinfo=UTC), id=7)
    assert span.last == Position(timestamp=LATE.replace(tzinfo=UTC), id=2)


def test_span_of_rows_in_any_order() -> None:
    span = Span(BY_TIME, ordered=False)
    span.add(rows((LATE, 5), (EARLY, 9), (EARLY, 3), (LATE, 4)))
    span.add(rows((EARLY, 4)))
    assert span.first == Position(timestamp=EARLY.replace(tzinfo=UTC), id=3)
    assert span.last == Position(timestamp=LATE.replace(tzinfo=UTC), id=5)


def test_span_leaves_the_order_of_text_to_the_database() -> None:
    cursor = Cursor(kind="id", key=("name", "n"))
    span = Span(cursor, ordered=True)
    span.add(pa.record_batch([["a", "B"], [Decimal(2), Decimal(1)]], names=["name", "n"]))
    assert (span.first.id, span.last.id) == (("a", 2), ("B", 1))


@pytest.mark.parametrize(
    ("value", "identity"),
    [
        (Decimal(2**64 - 1), 2**64 - 1),
        (Decimal("0.0000000001"), "0.0000000001"),
        (b"\x00\xff", "0x00ff"),
        (date(2024, 1, 2), "2024-01-02"),
    ],
)
def test_keys_of_any_type_fit_a_position(value: object, identity: object) -> None:
    span = Span(Cursor(kind="id", key=("v",)), ordered=False)
    span.add(pa.record_batch([pa.array([value])], names=["v"]))
    assert span.first.id == span.last.id == identity


def test_only_repeating_columns_get_a_dictionary() -> None:
    batch = pa.record_batch(
        [list(range(64)), [n % 8 for n in range(64)], [None] * 63 + [1]],
        names=["unique", "repeating", "rare"],
    )
    assert repeating_columns(batch) == ["repeating"]


def test_a_local_file_is_seen_whole_or_not_at_all(tmp_path: Path) -> None:
    file = LocalFile(str(tmp_path), "a/b.parquet")
    file.write(b"one ")
    assert not (tmp_path / "a").exists()
    file.write(b"two")
    etag = file.finish()
    assert (tmp_path / "a/b.parquet").read_bytes() == b"one two"
    assert file.checksum == f"sha256:{etag}"
    given_up = LocalFile(str(tmp_path), "a/c.parquet")
    given_up.write(b"half")
    given_up.abandon()
    assert not (tmp_path / "a/c.parquet").exists()
    assert os.listdir(tmp_path / ".tmp") == []


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    file = LocalFile(str(tmp_path), "a/b.parquet")
    file._file.close()
    with open("/dev/full", "wb", buffering=0) as file._file:
        with pytest.raises(StorageError, match="No space left") as caught:
            file.write(b"x")
        assert caught.value.hint == "make room on the disk"
