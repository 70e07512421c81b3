"""Values between two others: of the column's type, and between them where we know the order."""

from datetime import date, datetime
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from floodmark.model.schema import SourceColumn
from floodmark.mysql.midpoints import numbered
from floodmark.mysql.predicates import literal


def column(
    data_type: str, *, scale: int | None = None, collation: str = "utf8mb4_bin"
) -> SourceColumn:
    return SourceColumn(
        name="c", data_type=data_type, column_type=data_type, nullable=False, scale=scale,
        collation=collation,
    )  # fmt: skip


def halves(of: SourceColumn, low: int | str, high: int | str) -> list[int | str]:
    """Values that a search tries: always the lower half is taken."""
    space = numbered(of, low, high)
    assert space is not None
    found, before, after = [], space.low, space.high
    while before < after:
        after = (before + after) // 2
        found.append(space.value(after))
        literal(of, found[-1])  # can be written as one
    return found


@given(st.sets(st.integers(-(2**63), 2**64 - 1), min_size=2, max_size=2))
def test_integers(ends: set[int]) -> None:
    low, high = sorted(ends)
    found = halves(column("bigint"), low, high)
    assert all(isinstance(one, int) and low <= one < high for one in found)
    assert found[-1] == low


@given(st.sets(st.decimals(-(10**55), 10**55, places=10), min_size=2, max_size=2))
def test_decimals_of_any_precision(ends: set[Decimal]) -> None:
    low, high = sorted(ends)
    found = halves(column("decimal", scale=10), format(low, "f"), format(high, "f"))
    assert all(low <= Decimal(one) < high for one in found)
    assert Decimal(found[-1]) == low


@given(st.sets(st.binary(max_size=40), min_size=2, max_size=2))
def test_bytes(ends: set[bytes]) -> None:
    low, high = sorted(ends)
    for one in halves(column("varbinary"), f"0x{low.hex()}", f"0x{high.hex()}"):
        between = bytes.fromhex(str(one).removeprefix("0x"))
        assert between < high
        assert between.rstrip(b"\0") >= low[: len(between)].rstrip(b"\0")


LETTERS = st.text("059AMZamz", max_size=12)


@given(LETTERS, st.sets(LETTERS, min_size=2, max_size=2))
def test_text_by_code_point(prefix: str, rest: set[str]) -> None:
    low, high = sorted(prefix + one for one in rest)
    for one in halves(column("varchar"), low, high):
        assert low[: len(str(one))] <= str(one) < high


@given(st.sets(st.text(max_size=12), min_size=2, max_size=2), st.sampled_from(["bin", "ci"]))
def test_text_of_the_same_characters_and_plain_ones(ends: set[str], order: str) -> None:
    low, high = sorted(ends)
    for one in halves(column("varchar", collation=f"utf8mb4_general_{order}"), low, high):
        assert {c for c in str(one) if not c.isascii()} <= set(low) | set(high)


def test_text_without_case_is_halved_where_the_letters_are() -> None:
    found = halves(column("varchar", collation="utf8mb4_0900_ai_ci"), "Z1", "z9")
    assert found[0] == "z5"
    space = numbered(column("char", collation="latin1_swedish_ci"), "00a4", "FFe1")
    assert space is not None
    assert str(space.value((space.low + space.high) // 2))[0] in "78"  # of 0 to f


@given(st.sets(st.datetimes(datetime(1000, 1, 1), datetime(9999, 12, 31)), min_size=2, max_size=2))  # noqa: DTZ001
def test_times(ends: set[datetime]) -> None:
    low, high = sorted(ends)
    found = halves(column("datetime"), str(low), str(high))
    assert all(low <= datetime.fromisoformat(str(one)) < high for one in found)
    days = sorted({low.date(), high.date()})
    assume(len(days) == 2)
    for one in halves(column("date"), str(days[0]), str(days[1])):
        assert days[0] <= date.fromisoformat(str(one)) < days[1]


def test_uuids() -> None:
    low, high = (str(UUID(int=n)) for n in (5, 2**128 - 1))
    assert halves(column("uuid"), low, high)[0] == "80000000-0000-0000-0000-000000000002"


@pytest.mark.parametrize(
    ("data_type", "low", "high"),
    [
        ("datetime", "2025-00-01 00:00:00", "2025-08-04 00:00:00"),
        ("date", "0000-00-00", "2025-08-04"),
        ("inet6", "::1", "::9"),
        ("year", 1990, 2020),
        ("double", "1.5", "2.5"),
    ],
)
def test_some_values_have_no_number(data_type: str, low: int | str, high: int | str) -> None:
    assert numbered(column(data_type), low, high) is None
