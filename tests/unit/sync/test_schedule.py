"""When rounds start, and how durations are parsed."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.api.schedule import Round, next_tick
from floodmark.errors import UsageError
from floodmark.model.durations import parse_duration
from floodmark.sync.result import TableResult

SECONDS = st.floats(0, 1e6)


@given(began=SECONDS, every=st.integers(1, 86_400), took=SECONDS)
def test_the_next_round_starts_at_the_next_tick(began: float, every: int, took: float) -> None:
    now = began + took
    tick = next_tick(began, every, now)
    assert now < tick <= now + every + 1e-6
    ticks = (tick - began) / every
    assert ticks == pytest.approx(round(ticks), abs=1e-6)


def test_rounds_do_not_drift_and_a_long_one_skips_ticks() -> None:
    assert next_tick(0, 300, 4.2) == 300
    assert next_tick(0, 300, 304.2) == 600
    assert next_tick(0, 300, 1000) == 1200


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("5m", 300), ("1h", 3600), ("7d", 604_800), ("2w", 1209600)]
)
def test_durations(text: str, seconds: int) -> None:
    assert parse_duration(text, like="5m") == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", "5", "m", "0s", "-5m", "1.5h", "5 m", "1h30m", "5M", "\uff11m", "999999999s"]
)
def test_invalid_durations_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a duration") as refusal:
        parse_duration(text, like="30s, 5m or 1h")
    assert refusal.value.hint == "write it as 30s, 5m or 1h"


def test_a_round_in_one_line() -> None:
    tables = (
        TableResult(table_name="a", rows=1200, loaded_rows=1000),
        TableResult(table_name="b", error="held", exit_code=4),
        TableResult(table_name="c", error="broken", exit_code=1),
    )
    done = Round(session_id="s", seconds=4.24, tables=tables)
    assert str(done) == (
        "3 tables, 1,200 rows extracted, 1,000 loaded, 1 held by another run, 1 failed in 4.2 s"
    )
    nothing = Round(session_id="s", seconds=0.1, error="no lake")
    assert str(nothing) == "the round failed after 0.1 s: no lake"
