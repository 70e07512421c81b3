"""A pass over a table, spread over any number of runs that may die."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from floodmark.model.manifest import Chunk, Reconciled, Reset, Set
from floodmark.model.position import START, Position
from floodmark.model.reconcile_policy import Policy
from floodmark.model.reconciled_state import (
    ReconciledState,
    advanced,
    after_change,
    begun,
    committed,
    finished,
    reconciled_not_after,
    stopped,
)
from floodmark.model.reconciliation import Place

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = ("id",)
SEVEN = Place(KEY, 7)
few = st.integers(0, 5)


def chunk(found: Reconciled) -> Chunk:
    return Chunk(start=START, end=START, files=(), strategy="sequential", reconciled=found)


@given(
    st.lists(st.tuples(few, few, few, few, few, st.sampled_from(["done", "dies", "loses"]))),
    few,
)
def test_a_pass_counts_each_run_once_however_often_runs_die(
    parts: list[tuple[int, int, int, int, int, str]], last: int
) -> None:
    """A run dies before its commit, or right after it; then its part is compared again."""
    state, now = ReconciledState(), NOW
    deleted = rows = left = 0
    for place, (gone, missing, stale, double, reported, fate) in enumerate(parts):
        found = Reconciled(deleted=gone, missing=missing, stale=stale, duplicate=double)
        now += timedelta(hours=1)
        if fate == "loses":  # it dies before the commit: nothing is left but the start of the pass
            state = begun(state, now, KEY)
        state = begun(state, now, KEY)
        before = state
        state = after_change(state, chunk(found), new_load_epoch=False)
        assert (state.place, state.pass_started) == (before.place, before.pass_started)
        if fate == "dies":  # loaded by the next run, which then finds nothing here
            state = begun(state, now, KEY)
        state = advanced(state, place=Place(KEY, place), rows=10, left=reported, now=now)
        deleted, rows, left = deleted + gone, rows + 10, left + reported
        assert (state.status, state.place) == ("in_progress", Place(KEY, place))
        assert (state.deleted, state.rows, state.left) == (deleted, rows, left)
    state = begun(state, now, KEY)
    started = state.pass_started
    state = finished(state, rows=1, left=last, now=now + timedelta(hours=1))
    assert state.status == ("failed" if left + last else "success")
    assert (state.error is None) == (left + last == 0)
    assert (state.last_started, state.pass_started, state.place) == (started, None, None)
    assert (state.deleted, state.rows, state.left) == (deleted, rows + 1, left + last)
    assert state.total_deleted == deleted
    fresh = begun(state, now, KEY)
    assert (fresh.deleted, fresh.rows, fresh.left, fresh.total_deleted) == (0, 0, 0, deleted)
    assert fresh.last_finished == state.last_finished


def test_a_place_along_another_key_is_dropped() -> None:
    state = advanced(begun(ReconciledState(), NOW, KEY), place=SEVEN, rows=7, left=0, now=NOW)
    assert begun(state, NOW, KEY) == state
    other = begun(state, NOW, ("id", "day"))
    assert (other.place, other.rows, other.pass_started) == (None, 0, NOW)


def test_a_stopped_run_keeps_its_place() -> None:
    state = advanced(begun(ReconciledState(), NOW, KEY), place=SEVEN, rows=7, left=0, now=NOW)
    after = stopped(state, "too many", NOW)
    assert (after.status, after.error, after.place, after.rows) == ("failed", "too many", SEVEN, 7)


def test_what_operators_do_to_it() -> None:
    full = finished(begun(ReconciledState(), NOW, KEY), rows=7, left=0, now=NOW)
    amid = advanced(begun(full, NOW, KEY), place=SEVEN, rows=3, left=0, now=NOW)
    for state in (full, amid):
        reset = Reset(stages=("load",))
        assert after_change(state, reset, new_load_epoch=True) == ReconciledState()
        assert after_change(state, reset, new_load_epoch=False) == ReconciledState()
    moved = Set(position=Position(NOW))
    assert after_change(full, moved, new_load_epoch=False) == full
    again = after_change(amid, moved, new_load_epoch=False)
    assert (again.pass_started, again.place, again.last_finished) == (None, None, NOW)
    plain = Chunk(start=START, end=START, files=(), strategy="sequential")
    assert after_change(amid, plain, new_load_epoch=False) == amid


def test_a_run_over_a_range_counts_in_the_totals_alone() -> None:
    state = committed(ReconciledState(), Reconciled(deleted=2, stale=3))
    assert state == ReconciledState(total_deleted=2, total_repaired=3)


def test_times_in_the_future_become_now() -> None:
    later = NOW + timedelta(days=1)
    state = finished(begun(ReconciledState(), later, KEY), rows=0, left=0, now=later)
    capped = reconciled_not_after(state, NOW)
    assert (capped.last_started, capped.last_finished, capped.last_run_time) == (NOW, NOW, NOW)
    assert reconciled_not_after(ReconciledState(), NOW) == ReconciledState()


DAILY = Policy(every=timedelta(days=1))


@pytest.mark.parametrize(
    ("state", "hours", "due"),
    [
        (ReconciledState(), 0, True),
        (finished(begun(ReconciledState(), NOW, KEY), rows=0, left=0, now=NOW), 23, False),
        (finished(begun(ReconciledState(), NOW, KEY), rows=0, left=0, now=NOW), 24, True),
        (ReconciledState(status="in_progress", pass_started=NOW, place=SEVEN), 0, True),
        (stopped(begun(ReconciledState(), NOW, KEY), "too many", NOW), 23, False),
        (stopped(begun(ReconciledState(), NOW, KEY), "too many", NOW), 24, True),
    ],
)
def test_when_a_run_is_due(state: ReconciledState, hours: int, *, due: bool) -> None:
    now = NOW + timedelta(hours=hours)
    assert DAILY.is_due(state, now) is due
    assert not structs.replace(DAILY, every=None).is_due(state, now)


@pytest.mark.parametrize(
    ("most", "target", "source", "limit"),
    [
        (None, 100, 50, 1_000),
        (None, 1_000_000, 1, 100_000),
        (None, 1_000_000, 0, 0),  # emptied, or another server
        (None, 3, 0, 0),
        ("5%", 1_000, 0, 50),
        ("0.5%", 1_000, 1, 5),
        ("100%", 7, 0, 7),
        (0, 1_000, 1_000, 0),
        (12, 5, 0, 12),
    ],
)
def test_how_many_rows_a_pass_may_delete(
    most: str | int | None, target: int, source: int, limit: int
) -> None:
    policy = Policy(max_deletes=most)
    assert policy.most_deletes(target_rows=target, has_source_rows=lambda: source > 0) == limit
