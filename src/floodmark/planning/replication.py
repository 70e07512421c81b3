"""How a server's replication role limits what may be read from it.

On a primary all transactions in flight can be seen (`planning.bounds`). A replica shows those that
it applies, not those that are open on its primary. There are three ways to read from a replica:

    primary      the connection configures the primary. In-flight activity and the GTID position are
                 read there, we wait until the replica has executed that position, and rows are read
                 up to the primary's own bound. Exact.
    applied      rows are read up to the time that the replica has provably applied, minus the lag.
                 Exact as long as no transaction on the primary lasts longer than the lag.
    held back    replication is stopped, or its progress is not known: nothing is read.

A replica has provably applied, per channel: if it is behind, everything up to the event that it is
applying; if it has caught up, everything up to the time it last received something from its source,
because a receiver with a broken network reports no delay until `replica_net_timeout` is over. A
heartbeat table covers both: its newest row was written on the primary at that time.
"""

from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct

from floodmark.model.formatting import counted
from floodmark.model.server import Channel, Server

_ROUNDING = timedelta(seconds=1)  # delays are reported in whole seconds
_FUTURE = timedelta(seconds=5)
_SEVERAL = 2

RESTART = (
    "start replication there; if the server was promoted, RESET REPLICA ALL (or RESET SLAVE ALL)"
)
NAME_PRIMARY = (
    "name its primary in the connection ('primary: {host: …}') for exact bounds, or a heartbeat"
    " table ('heartbeat: {table: …}'); if it was promoted, RESET REPLICA ALL (or RESET SLAVE ALL)"
)


class Role(Struct, frozen=True):
    """A server's role; only on a `primary` can all transactions be seen."""

    kind: Literal["primary", "replica", "cluster", "unknown"]
    why: str = ""
    hint: str | None = None


class Applied(Struct, frozen=True):
    """The time up to which everything committed on the primary is applied; or why it is unknown."""

    moment: datetime | None = None
    held: str | None = None
    hint: str | None = None


def role_of(server: Server) -> Role:
    """Determine a server's role."""
    group = server.group
    if group is not None and group.kind == "cluster":
        return Role("cluster", "a cluster: transactions on its other nodes cannot be seen")
    if group is not None and group.primary and group.multi_primary:
        why = "a group with several primaries: transactions on the others cannot be seen"
        return Role("cluster", why)
    settled = group is not None and not (group.waiting or group.problem or server.read_only)
    if group is not None and group.primary and settled and not server.channels:
        return Role("primary")
    if server.channels:
        return Role("replica", "a replica: transactions open on its primary cannot be seen")
    if group is not None:
        return Role("replica", "a group member that is not the primary, or not yet")
    if server.read_only:
        why = f"read-only ({', '.join(server.read_only)}), so treated as a replica"
        return Role("replica", why)
    if server.channels is None and not server.unreplicated:
        return Role(
            "unknown",
            f"no {server.replica_grant} privilege, so it is unknown whether this is a replica",
            hint=f"GRANT {server.replica_grant} ON *.* TO the user",
        )
    return Role("primary")


def applied_moment(
    server: Server, role: Role, now: datetime, heartbeat: datetime | None
) -> Applied:
    """Return the time up to which a server has applied everything committed elsewhere."""
    moments: list[datetime] = []
    if heartbeat is not None:
        if heartbeat > now + _FUTURE:
            return Applied(held=f"the heartbeat {heartbeat:%Y-%m-%d %H:%M:%S} is in the future")
        if len(server.channels or ()) < _SEVERAL:
            return Applied(heartbeat)
        moments.append(heartbeat)  # it is replicated through only one of the channels
    if role.kind == "unknown":
        return Applied(held=role.why, hint=role.hint)
    if group := server.group:
        if group.problem or group.waiting:
            count = counted(group.waiting, "transaction")
            waiting = f"{count} of other members not yet applied"
            return Applied(held=group.problem or waiting)
        moments.append(now)
    for channel in server.channels or ():
        if stopped := _stopped(channel):
            return Applied(held=f"{channel}: {stopped}", hint=RESTART)
        if channel.chained and heartbeat is None:
            why = "its source is a replica itself, with an unknown delay"
            return Applied(held=f"{channel}: {why}", hint=NAME_PRIMARY)
        if not channel.caught_up and not channel.behind:
            return Applied(held=f"{channel} is behind, and the server does not report by how much")
        behind = channel.behind or timedelta(0)
        if channel.caught_up:
            # Parallel appliers may be behind even if the last event was read.
            behind = max(behind, channel.silence)
        moments.append(now - behind - _ROUNDING)
    if not moments:
        why = f"{', '.join(server.read_only)} is on, and no replication channel is shown"
        held = f"its delay behind the primary is not known: {why}"
        return Applied(held=held, hint=NAME_PRIMARY)
    return Applied(min(moments))


def why_not_primary_of(primary: Server, replica: Server) -> str | None:
    """Return why a server is not the primary of a replica; None if it is.

    Every channel of the replica must replicate from it directly. Further up a chain, a former
    primary after a failover looks like an idle one.
    """
    ours, theirs = replica.group, primary.group
    if ours and theirs and ours.name and ours.name == theirs.name and not replica.channels:
        return None
    if replica.channels is None:
        return f"no {replica.replica_grant} privilege on the replica, so its source cannot be seen"
    if not replica.channels:
        return "no replication channel is shown on the replica"
    for channel in replica.channels:
        if channel.source != primary.uuid:
            return f"{channel} of the replica has another source than the configured primary"
        if stopped := _stopped(channel):
            return f"{channel} of the replica: {stopped}"
    return None


def _stopped(channel: Channel) -> str | None:
    if not channel.applying:
        return "the applier is stopped"
    return None if channel.receiving else "the receiver is not connected to its source"
