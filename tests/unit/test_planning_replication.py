"""What a server is, and how far a replica has come."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from floodmark.model.server import Channel, Group, Server
from floodmark.planning.replication import applied_moment, role_of

NOON = datetime(2025, 8, 4, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
CHANNEL = Channel(
    name="",
    source="1",
    receiving=True,
    applying=True,
    caught_up=True,
    behind=timedelta(0),
    silence=timedelta(0),
)


def server(**facts: Any) -> Server:
    return Server(identity="1@host:3306", uuid="1", product="mysql", version="9.7", **facts)


def group(**facts: Any) -> Group:
    return Group(**{"kind": "group", "primary": False, "multi_primary": False, **facts})


@pytest.mark.parametrize(
    ("facts", "role"),
    [
        ({}, "primary"),
        ({"channels": (CHANNEL,)}, "replica"),
        ({"channels": (structs.replace(CHANNEL, receiving=False, applying=False),)}, "replica"),
        ({"read_only": ("read_only",)}, "replica"),
        ({"read_only": ("innodb_read_only",)}, "replica"),
        ({"channels": None}, "unknown"),
        ({"channels": None, "unreplicated": True}, "primary"),
        ({"channels": None, "unreplicated": True, "read_only": ("read_only",)}, "replica"),
        ({"group": group(primary=True)}, "primary"),
        ({"group": group(primary=True), "channels": (CHANNEL,)}, "replica"),
        ({"group": group()}, "replica"),
        ({"group": group(primary=True, multi_primary=True)}, "cluster"),
        ({"group": group(kind="cluster", primary=True, multi_primary=True)}, "cluster"),
    ],
    ids=str,
)
def test_what_a_server_is(facts: dict[str, Any], role: str) -> None:
    assert role_of(server(**facts)).kind == role


def applied(heartbeat: datetime | None = None, **facts: Any) -> datetime | str:
    found = server(**facts)
    result = applied_moment(found, role_of(found), NOON, heartbeat)
    assert (result.moment is None) != (result.held is None)
    return result.moment or str(result.held)


def channel(**facts: Any) -> dict[str, Any]:
    return {"channels": (structs.replace(CHANNEL, **facts),)}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (channel(), NOON - SECOND),
        (channel(silence=30 * SECOND), NOON - 31 * SECOND),
        (channel(caught_up=False, behind=9 * SECOND, silence=30 * SECOND), NOON - 10 * SECOND),
        # A server that has just started its applier reports no delay, whatever it is.
        (channel(caught_up=False, behind=timedelta(0)), "does not say how far"),
        (channel(caught_up=False, behind=None), "does not say how far"),
        (channel(applying=False), "applier is stopped"),
        (channel(receiving=False), "receiver is not connected"),
        ({"read_only": ("innodb_read_only",)}, "innodb_read_only is on"),
        ({"channels": None}, "no REPLICATION CLIENT privilege"),
        ({"group": group()}, NOON),
        ({"group": group(waiting=3)}, "3 transactions"),
        ({"group": group(problem="RECOVERING")}, "RECOVERING"),
    ],
    ids=str,
)
def test_how_far_a_replica_has_come(facts: dict[str, Any], expected: datetime | str) -> None:
    found = applied(**facts)
    assert found == expected if isinstance(expected, datetime) else expected in str(found)


@given(st.lists(st.integers(0, 1000), min_size=1), st.integers(0, 1000))
def test_the_channel_furthest_behind_counts(delays: list[int], silence: int) -> None:
    channels = tuple(
        structs.replace(
            CHANNEL,
            caught_up=delay == 0,
            behind=delay * SECOND,
            silence=silence * SECOND,
        )
        for delay in delays
    )
    behind = max(delay or silence for delay in delays)
    assert applied(channels=channels) == NOON - (behind + 1) * SECOND


@given(st.permutations([{}, {"applying": False}, {"caught_up": False, "behind": SECOND}]))
def test_one_stopped_channel_holds_everything_back(kinds: list[dict[str, Any]]) -> None:
    channels = tuple(structs.replace(CHANNEL, **facts) for facts in kinds)
    assert "stopped" in str(applied(channels=channels))


def test_a_heartbeat_counts_more_than_what_channels_say() -> None:
    beat = NOON - 7 * SECOND
    assert applied(heartbeat=beat, **channel(applying=False)) == beat
    assert "lies in the future" in str(applied(heartbeat=NOON + timedelta(hours=8)))
