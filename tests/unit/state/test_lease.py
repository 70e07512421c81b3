"""Only one run at a time works on a table, and a run notices that it lost its lease."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from threading import Barrier, Event, Thread

import pytest
from msgspec import structs

import processes
from floodmark.errors import LeaseHeld, LeaseLost, StorageUnavailable, WriteConflict
from floodmark.model import lake_layout
from floodmark.model.checksummed_json import seal
from floodmark.model.notice import Notice
from floodmark.model.table import TableName
from floodmark.state.lease import Lease, break_lease, read_lease, take_lease
from floodmark.state.process_identity import is_dead, this_process
from floodmark.storage.memory import MemoryObjectStore
from floodmark.storage.objects import ObjectStore

TABLE = TableName("US_PROD", "shop", "orders")
OTHER = TableName("US_PROD", "shop", "payments")
LONG = 3600.0
SHORT = 0.06


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = datetime(2025, 8, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


class Beats(MemoryObjectStore):
    """Waits for renewals of a lease, and injects faults."""

    def __init__(self) -> None:
        super().__init__()
        self.tried = Event()
        self.fault: StorageUnavailable | None = None
        self.applies = False

    def put_if_match(self, key: str, data: bytes, etag: str) -> str:
        try:
            if self.fault is None:
                return super().put_if_match(key, data, etag)
            if self.applies:
                super().put_if_match(key, data, etag)
            raise self.fault
        finally:
            self.tried.set()

    def wait_for_a_beat(self) -> None:
        self.tried.clear()
        assert self.tried.wait(10)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def taken() -> Iterator[list[Lease]]:
    leases: list[Lease] = []
    yield leases
    for lease in leases:
        lease.release()


def take(
    objects: ObjectStore,
    clock: Clock,
    taken: list[Lease],
    *,
    session: str = "first",
    seconds: float = LONG,
    table: TableName = TABLE,
    notices: list[Notice] | None = None,
) -> Lease:
    lease = take_lease(
        objects,
        table,
        session_id=session,
        owner=f"{session}@here",
        seconds=seconds,
        clock=clock,
        report=(notices if notices is not None else []).append,
    )
    taken.append(lease)
    return lease


def test_a_held_lease_is_refused_and_says_who_holds_it(clock: Clock, taken: list[Lease]) -> None:
    objects = MemoryObjectStore()
    take(objects, clock, taken)
    with pytest.raises(LeaseHeld, match="held by session first of first@here until 2025-08-01T01"):
        take(objects, clock, taken, session="second")
    take(objects, clock, taken, session="second", table=OTHER)


def test_exactly_one_of_many_concurrent_runs_gets_it(clock: Clock, taken: list[Lease]) -> None:
    objects = MemoryObjectStore()
    barrier = Barrier(16)
    refused: list[str] = []

    def taker(name: str) -> None:
        barrier.wait()
        try:
            take(objects, clock, taken, session=name)
        except LeaseHeld:
            refused.append(name)

    threads = [Thread(target=taker, args=(f"s{number}",)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 1
    assert len(refused) == 15
    taken[0].check()


def test_it_expires_by_the_clock(clock: Clock, taken: list[Lease]) -> None:
    objects = MemoryObjectStore()
    first = take(objects, clock, taken)
    clock.advance(LONG - 1)
    first.check()
    with pytest.raises(LeaseHeld):
        take(objects, clock, taken, session="second")
    clock.advance(1)
    with pytest.raises(LeaseLost, match="expired at 2025-08-01T01:00:00Z"):
        first.check()
    second = take(objects, clock, taken, session="second")
    assert second.number == first.number + 1
    second.check()


def test_the_heartbeat_renews_it(clock: Clock, taken: list[Lease]) -> None:
    objects = Beats()
    lease = take(objects, clock, taken, seconds=SHORT)
    for _ in range(3):
        clock.advance(SHORT / 2)
        objects.wait_for_a_beat()  # may have looked at the clock before it was advanced
        objects.wait_for_a_beat()
        lease.check()
    document = read_lease(objects, TABLE)
    assert document is not None
    assert document.expires_at == clock() + timedelta(seconds=SHORT)


def test_a_lost_lease_is_noticed_and_not_released(clock: Clock, taken: list[Lease]) -> None:
    objects = Beats()
    notices: list[Notice] = []
    first = take(objects, clock, taken, seconds=SHORT, notices=notices)
    break_lease(objects, TABLE)
    second = take(objects, clock, taken, session="second")
    objects.wait_for_a_beat()
    first.release()
    with pytest.raises(LeaseLost):
        first.check()
    assert [notice.message for notice in notices] == [f"the lease on {TABLE} was taken over"]
    second.check()
    document = read_lease(objects, TABLE)
    assert document is not None
    assert document.session_id == "second"
    assert not document.released


def test_a_released_lease_can_be_taken_at_once(clock: Clock, taken: list[Lease]) -> None:
    objects = MemoryObjectStore()
    with take(objects, clock, taken) as first:
        pass
    second = take(objects, clock, taken, session="second")
    assert second.number == first.number + 1
    with pytest.raises(LeaseLost):
        first.check()
    first.release()
    second.check()


def test_breaking_a_lease_lets_others_in(clock: Clock, taken: list[Lease]) -> None:
    objects = MemoryObjectStore()
    take(objects, clock, taken)
    break_lease(objects, TABLE)
    document = read_lease(objects, TABLE)
    assert document is not None
    assert not document.held(clock())
    take(objects, clock, taken, session="second").check()


def test_there_is_nothing_to_break(clock: Clock) -> None:
    objects = MemoryObjectStore()
    break_lease(objects, TABLE)
    assert read_lease(objects, TABLE) is None


def test_a_corrupt_lease_counts_as_free(clock: Clock, taken: list[Lease]) -> None:
    objects = MemoryObjectStore()
    objects.put(lake_layout.lease(TABLE), b"not a lease")
    take(objects, clock, taken).check()


def test_storage_faults_do_not_end_a_lease_before_it_expires(
    clock: Clock, taken: list[Lease]
) -> None:
    objects = Beats()
    notices: list[Notice] = []
    lease = take(objects, clock, taken, seconds=SHORT, notices=notices)
    objects.fault = StorageUnavailable("no answer")
    objects.wait_for_a_beat()
    objects.wait_for_a_beat()
    lease.check()
    objects.fault = None
    objects.wait_for_a_beat()
    lease.check()
    assert "lease not renewed: no answer" in [notice.message for notice in notices]


def test_a_renewal_with_a_lost_response_keeps_the_lease(clock: Clock, taken: list[Lease]) -> None:
    objects = Beats()
    notices: list[Notice] = []
    lease = take(objects, clock, taken, seconds=SHORT, notices=notices)
    objects.applies = True
    objects.fault = StorageUnavailable("no answer")
    clock.advance(SHORT / 3)
    objects.wait_for_a_beat()
    objects.wait_for_a_beat()
    objects.fault = None
    clock.advance(SHORT / 3)
    objects.wait_for_a_beat()
    objects.wait_for_a_beat()
    lease.check()
    assert not [notice for notice in notices if "taken over" in notice.message]
    lease.release()
    document = read_lease(objects, TABLE)
    assert document is not None
    assert document.released


def test_a_lease_that_cannot_be_released_is_reported(clock: Clock, taken: list[Lease]) -> None:
    objects = Beats()
    notices: list[Notice] = []
    lease = take(objects, clock, taken, notices=notices)
    objects.fault = StorageUnavailable("no answer")
    lease.release()
    objects.fault = None
    assert "lease not released, it expires at 2025-08-01T01:00:00Z" in notices[0].message


def test_breaking_a_lease_wins_over_a_concurrent_heartbeat(
    clock: Clock, taken: list[Lease]
) -> None:
    class RenewedInBetween(MemoryObjectStore):
        renewals = 1

        def put_if_match(self, key: str, data: bytes, etag: str) -> str:
            if self.renewals:
                self.renewals -= 1
                raise WriteConflict("renewed meanwhile")
            return super().put_if_match(key, data, etag)

    objects = RenewedInBetween()
    take(objects, clock, taken)
    break_lease(objects, TABLE)
    document = read_lease(objects, TABLE)
    assert document is not None
    assert document.released


def hold(gate: Connection) -> None:
    """Print this process's identity, and wait for the parent to end it."""
    gate.send(this_process())
    gate.recv()


def test_the_lease_of_a_dead_process_is_free(clock: Clock, taken: list[Lease]) -> None:
    gate, theirs = processes.pipe()
    process = processes.start(hold, theirs)
    name = gate.recv()
    assert not is_dead(name)
    gate.send("end")
    process.join()
    assert is_dead(name)
    assert not is_dead(this_process())
    assert not is_dead("")
    assert not is_dead("another-machine/pid:[1]/1:1"), "of other machines nothing is known"

    objects = MemoryObjectStore()
    first = take(objects, clock, taken)
    document = read_lease(objects, TABLE)
    assert document is not None
    objects.put(lake_layout.lease(TABLE), seal(structs.replace(document, process=name)))
    take(objects, clock, taken, session="second").check()
    assert first.number == 1


def test_a_hidden_process_does_not_count_as_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine, _, rest = this_process().rpartition("/")
    started = int(rest.partition(":")[2])
    name = f"{machine}/{os.getppid()}:{started + 1}"
    assert is_dead(name), "of that number there is another process, which began at another time"
    monkeypatch.setattr(os, "access", lambda *_: False)  # as with hidepid
    assert not is_dead(name)
