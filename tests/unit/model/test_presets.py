"""Presets: short names for points in time."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.errors import UsageError
from floodmark.model.presets import preset_moment

NOW = datetime(2025, 8, 31, 12, 30, tzinfo=UTC)

moments = st.integers(1980 * 12, 2200 * 12).flatmap(
    lambda month: st.integers(1, 31).map(
        lambda day: (
            datetime(month // 12, month % 12 + 1, 1, 12, tzinfo=UTC) + timedelta(days=day - 1)
        )
    )
)


@pytest.mark.parametrize(
    ("name", "moment"),
    [
        ("aug4", datetime(2025, 8, 4, tzinfo=UTC)),
        ("aug1", datetime(2025, 8, 1, tzinfo=UTC)),
        ("1day", datetime(2025, 8, 30, 12, 30, tzinfo=UTC)),
        ("1week", datetime(2025, 8, 24, 12, 30, tzinfo=UTC)),
        ("2weeks", datetime(2025, 8, 17, 12, 30, tzinfo=UTC)),
        ("1month", datetime(2025, 7, 31, 12, 30, tzinfo=UTC)),
        ("6month", datetime(2025, 2, 28, 12, 30, tzinfo=UTC)),
        ("18month", datetime(2024, 2, 29, 12, 30, tzinfo=UTC)),
        ("8month", datetime(2024, 12, 31, 12, 30, tzinfo=UTC)),
        ("golive", datetime(2025, 5, 1, tzinfo=UTC)),
    ],
)
def test_preset_is_a_point_in_time(name: str, moment: datetime) -> None:
    assert preset_moment(name, {"golive": datetime(2025, 5, 1, tzinfo=UTC)}, NOW) == moment


def test_a_configured_preset_overrides_a_built_in_one() -> None:
    mine = datetime(2020, 8, 4, tzinfo=UTC)
    assert preset_moment("aug4", {"aug4": mine}, NOW) == mine


@pytest.mark.parametrize(
    "name",
    ["", "aug", "aug5", "week", "0day", "-1day", "1.5week", "1 week", "1year", "01day", "10000day"],
)
def test_unknown_presets_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="unknown preset") as caught:
        preset_moment(name, {"golive": NOW}, NOW)
    assert repr(name) in caught.value.message
    assert "golive" in (caught.value.hint or "")


@given(st.integers(1, 9999), st.sampled_from(["day", "week", "month"]), moments)
def test_a_relative_preset_is_that_long_ago(count: int, unit: str, now: datetime) -> None:
    moment = preset_moment(f"{count}{unit}", {}, now)
    days = {"day": 1, "week": 7, "month": 28}[unit]
    assert now - moment >= timedelta(days=count * days)
    assert now - moment <= timedelta(days=count * (31 if unit == "month" else days))


@given(st.integers(1, 600), st.integers(1, 600), moments)
def test_more_months_are_never_later(one: int, other: int, now: datetime) -> None:
    fewer, more = sorted((one, other))
    assert preset_moment(f"{more}month", {}, now) <= preset_moment(f"{fewer}month", {}, now)
