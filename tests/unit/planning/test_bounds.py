"""Bounds under any interleaving: a simulated server with concurrent writers."""

from datetime import UTC, datetime, timedelta
from random import Random
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from floodmark.model.bound import Activity, Ceiling
from floodmark.model.position import Position
from floodmark.model.schema import SourceColumn
from floodmark.planning.bounds import (
    GRACE,
    REPLICA_LAG,
    earliest_wall,
    id_bound,
    settled_before,
    timestamp_bound,
)

NOON = datetime(2025, 8, 4, 12, 0, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


def column(data_type: str = "datetime", fraction: int = 0) -> SourceColumn:
    return SourceColumn(
        name="update_at",
        data_type=data_type,
        column_type=data_type,
        nullable=False,
        fraction=fraction,
    )


class Writer:
    """A session: at most one statement running, at most one transaction open."""

    def __init__(self) -> None:
        self.statement: datetime | None = None
        self.transaction: datetime | None = None
        self.reserved: list[int] = []
        self.written: dict[int, datetime] = {}


class Server:
    """A table with rows that are inserted and updated, and the clock that stamps them."""

    def __init__(self, random: Random, fraction: int, *, updates: bool) -> None:
        self.random = random
        self.now = NOON
        self.digits = random.randint(0, fraction)  # NOW() may have fewer than the column
        self.updates = updates
        self.next_id = 1
        self.rows: dict[int, tuple[datetime, int]] = {}  # id: stamp, version
        self.writers = [Writer() for _ in range(random.randint(1, 3))]
        self.quiet = False

    def bustle(self, most: int = 10) -> None:
        for _ in range(0 if self.quiet else self.random.randint(0, most)):
            self.random.choice((self.wait, self.write, self.write, self.write))()

    def wait(self) -> None:
        self.now += timedelta(microseconds=self.random.choice((1, 700, 300_000, 1_100_000)))
        for writer in self.writers:
            # The guarantee holds for first statements that wait no longer than the grace.
            first = writer.statement if writer.transaction is None else None
            if first and self.now - first > GRACE - SECOND:
                self.enter(writer)

    def write(self) -> None:
        """Advance one writer by one step."""
        writer = self.random.choice(self.writers)
        if writer.statement is None:
            end = self.random.random() < 0.5
            (self.close if writer.transaction and end else self.begin)(writer)
        elif writer.transaction is None or writer.reserved or self.random.random() < 0.3:
            self.enter(writer)
        else:
            writer.statement = None
            if self.random.random() < 0.3:
                self.close(writer)

    def begin(self, writer: Writer) -> None:
        writer.statement = self.now

    def enter(self, writer: Writer) -> None:
        writer.transaction = writer.transaction or self.now
        if not writer.reserved:
            count = self.random.randint(1, 3)
            writer.reserved = list(range(self.next_id, self.next_id + count))
            self.next_id += count
        target = writer.reserved.pop(0)
        locked = {row for other in self.writers for row in other.written}
        free = sorted(self.rows.keys() - locked)
        if self.updates and free and self.random.random() < 0.6:
            target = self.random.choice(free)
        assert writer.statement
        unit = 10 ** (6 - self.digits)
        micros = writer.statement.microsecond // unit * unit
        writer.written[target] = writer.statement.replace(microsecond=micros)

    def close(self, writer: Writer) -> None:
        if self.random.random() < 0.8:
            for row, stamp in writer.written.items():
                version = self.rows[row][1] + 1 if row in self.rows else 1
                self.rows[row] = (stamp, version)
        writer.transaction, writer.written, writer.reserved = None, {}, []

    def settle(self) -> None:
        for writer in self.writers:
            writer.statement = None
            self.close(writer)
        self.now += 2 * SECOND

    def look(self) -> Activity:
        now = self.now
        self.bustle()
        statements = [writer.statement for writer in self.writers if writer.statement]
        self.bustle()
        begun = [w.transaction.replace(microsecond=0) for w in self.writers if w.transaction]
        self.bustle()
        return Activity(
            now=now,
            oldest_statement=min(statements, default=None),
            oldest_transaction=min(begun, default=None),
        )


@given(seed=st.integers(0, 2**32), fraction=st.sampled_from((0, 3, 6)))
@settings(max_examples=500, deadline=None)
def test_the_newest_version_of_every_row_is_read(seed: int, fraction: int) -> None:
    server = Server(Random(seed), fraction, updates=True)
    position: tuple[datetime, int] = (datetime.min.replace(tzinfo=UTC), 0)
    seen: dict[int, int] = {}

    def sync() -> None:
        nonlocal position
        position_ = timestamp_bound(server.look(), column(fraction=fraction)).position
        assert position_
        bound = position_.timestamp
        assert bound
        for stamp, row in sorted((stamp, row) for row, (stamp, _) in server.rows.items()):
            if position < (stamp, row) and stamp <= bound:
                seen[row] = server.rows[row][1]
                position = (stamp, row)
        if server.random.random() < 0.5:  # as at the end of a key scan
            position = max(position, (bound, server.next_id))

    for _ in range(20):
        server.bustle(20)
        sync()
    server.settle()
    server.quiet = True
    sync()
    assert seen == {row: version for row, (_, version) in server.rows.items()}


@given(seed=st.integers(0, 2**32), unseen=st.booleans())
@settings(max_examples=200, deadline=None)
def test_every_id_is_read_exactly_once(seed: int, unseen: bool) -> None:
    server = Server(Random(seed), 0, updates=False)
    position = 0
    seen: list[int] = []

    def look() -> Activity:
        activity = server.look()
        if not unseen:
            return activity
        return structs.replace(activity, unseen="a replica", applied=server.now)

    def pause(seconds: float) -> None:
        server.bustle()
        if unseen:  # the lag is set to be longer than any transaction
            server.settle()
        server.now += timedelta(seconds=seconds)

    def sync() -> None:
        nonlocal position
        committed = sorted(row for row in server.rows if row > position)
        if not committed:
            return
        ceiling = Ceiling(committed[-1], server.now)

        def first_gap() -> int | None:
            missing = set(range(position + 1, ceiling.id + 1)) - server.rows.keys()
            return min(missing, default=None)

        reached = id_bound(
            ceiling, look=look, first_gap=first_gap, pause=pause, patience=SECOND
        ).position
        assert reached
        bound = reached.id
        assert isinstance(bound, int)
        server.bustle()
        seen.extend(row for row in sorted(server.rows) if position < row <= bound)
        position = max(position, bound)

    for _ in range(20):
        server.bustle(20)
        sync()
    server.settle()
    server.quiet = True
    sync()
    assert sorted(seen) == sorted(server.rows)
    assert len(seen) == len(set(seen))


def test_nothing_in_flight_leaves_only_the_open_second() -> None:
    activity = Activity(now=NOON + timedelta(microseconds=700_000))
    for fraction, last in ((0, 1_000_000), (3, 1_000), (6, 1)):
        bound = timestamp_bound(activity, column(fraction=fraction))
        assert bound.position == Position(NOON - timedelta(microseconds=last))
        assert bound.held_by is None


@pytest.mark.parametrize(
    ("activity", "lag", "settled"),
    [
        (Activity(now=NOON, oldest_statement=NOON - 30 * SECOND), None, NOON - 30 * SECOND),
        (Activity(now=NOON, oldest_transaction=NOON - 30 * SECOND), None, NOON - 35 * SECOND),
        (Activity(now=NOON, oldest_transaction=NOON - 30 * SECOND), 9, NOON - 39 * SECOND),
        (Activity(now=NOON), 9, NOON - 9 * SECOND),
        (Activity(now=NOON, unseen="no privilege"), 9, NOON - 9 * SECOND),
        (Activity(now=NOON, unseen="replica", applied=NOON - SECOND), None, NOON - SECOND - MINUTE),
        (Activity(now=NOON, unseen="replica", applied=NOON - SECOND), 9, NOON - 10 * SECOND),
        (Activity(now=NOON, undated="XA"), 9, NOON - 9 * SECOND),
    ],
)
def test_what_holds_the_bound_back(activity: Activity, lag: int | None, settled: datetime) -> None:
    assert settled_before(activity, None if lag is None else lag * SECOND) == settled


@pytest.mark.parametrize(
    ("activity", "lag"),
    [
        (Activity(now=NOON, unseen="no privilege"), None),
        (Activity(now=NOON, undated="XA"), None),
        (Activity(now=NOON, held="stopped"), None),
        (Activity(now=NOON, held="stopped"), 9),
        (Activity(now=NOON, held="stopped", unseen="replica", applied=NOON), 9),
    ],
)
def test_unknown_activity_is_never_guessed(activity: Activity, lag: int | None) -> None:
    late = None if lag is None else lag * SECOND
    assert settled_before(activity, late) is None
    bound = timestamp_bound(activity, column(), lag=late)
    assert bound.position is None
    assert bound.held_by in ("no privilege", "XA", "stopped")
    ids = id_bound(Ceiling(9, NOON), look=lambda: activity, first_gap=_never, pause=_wait, lag=late)
    assert ids.position is None


def test_a_long_transaction_stops_ids_before_the_first_gap() -> None:
    activity = Activity(now=NOON, oldest_transaction=NOON - SECOND, holder="thread 7")
    clock = Clock(activity)
    bound = id_bound(Ceiling(9, NOON), look=clock.look, first_gap=lambda: 5, pause=clock.pause)
    assert bound.position == Position(id=4)
    assert bound.held_by == "thread 7"


def test_a_short_transaction_is_waited_for() -> None:
    clock = Clock(
        Activity(now=NOON, oldest_transaction=NOON - SECOND), until=NOON + timedelta(seconds=1)
    )
    bound = id_bound(Ceiling(9, NOON), look=clock.look, first_gap=_never, pause=clock.pause)
    assert bound.position == Position(id=9)


def test_unseen_transactions_cost_the_lag_only_if_ids_are_missing() -> None:
    clock = Clock(Activity(now=NOON, unseen="a replica", applied=NOON))
    dense = id_bound(Ceiling(9, NOON), look=clock.look, first_gap=lambda: None, pause=clock.pause)
    assert (dense.position, clock.now) == (Position(id=9), NOON)
    late = id_bound(Ceiling(9, NOON), look=clock.look, first_gap=lambda: 5, pause=clock.pause)
    assert late.position == Position(id=9)
    assert REPLICA_LAG < clock.now - NOON < REPLICA_LAG + SECOND


def test_waiting_for_a_replica_that_falls_behind_ends() -> None:
    clock = Clock(Activity(now=NOON, unseen="a replica", applied=NOON), stuck=True)
    bound = id_bound(Ceiling(9, NOON), look=clock.look, first_gap=lambda: 5, pause=clock.pause)
    assert bound.position == Position(id=4)
    assert clock.now - NOON < 2 * REPLICA_LAG


class Clock:
    """A server with one thing in flight for some time."""

    def __init__(
        self, activity: Activity, until: datetime | None = None, *, stuck: bool = False
    ) -> None:
        self.activity, self.until, self.now = activity, until, activity.now
        self.stuck = stuck

    def look(self) -> Activity:
        if self.until and self.now >= self.until:
            return Activity(now=self.now)
        applied = self.now if self.activity.applied and not self.stuck else self.activity.applied
        return structs.replace(self.activity, now=self.now, applied=applied)

    def pause(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def _never() -> int | None:
    raise AssertionError("there was no need to look for gaps")


def _wait(seconds: float) -> None:
    raise AssertionError(f"there was no need to wait {seconds} s")


# Zones

NEW_YORK = ZoneInfo("America/New_York")
PUT_BACK = datetime(2025, 11, 2, 6, 0, tzinfo=UTC)  # 02:00 summer time becomes 01:00


def test_a_timestamp_is_utc_and_a_datetime_the_wall_clock() -> None:
    activity = Activity(now=NOON, server_offset=timedelta(hours=8))
    assert timestamp_bound(activity, column("timestamp")).position == Position(NOON - SECOND)
    assert timestamp_bound(activity, column()).position == Position(
        NOON + timedelta(hours=8) - SECOND
    )
    assert timestamp_bound(activity, column(), zone=NEW_YORK).position == Position(
        NOON - timedelta(hours=4) - SECOND
    )


@pytest.mark.parametrize(
    ("minutes", "shown"),
    [(-90, "00:30"), (-60, "01:00"), (-30, "01:00"), (0, "01:00"), (30, "01:30"), (60, "02:00")],
)
def test_a_repeated_hour_is_held_back_until_it_is_over(minutes: int, shown: str) -> None:
    wall = earliest_wall(PUT_BACK + timedelta(minutes=minutes), NEW_YORK)
    assert f"{wall:%H:%M}" == shown


@given(
    first=st.integers(-48 * 3600, 48 * 3600),
    later=st.integers(0, 24 * 3600),
    zone=st.sampled_from(("America/New_York", "Asia/Shanghai", "Europe/London", "UTC")),
)
def test_no_later_time_is_before_the_bound(first: int, later: int, zone: str) -> None:
    moment = PUT_BACK + first * SECOND
    bound = earliest_wall(moment, ZoneInfo(zone))
    shown = (moment + later * SECOND).astimezone(ZoneInfo(zone)).replace(tzinfo=UTC)
    assert shown >= bound
