"""How far a table may be read so that no row can still appear below that bound.

A row is lost if it becomes visible below a position that was already passed. It can only belong to
a transaction that was in flight while we read, so we read in this order:

    1  now            the server's clock
    2  statements     running statements         (information_schema.processlist)
    3  transactions   open in InnoDB             (information_schema.innodb_trx)
    4  the rows

A statement takes its NOW() when it begins, and then goes through these states, only ever forward:

    a  running, not yet known to InnoDB (waiting for a metadata lock, evaluating a subquery …)
    b  running, known to InnoDB
    c  ended, its transaction still open
    d  committed or rolled back

Consider a statement that began before 1. At 2 it is in a or b, and seen; or in c, and then at 3 it
is seen, or it is in d; or in d. Everything in d at 3 is visible at 4. A statement that begins after
1 stamps its rows with `now` or later. So every row that is not visible at 4 is stamped no earlier
than `now`, or than the start of something seen at 2 or 3. In the other order, 3 before 2, a
statement could go from a to c in between and be missed by both.

Two things are not exact. A transaction is listed with the second in which InnoDB registered it,
which is later than its first statement's NOW() if that had to wait in state a: hence `GRACE`. And
NOW() without a precision writes whole seconds into any column: hence no second is read before it is
over, whatever the column's precision.

One reading of 1 to 3 serves any number of tables, as long as it precedes their rows. The argument
needs 4 to be after 3, not right after it: transactions in d at 3 stay visible, and statements that
begin after 1 stamp no earlier than `now`, however much later the rows are read. An older reading
gives an earlier bound, never a wrong one. For ids the order is: ceiling, then 1 to 3, then the
rows; so the ceilings of all tables are read in a snapshot that is taken right before 1.

The guarantee: no row is missed whose cursor value is at least the start time of the statement that
wrote it, unless that statement was the first of its transaction, waited longer than `GRACE` for a
metadata lock, and the transaction stayed open after it. A value that the application computed
earlier is covered if it is not older than a transaction that InnoDB had open. A configured `lag`
extends both.

Where transactions cannot be seen, nothing is assumed silently:

    no PROCESS privilege     nothing is read, unless a lag is configured
    a replica, a cluster     `applied` minus the lag, `REPLICA_LAG` if none is configured
    replication stopped      nothing is read (`planning.replication`)
    XA, prepared before the  it is listed as if it had begun at the restart: nothing is read until
    last restart             it ends, unless a lag covers how long before that it may have begun
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo

from floodmark.model.bound import Activity, Bound, Ceiling
from floodmark.model.position import Position
from floodmark.model.schema import SourceColumn

_HORIZON = timedelta(hours=26)
_STEP = timedelta(minutes=15)

GRACE = timedelta(seconds=5)
REPLICA_LAG = timedelta(seconds=60)
PATIENCE = timedelta(seconds=5)
HELD_AFTER = timedelta(seconds=60)  # do not report shorter delays
POLL = timedelta(seconds=0.25)

_SECOND = timedelta(seconds=1)
_MICROSECOND = timedelta(microseconds=1)


def settled_before(activity: Activity, lag: timedelta | None = None) -> datetime | None:
    """Return the time before which every row is settled: rows stamped earlier are committed.

    None if there is no such time, because too little can be seen.
    """
    if why_held(activity, lag):
        return None
    if activity.unseen:
        lag = REPLICA_LAG if lag is None else lag
        return ((activity.applied or activity.now) - lag).replace(microsecond=0)
    late = lag or timedelta(0)
    moments = [activity.now - late]
    if activity.oldest_statement:
        moments.append(activity.oldest_statement - late)
    if activity.oldest_transaction:
        moments.append(activity.oldest_transaction - max(late, GRACE))
    return min(moments).replace(microsecond=0)


def why_held(activity: Activity, lag: timedelta | None) -> str | None:
    """Return why nothing may be read; None if something may."""
    if activity.held:
        return activity.held
    if activity.unseen and activity.applied is None and lag is None:
        return activity.unseen
    return activity.undated if lag is None and not activity.unseen else None


def timestamp_bound(
    activity: Activity,
    column: SourceColumn,
    *,
    zone: tzinfo | None = None,
    lag: timedelta | None = None,
) -> Bound:
    """Return how far a table with a time cursor may be read.

    Positions are column values. A TIMESTAMP is read in UTC; a DATETIME has the wall clock time of
    `zone`, or of the server if none is configured.
    """
    settled = settled_before(activity, lag)
    if settled is None:
        return held_back(activity, lag)
    moment = settled
    if column.data_type != "timestamp":
        moment = earliest_wall(moment, zone) if zone else moment + activity.server_offset
    tick = max(_SECOND / 10 ** (column.fraction or 0), _MICROSECOND)
    return Bound(
        position=Position(moment.astimezone(UTC) - tick), held_by=_holder(activity), fresh=settled
    )


def held_back(activity: Activity, lag: timedelta | None) -> Bound:
    """Return a bound without a position: nothing may be read."""
    hint = activity.hint
    if hint is None and not activity.held and activity.unseen:
        hint = "GRANT PROCESS ON *.* TO the user, or set 'extraction.lag_seconds'"
    return Bound(position=None, held_by=why_held(activity, lag), hint=hint)


def id_bound(
    ceiling: Ceiling,
    *,
    look: Callable[[], Activity],
    first_gap: Callable[[], int | None],
    pause: Callable[[float], None],
    lag: timedelta | None = None,
    patience: timedelta = PATIENCE,
) -> Bound:
    """Return how far a table with an id cursor may be read.

    Ids are assigned in increasing order, each while the inserting statement is running. So every
    transaction that holds an id below the ceiling began before the ceiling was read. Once all of
    them have ended, the gaps below the ceiling are permanent: the ceiling is the bound.

    Usually that takes no time, or as long as a short transaction. A transaction that outlasts
    `patience`, or already has, may hold any missing id: then the bound is right before `first_gap`,
    the first missing id after the table's position. No id below that can still appear.

    Where transactions cannot be seen, they are assumed to last no longer than the lag; wait that
    long if there is any gap. `look` must return activity that was read after the ceiling.
    """
    activity = look()
    last_look = ceiling.read_at + patience
    if activity.unseen and not why_held(activity, lag):
        if first_gap() is None:
            return _up_to(ceiling.id, activity, lag)
        last_look = activity.now + _until_settled(ceiling, activity, lag) + patience
    while not (settled := _ids_settled(ceiling, activity, lag)):
        if settled is None:
            return held_back(activity, lag)
        if activity.now >= last_look or _is_long(activity, patience):
            gap = first_gap()
            return _up_to(ceiling.id if gap is None else gap - 1, activity, lag)
        waiting = _until_settled(ceiling, activity, lag) if activity.unseen else POLL
        pause(min(waiting, last_look - activity.now).total_seconds())
        activity = look()
    return Bound(position=Position(id=ceiling.id), fresh=ceiling.read_at)


def _is_long(activity: Activity, patience: timedelta) -> bool:
    """Return whether something has been in flight for so long that waiting is pointless."""
    began = [activity.oldest_statement, activity.oldest_transaction]
    return not activity.unseen and any(b and activity.now - b > 2 * patience for b in began)


def _up_to(number: int, activity: Activity, lag: timedelta | None) -> Bound:
    return Bound(
        position=Position(id=number),
        held_by=_holder(activity),
        fresh=settled_before(activity, lag),
    )


def _until_settled(ceiling: Ceiling, activity: Activity, lag: timedelta | None) -> timedelta:
    """Return how long to wait for unseen transactions, if a replica falls no further behind."""
    over = ceiling.read_at + (REPLICA_LAG if lag is None else lag) + _MICROSECOND
    return max(POLL, over - (activity.applied or activity.now))


def _ids_settled(ceiling: Ceiling, activity: Activity, lag: timedelta | None) -> bool | None:
    """Return whether all transactions with ids below the ceiling have ended; None if unknown."""
    if why_held(activity, lag):
        return None
    if activity.unseen:
        late = REPLICA_LAG if lag is None else lag
        return (activity.applied or activity.now) - late > ceiling.read_at
    statement, transaction = activity.oldest_statement, activity.oldest_transaction
    return (statement is None or statement > ceiling.read_at) and (
        # An id is assigned just before InnoDB opens the transaction, listed in whole seconds.
        transaction is None or transaction - _SECOND > ceiling.read_at
    )


def _holder(activity: Activity) -> str | None:
    """Return the session or transaction that holds the bound back; a lag is not one."""
    return None if activity.unseen else activity.undated or activity.holder


def earliest_wall(moment: datetime, zone: tzinfo) -> datetime:
    """Return the earliest wall-clock time in a zone at a moment or later, written as UTC.

    An hour is repeated when clocks are set back. Until then, later rows may be stamped as early as
    the start of that hour; so the hour is held back until its second pass.
    """
    quarter = moment.replace(minute=moment.minute // 15 * 15, second=0, microsecond=0)
    # Clocks change at full quarters of an hour; in between they only move forward.
    steps = range(1, _HORIZON // _STEP + 1)
    return min(_wall(at, zone) for at in (moment, *(quarter + _STEP * step for step in steps)))


def _wall(moment: datetime, zone: tzinfo) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=UTC)
