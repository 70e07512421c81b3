"""Checksums of rows: independent of order, different for other rows."""
# ruff: noqa: DTZ001 - a DATETIME has no zone

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodmark.model.verification import Checksum
from floodmark.worker.canonical_json import plain_json
from floodmark.worker.row_hashes import Fingerprints

SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("exact", pa.decimal128(38, 4)),
        ("number", pa.float64()),
        ("single", pa.float32()),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", "UTC")),
        ("flag", pa.bool_()),
    ]
)
ROW = st.fixed_dictionaries(
    {
        "id": st.integers(0, 9),
        "text": st.none() | st.text(max_size=3),
        "bytes": st.none() | st.binary(max_size=3),
        "exact": st.none() | st.integers(-99, 99).map(lambda n: Decimal(n).scaleb(-4)),
        "number": st.none() | st.floats(allow_nan=False),
        "single": st.none() | st.floats(allow_nan=False, width=32),
        "day": st.none() | st.dates(),
        "moment": st.none() | st.datetimes(min_value=datetime(1, 1, 1)),
        "flag": st.none() | st.booleans(),
    }
)
Rows = list[dict[str, Any]]


def batches(rows: Rows, size: int = 3) -> list[pa.RecordBatch]:
    pieces = [rows[at : at + size] for at in range(0, len(rows), size)]
    return [pa.RecordBatch.from_pylist(piece, SCHEMA) for piece in pieces]


def checksum(rows: Rows, size: int = 3) -> Checksum:
    with Fingerprints(SCHEMA, ["id"], []) as prints:
        return prints.add("source", batches(rows, size))


def content(rows: Rows) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


@settings(max_examples=60, deadline=None)
@given(st.lists(ROW, max_size=8), st.randoms(), st.integers(1, 5))
def test_neither_order_nor_batches_matter(rows: Rows, random: Any, size: int) -> None:
    shuffled = random.sample(rows, len(rows))
    assert checksum(rows) == checksum(shuffled, size)


@settings(max_examples=60, deadline=None)
@given(st.lists(ROW, max_size=5), st.lists(ROW, max_size=5))
def test_other_rows_sum_up_to_something_else(left: Rows, right: Rows) -> None:
    assert (checksum(left) == checksum(right)) == (content(left) == content(right))


@pytest.mark.parametrize(
    ("column", "one", "other"),
    [
        ("text", None, ""),
        ("text", "a", "a "),
        ("text", "é", "e\u0301"),
        ("text", "a", "A"),
        ("bytes", b"", None),
        ("bytes", b"\x00", b"\x00\x00"),
        ("exact", Decimal("0.0001"), Decimal("0.0002")),
        ("number", 0.1, 0.1 + 2**-56),
        ("number", 0.0, -0.0),
        ("single", 1.0, 1.0 + 2**-23),
        ("day", date(2025, 1, 1), date(2025, 1, 2)),
        ("moment", datetime(2025, 1, 1), datetime(2025, 1, 1, 0, 0, 0, 1)),
        ("flag", False, None),
    ],
)
def test_the_smallest_change_is_seen(column: str, one: Any, other: Any) -> None:
    row = dict.fromkeys(SCHEMA.names) | {"id": 1}
    assert checksum([row | {column: one}]) != checksum([row | {column: other}])


def test_values_that_change_places_are_seen() -> None:
    one, other = ({"id": n, "text": text} for n, text in ((1, "a"), (2, "b")))
    swapped = [one | {"text": "b"}, other | {"text": "a"}]
    empty = dict.fromkeys(SCHEMA.names)
    assert checksum([empty | one, empty | other]) != checksum([empty | row for row in swapped])
    both = dict.fromkeys(SCHEMA.names) | {"id": 1}
    assert checksum([both, both]) != checksum([both])


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ('{"b": 1, "a": [1.0, null]}', '{"a":[1,null],"b":1.00}', True),
        ("1e2", "100", True),
        ("1e400", "1" + "0" * 400, True),
        ("1.00000000000000000000000000000000001", "1", False),
        ('"1"', "1", False),
        ('"\\u00e9"', '"é"', True),
        ("[1, 2]", "[2, 1]", False),
        ("null", '""', False),
        ("{broken", "{ broken", False),
        ("{broken", "{broken", True),
    ],
)
def test_json_is_compared_by_what_it_says(one: str, other: str, same: bool) -> None:
    assert (plain_json(one) == plain_json(other)) == same
