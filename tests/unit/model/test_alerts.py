"""Each failure is reported once, and so is its end."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from floodmark.model.alerts import RUN, Alerts, news_of, reported, table_of
from floodmark.model.run import WorkStage
from floodmark.model.run_record import RunRecord, TableRun

NOW = datetime(2025, 6, 1, tzinfo=UTC)
DAY = timedelta(days=1)
NAMES = ["A:s.a", "A:s.b", "A:s.c"]
A, B, _ = NAMES
EXTRACT: dict[str, Any] = {"stages": ["extract"]}
LOAD: dict[str, Any] = {"stages": ["load"]}
VERIFY: dict[str, Any] = {"verify": "new"}
RUNS: list[tuple[dict[str, Any], tuple[WorkStage, ...]]] = [
    ({}, ("extract", "load")),
    (EXTRACT, ("extract",)),
    (LOAD, ("load",)),
    (VERIFY, ("extract", "load", "verify")),
    ({"stages": ["load"], "verify": "all"}, ("load", "verify")),
]

Outcomes = dict[str, tuple[WorkStage, str] | None]
"""The stage of each table that failed, with its error; None if the table succeeded."""


def record(
    outcomes: Outcomes, options: dict[str, Any], error: str | None = None, command: str = "sync"
) -> RunRecord:
    tables = []
    for name, failure in outcomes.items():
        stage, why = failure or (None, None)
        status = "differs" if stage == "verify" else "failed" if stage else "success"
        tables.append(
            TableRun(table_name=name, status=status, stage=stage, error=why, rows=1)  # type: ignore[arg-type]
        )
    return RunRecord(
        run_id="20250601_000000_abc",
        command=command,
        options=options,
        started_at=NOW,
        seen_at=NOW,
        status="failed" if error else "partial" if any(outcomes.values()) else "success",
        error=error,
        tables=tuple(tables),
    )


class World:
    """The stages of tables that fail by their state in the lake, and what was reported."""

    def __init__(self) -> None:
        self.known = Alerts()
        self.failing: dict[str, set[str]] = {name: set() for name in NAMES}

    def run(
        self,
        outcomes: Outcomes,
        options: dict[str, Any] | None = None,
        now: datetime = NOW,
        error: str | None = None,
        **sent: bool,
    ) -> tuple[list[str], list[str]]:
        """Return the tables whose failure, and those whose recovery, is reported."""
        options = options or {}
        stages = next(stages for known, stages in RUNS if known == options)
        for name, failure in outcomes.items():
            for stage in stages:
                if failure is not None and stage == failure[0]:
                    self.failing[name].add(stage)
                    break
                self.failing[name].discard(stage)
        done = record(outcomes, options, error)
        news = news_of(self.known, done, now, DAY, self.failing.__getitem__)
        self.known = reported(self.known, done, now, news, **sent)
        failed, recovered = map(table_of, news.failing), map(table_of, news.recovered)
        return list(failed), list(recovered)


def test_a_failure_is_reported_once_and_again_after_a_while() -> None:
    world = World()
    assert world.run({A: ("load", "broken"), B: None}) == ([A], [])
    assert world.run({A: ("load", "broken")}, now=NOW + DAY / 2) == ([], [])
    assert world.run({A: ("load", "broken")}, now=NOW + DAY) == ([A], [])
    assert world.run({A: ("load", "worse")}, now=NOW + DAY) == ([A], [])
    assert world.known.failing[f"{A} load"].since == NOW
    assert world.run({A: None}, now=NOW + DAY) == ([], [A])
    assert world.known == Alerts()


def test_a_table_that_was_not_part_of_a_run_has_not_recovered() -> None:
    world = World()
    world.run({A: ("load", "broken")})
    assert world.run({B: None}) == ([], [])


def test_a_load_does_not_recover_with_an_extraction() -> None:
    """Cron alternates `--redshift-only`, which fails, and `--backup-only`."""
    world = World()
    assert world.run({A: ("load", "broken")}, LOAD) == ([A], [])
    assert world.run({A: None}, EXTRACT) == ([], [])
    assert world.run({A: ("load", "broken")}, LOAD) == ([], [])
    assert world.run({A: None}, LOAD) == ([], [A])


def test_a_table_that_differs_does_not_recover_with_a_sync() -> None:
    world = World()
    assert world.run({A: ("verify", "2 rows differ")}, VERIFY) == ([A], [])
    assert world.run({A: None}) == ([], [])
    assert world.run({A: None}, VERIFY) == ([], [A])


def test_another_stage_that_fails_is_no_recovery() -> None:
    world = World()
    world.run({A: ("extract", "broken")})
    assert world.run({A: ("load", "full")}) == ([A], [])
    assert list(world.known.failing) == [f"{A} load"]  # so that the extraction is reported again
    assert world.run({A: None}) == ([], [A])


def test_a_recovery_that_was_not_delivered_is_reported_by_the_next_run() -> None:
    world = World()
    world.run({A: ("load", "full")}, failed=False)
    assert world.run({A: ("load", "full")}) == ([A], [])
    assert world.run({A: None}, recovered=False) == ([], [A])
    assert world.run({A: None}) == ([], [A])


def test_a_dry_run_recovers_nothing() -> None:
    done = record({A: ("reconcile", "2 rows differ")}, {"dry_run": True}, command="reconcile")
    news = news_of(Alerts(), done, NOW, DAY, lambda _: ())
    known = reported(Alerts(), done, NOW, news)
    synced = record({A: None}, {})
    assert news_of(known, synced, NOW, DAY, lambda _: ()).recovered == ()


def test_a_run_that_does_not_reach_its_tables() -> None:
    world = World()
    assert world.run({}, LOAD, error="no password") == ([RUN], [])
    assert world.run({}, LOAD, error="no password") == ([], [])
    assert world.run({A: None}, EXTRACT) == ([], [])  # it needs no password
    assert world.run({A: ("load", "broken")}, LOAD) == ([A], [RUN])


def test_the_runs_of_pipelines_fail_one_by_one() -> None:
    known = Alerts()

    def run(pipeline: str, error: str | None) -> tuple[list[str], list[str]]:
        nonlocal known
        done = structs.replace(record({}, {}, error), pipelines=(pipeline,))
        news = news_of(known, done, NOW, DAY, lambda _: ())
        known = reported(known, done, NOW, news)
        return list(map(table_of, news.failing)), list(map(table_of, news.recovered))

    assert run("one", "no password") == ([RUN], [])
    assert run("two", "no password") == ([RUN], [])
    assert run("one", None) == ([], [RUN])
    assert run("one", None) == ([], [])
    assert run("two", None) == ([], [RUN])


@st.composite
def runs(draw: st.DrawFn) -> tuple[dict[str, Any], Outcomes]:
    options, stages = draw(st.sampled_from(RUNS))
    failure = st.none() | st.tuples(st.sampled_from(stages), st.sampled_from("xy"))
    return options, draw(st.dictionaries(st.sampled_from(NAMES), failure))


@given(st.lists(runs()))
def test_the_messages_tell_what_fails_now(done: list[tuple[dict[str, Any], Outcomes]]) -> None:
    """What the last message says of a table is what its state in the lake says."""
    world = World()
    reported_as = dict.fromkeys(NAMES, False)
    for options, outcomes in done:
        failed, recovered = world.run(outcomes, options)
        assert not {*failed} & {*recovered}
        reported_as |= dict.fromkeys(failed, True) | dict.fromkeys(recovered, False)
        assert reported_as == {name: bool(stages) for name, stages in world.failing.items()}
