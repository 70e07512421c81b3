"""Each failure is reported once, and so is its end."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from floodmark.model.alerts import RUN, Alerts, reported, to_report
from floodmark.model.run_record import RunRecord, TableRun

NOW = datetime(2025, 6, 1, tzinfo=UTC)
DAY = timedelta(days=1)
NAMES = ["A:s.a", "A:s.b", "A:s.c"]

Outcomes = dict[str, str | None]
"""The error of each table that was part of a run; None if it succeeded."""


def record(outcomes: Outcomes, error: str | None = None) -> RunRecord:
    return RunRecord(
        run_id="20250601_000000_abc",
        command="sync",
        started_at=NOW,
        seen_at=NOW,
        status="failed" if error else "partial" if any(outcomes.values()) else "success",
        error=error,
        tables=tuple(
            TableRun(table_name=name, status="failed" if e else "success", error=e, rows=1)
            for name, e in outcomes.items()
        ),
    )


def after(
    known: Alerts, outcomes: Outcomes, now: datetime = NOW, error: str | None = None
) -> tuple[Alerts, list[str], list[str]]:
    run = record(outcomes, error)
    failed, ended = to_report(known, run, now, DAY)
    return reported(known, run, now, failed=failed, ended=ended), failed, ended


def test_a_failure_is_reported_once_and_again_after_a_while() -> None:
    known, failed, _ = after(Alerts(), {"A:s.a": "broken", "A:s.b": None})
    assert failed == ["A:s.a"]
    known, failed, _ = after(known, {"A:s.a": "broken"}, NOW + DAY / 2)
    assert failed == []
    known, failed, _ = after(known, {"A:s.a": "broken"}, NOW + DAY)
    assert failed == ["A:s.a"]
    known, failed, _ = after(known, {"A:s.a": "worse"}, NOW + DAY)
    assert failed == ["A:s.a"]
    assert known.failing["A:s.a"].since == NOW
    _, failed, ended = after(known, {"A:s.a": None}, NOW + DAY)
    assert (failed, ended) == ([], ["A:s.a"])


def test_a_table_that_was_not_part_of_a_run_has_not_recovered() -> None:
    known, *_ = after(Alerts(), {"A:s.a": "broken"})
    assert after(known, {"A:s.b": None}) == (known, [], [])


def test_a_run_that_does_not_reach_its_tables() -> None:
    known, failed, ended = after(Alerts(), {}, error="the lake cannot be read")
    assert (failed, ended) == ([RUN], [])
    assert after(known, {}, error="the lake cannot be read")[1:] == ([], [])
    assert after(known, {"A:s.a": "broken"})[1:] == (["A:s.a"], [RUN])


@given(st.lists(st.dictionaries(st.sampled_from(NAMES), st.sampled_from([None, "x", "y"]))))
def test_the_messages_tell_what_fails_now(runs: list[Outcomes]) -> None:
    known, reported_as, actual = Alerts(), dict.fromkeys(NAMES, False), dict.fromkeys(NAMES, False)
    for outcomes in runs:
        actual |= {name: error is not None for name, error in outcomes.items()}
        known, failed, ended = after(known, outcomes)
        reported_as |= dict.fromkeys(failed, True) | dict.fromkeys(ended, False)
        assert reported_as == actual
