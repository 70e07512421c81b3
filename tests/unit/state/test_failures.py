"""A failure is recorded until its stage succeeds, and never replaces a newer success."""

from datetime import UTC, datetime, timedelta
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.errors import LeaseHeld
from floodmark.model import lake_layout
from floodmark.model.failure import Failure, add_failure, without
from floodmark.model.notice import Notice
from floodmark.model.run import WorkStage
from floodmark.model.table import TableName
from floodmark.state.lease import Lease, LeaseDocument, read_lease, record_failure, take_lease
from floodmark.storage.memory import MemoryObjectStore
from floodmark.storage.objects import StoredObject

TABLE = TableName("US_PROD", "shop", "orders")
NOON = datetime(2025, 8, 1, 12, tzinfo=UTC)
STAGES: tuple[WorkStage, ...] = get_args(WorkStage)


def failure(
    error: str = "broken", minute: int = 0, stage: WorkStage = "extract", session: str = "ours"
) -> Failure:
    at = NOON + timedelta(minutes=minute)
    return Failure(stage=stage, error=error, since=at, at=at, session_id=session)


def blame(objects: MemoryObjectStore, found: Failure, began: int = 0) -> tuple[Failure, ...]:
    """Record a failure of a run that began with the table at a minute."""
    start = NOON + timedelta(minutes=began)
    record_failure(objects, TABLE, found, owner="me@here", began=start)
    return known(objects).failures


def known(objects: MemoryObjectStore) -> LeaseDocument:
    found = read_lease(objects, TABLE)
    assert found is not None
    return found


def take(objects: MemoryObjectStore, minute: int, stage: WorkStage, session: str = "ours") -> Lease:
    notices: list[Notice] = []
    return take_lease(
        objects,
        TABLE,
        session_id=session,
        owner="me@here",
        seconds=3600.0,
        clock=lambda: NOON + timedelta(minutes=minute),
        report=notices.append,
        stage=stage,
    )


@given(
    st.lists(
        st.tuples(st.sampled_from(STAGES), st.sampled_from(["", "broken", "gone"])), max_size=12
    )
)
def test_every_stage_has_its_last_error_and_the_time_of_its_first(
    events: list[tuple[WorkStage, str]],
) -> None:
    """An empty error is a success."""
    found: tuple[Failure, ...] = ()
    expected: dict[str, tuple[str, int, int]] = {}
    for minute, (stage, error) in enumerate(events):
        if not error:
            found = without(found, stage)
            expected.pop(stage, None)
            continue
        found = add_failure(found, failure(error, minute, stage))
        before = expected.get(stage)
        if before is None or before[0] != error:
            expected[stage] = (error, before[1] if before else minute, minute)
    assert {f.stage: (f.error, f.since, f.at) for f in found} == {
        stage: (error, NOON + timedelta(minutes=since), NOON + timedelta(minutes=at))
        for stage, (error, since, at) in expected.items()
    }


def test_a_table_that_no_run_has_worked_on_can_fail_and_be_taken() -> None:
    objects = MemoryObjectStore()
    assert blame(objects, failure()) == (failure(),)
    assert not known(objects).held(NOON)
    with take(objects, 1, "extract", "other") as lease:
        assert lease.number == 1
        assert known(objects).failures == (failure(),)
    assert known(objects).failures == ()


def test_success_of_a_stage_clears_its_failure_alone() -> None:
    objects = MemoryObjectStore()
    blame(objects, failure(stage="extract"))
    blame(objects, failure(stage="load", minute=1))
    with take(objects, 2, "extract"):
        pass
    assert [f.stage for f in known(objects).failures] == ["load"]
    with pytest.raises(ValueError, match="load"), take(objects, 3, "load"):
        raise ValueError("load")
    assert [f.stage for f in known(objects).failures] == ["load"]
    assert known(objects).succeeded_at == NOON + timedelta(minutes=2)


def test_the_same_failure_again_writes_at_most_its_time() -> None:
    objects = MemoryObjectStore()
    blame(objects, failure())
    before = objects.get(lake_layout.lease(TABLE))
    blame(objects, failure(session="later"))
    assert objects.get(lake_layout.lease(TABLE)) == before
    assert blame(objects, failure(minute=5, session="later")) == (failure(),)
    assert known(objects).last_tried_at == NOON + timedelta(minutes=5)


def test_a_newer_success_of_another_run_stays() -> None:
    objects = MemoryObjectStore()
    with take(objects, 10, "extract", "other"):
        # Another run works on it: what that finds counts.
        assert blame(objects, failure(minute=10), began=10) == ()
    # It has succeeded since we began.
    assert blame(objects, failure(minute=11), began=9) == ()
    assert blame(objects, failure(minute=12), began=11) == (failure(minute=12),)


def test_our_own_success_of_an_earlier_stage_hides_nothing() -> None:
    objects = MemoryObjectStore()
    with take(objects, 10, "extract"):
        pass
    assert [f.stage for f in blame(objects, failure(stage="load", minute=11))] == ["load"]


class Interrupted(MemoryObjectStore):
    """Lets another run do something between a read and the write after it."""

    def __init__(self) -> None:
        super().__init__()
        self.between: list[object] = []

    def get(self, key: str) -> StoredObject:
        try:
            return super().get(key)
        finally:
            if self.between:
                self.between.pop()()  # type: ignore[operator]


def test_a_success_between_the_read_and_the_write_stays() -> None:
    objects = Interrupted()

    def succeed() -> None:
        with take(objects, 1, "extract", "other"):
            pass

    objects.between.append(succeed)
    assert blame(objects, failure(minute=1), began=0) == ()


def test_recorded_failure_does_not_block_the_lease() -> None:
    objects = Interrupted()
    objects.between.append(lambda: blame(objects, failure(session="other")))
    with take(objects, 1, "load"):
        assert len(known(objects).failures) == 1
    with take(objects, 2, "load"), pytest.raises(LeaseHeld):
        take(objects, 2, "load", "other")
