"""Fingerprints see every difference, and stay within BIGINT."""

from collections.abc import Sequence
from datetime import UTC, datetime

from hypothesis import assume, given
from hypothesis import strategies as st

from floodmark.model.fingerprint import (
    FIRST_NUMBER,
    LAST_NUMBER,
    Hashing,
    Multipliers,
    RowNumbers,
    SqlNumber,
    moment,
    moment_number,
    number_kind,
)
from floodmark.model.schema import SourceColumn

KEYS = st.integers(-(2**63), 2**64 - 1)
VERSIONS = st.integers(FIRST_NUMBER, LAST_NUMBER)
ROWS = st.dictionaries(st.tuples(KEYS), VERSIONS, min_size=2, max_size=8)
BIGINT = range(-(2**63), 2**63)

Rows = dict[tuple[int, ...], int]


def differ(one: Rows, other: Rows) -> bool:
    hashing = Hashing.random()
    return hashing.fingerprint(one.items()) != hashing.fingerprint(other.items())


@given(ROWS, VERSIONS)
def test_another_version_is_seen(rows: Rows, version: int) -> None:
    key = next(iter(rows))
    assume(rows[key] != version)
    assert differ(rows, {**rows, key: version})


@given(ROWS, KEYS)
def test_a_moved_key_is_seen(rows: Rows, key: int) -> None:
    assume((key,) not in rows)
    (_, version), *rest = rows.items()
    assert differ(rows, {**dict(rest), (key,): version})


@given(ROWS)
def test_swapped_versions_are_seen(rows: Rows) -> None:
    one, other, *_ = rows
    assume(rows[one] != rows[other])
    assert differ(rows, {**rows, one: rows[other], other: rows[one]})


@given(st.integers(0, 2**40), st.integers(1, 10**6))
def test_changes_that_add_up_to_nothing_are_seen(first: int, step: int) -> None:
    """Not even the sum of key times version changes."""
    moments: Rows = {(first + n,): 64_000_000_000_000_000 for n in range(4)}
    changed = {
        key: v + c * step for (key, v), c in zip(moments.items(), (1, -2, 1, 0), strict=True)
    }
    assert differ(moments, changed)


@given(ROWS)
def test_order_does_not_matter(rows: Rows) -> None:
    hashing = Hashing.random()
    forward, backward = list(rows.items()), list(rows.items())[::-1]
    parts = hashing.fingerprint(forward[:1]) + hashing.fingerprint(forward[1:])
    assert hashing.fingerprint(forward) == hashing.fingerprint(backward) == parts


@given(st.lists(KEYS, min_size=1, max_size=16), st.one_of(st.none(), VERSIONS))
def test_sql_is_the_reference_and_never_overflows(key: Sequence[int], version: int | None) -> None:
    sums = Multipliers.random()
    numbers = RowNumbers(
        key=tuple(SqlNumber(f"Sql({value})") for value in key),
        version=None if version is None else SqlNumber(f"Sql({version})"),
    )
    assert eval(sums.sql(numbers), {"Sql": Sql}) == sums.value(key, version)
    assert eval(sums.key_sql(numbers), {"Sql": Sql}) == sums.key_value(key) > 0


class Sql(int):
    """An integer with SQL's remainder, of which only inputs may exceed a BIGINT."""

    def __mod__(self, other: int) -> "Sql":
        return checked(abs(int(self)) % other * (1 if self >= 0 else -1))

    def __add__(self, other: int) -> "Sql":
        return checked(int(self) + other)

    def __mul__(self, other: int) -> "Sql":
        return checked(int(self) * other)


def checked(value: int) -> Sql:
    assert value in BIGINT
    return Sql(value)


@given(VERSIONS)
def test_times_have_numbers(number: int) -> None:
    assert moment_number(moment(number)) == number


def test_the_year_0_is_where_mysql_counts_from() -> None:
    assert moment_number(datetime(1970, 1, 1, tzinfo=UTC)) == 62_167_219_200 * 10**6


def test_types_without_a_number() -> None:
    def kind(data_type: str, column_type: str = "", **facts: int) -> str | None:
        column = SourceColumn(
            name="c",
            data_type=data_type,
            column_type=column_type,
            nullable=False,
            precision=facts.get("precision"),
            scale=facts.get("scale"),
        )
        return number_kind(column)

    assert kind("double") is kind("float") is kind("point") is kind("longtext", "json") is None
    assert kind("decimal", precision=18) == "integer"
    assert kind("decimal", precision=19) == kind("decimal", precision=9, scale=2) == "decimal"
