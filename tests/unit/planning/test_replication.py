"""The role of a server, and what a replica has applied."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from floodmark.model.server import Channel, Group, Server
from floodmark.mysql.gtids import is_of, owned_gtids
from floodmark.planning.replication import applied_moment, role_of, why_not_primary_of

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
        # A newly elected primary that has not applied everything from the last one.
        ({"group": group(primary=True, waiting=1)}, "replica"),
        ({"group": group(primary=True), "read_only": ("super_read_only",)}, "replica"),
        ({"group": group(primary=True, multi_primary=True)}, "cluster"),
        ({"group": group(kind="cluster", primary=True, multi_primary=True)}, "cluster"),
    ],
    ids=str,
)
def test_roles_of_servers(facts: dict[str, Any], role: str) -> None:
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
        # A server that has just started its applier reports no delay, even if there is one.
        (channel(caught_up=False, behind=timedelta(0)), "does not report by how much"),
        (channel(caught_up=False, behind=None), "does not report by how much"),
        # Parallel appliers may be behind even if the last event was read.
        (channel(behind=9 * SECOND), NOON - 10 * SECOND),
        (channel(chained=True), "its source is a replica itself"),
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
def test_what_a_replica_has_applied(facts: dict[str, Any], expected: datetime | str) -> None:
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


def test_a_heartbeat_overrides_the_delay_of_channels() -> None:
    beat = NOON - 7 * SECOND
    assert applied(heartbeat=beat, **channel(applying=False)) == beat
    assert "is in the future" in str(applied(heartbeat=NOON + timedelta(hours=8)))
    assert applied(heartbeat=beat, **channel(chained=True)) == beat


def test_a_heartbeat_covers_one_channel_only() -> None:
    beat = NOON - 7 * SECOND
    stopped = structs.replace(CHANNEL, name="b", applying=False)
    slow = structs.replace(CHANNEL, name="b", caught_up=False, behind=30 * SECOND)
    assert "stopped" in str(applied(heartbeat=beat, channels=(CHANNEL, stopped)))
    assert applied(heartbeat=beat, channels=(CHANNEL, slow)) == NOON - 31 * SECOND
    assert applied(heartbeat=beat, channels=(CHANNEL, CHANNEL)) == beat


def test_a_primary_must_be_the_source_of_every_channel() -> None:
    primary = server()
    other = structs.replace(CHANNEL, name="b", source="2")
    assert why_not_primary_of(primary, server(channels=(CHANNEL,))) is None
    for channels, why in (
        ((other,), "has another source"),
        ((CHANNEL, other), "has another source"),
        ((structs.replace(CHANNEL, receiving=False),), "receiver is not connected"),
        ((structs.replace(CHANNEL, applying=False),), "applier is stopped"),
        ((), "no replication channel"),
        (None, "no REPLICATION CLIENT privilege"),
    ):
        assert why in str(why_not_primary_of(primary, server(channels=channels)))
    member = server(group=group(name="g"), read_only=("super_read_only",))
    assert why_not_primary_of(server(group=group(name="g", primary=True)), member) is None
    assert why_not_primary_of(server(group=group(name="h", primary=True)), member)


def test_owned_gtids() -> None:
    first, second = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4f11fa47-71ca-11e1-9e33-c80aa9429562"
    assert owned_gtids("") == []
    assert owned_gtids(f"{first}:12#32:11#33,\n{second}:5#1:tag:7#2:8#3") == [
        f"{first}:12",
        f"{first}:11",
        f"{second}:5",
        f"{second}:tag:7",
        f"{second}:tag:8",
    ]


def test_gtid_formats_by_product() -> None:
    assert is_of("mariadb", "0-1-100,5-2-7")
    assert is_of("mysql", "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:tag:7")
    assert not is_of("mysql", "0-1-100")
    assert not is_of("mariadb", "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5")
    assert not is_of("mysql", "') OR SLEEP(9) OR ('")
