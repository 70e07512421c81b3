"""A position records the clock that it was read by; one that is set back is detected."""

import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from unittest.mock import patch

import pytest

from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.model import lake_layout
from floodmark.model.manifest import Set
from floodmark.model.position import Position
from floodmark.model.timestamps import utc_now
from pipelines import Ended, Pipeline, ask, ask_once, session
from scenarios import open_store, snapshot

New = Callable[..., Pipeline]


@pytest.fixture
def zone(server: PrivateMariaDB) -> Iterator[Callable[[str], None]]:
    """Gives the server another time zone, and its own again afterwards."""
    ((before,),) = server.execute("SELECT @@GLOBAL.time_zone")

    def change(name: str) -> None:
        server.execute(f"SET GLOBAL time_zone = '{name}'")

    yield change
    server.execute(f"SET GLOBAL time_zone = '{before}'")


def create(it: Pipeline, kind: str) -> None:
    ask_once(
        it,
        f"CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, update_at {kind} NOT NULL,"
        " KEY by_change (update_at, id))",
    )


def insert(it: Pipeline) -> None:
    ask_once(it, "INSERT INTO t (update_at) VALUES (NOW() - INTERVAL 5 SECOND)")


def follow_hint(it: Pipeline) -> None:
    """Sync, which must fail, and run the command that the hint names."""
    ended = it.sync("--json")
    assert (ended.code, ended.table["rows"]) == (1, 0)
    assert "rows stamped in between would be missed" in ended.table["error"]
    command = shlex.split(ended.table["hint"].partition("'floodmark ")[2].partition("' moves")[0])
    assert it.call(*command).code == 0


@pytest.mark.follows_hint("if that clock is right, 'floodmark watermark set -t …")
def test_the_server_gets_a_time_zone_further_west(
    pipeline: New, zone: Callable[[str], None]
) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    zone("+08:00")
    create(it, "DATETIME")
    insert(it)
    assert it.synced()["rows"] == 1
    zone("+00:00")
    insert(it)
    follow_hint(it)
    it.synced()
    assert it.ids().keys() == {1, 2}
    assert it.synced()["rows"] == 0


def test_the_server_gets_a_time_zone_further_east(
    pipeline: New, zone: Callable[[str], None]
) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    zone("+00:00")
    create(it, "DATETIME")
    insert(it)
    assert it.synced()["rows"] == 1
    zone("+08:00")
    insert(it)
    assert it.synced()["rows"] == 1


def test_a_timestamp_becomes_a_datetime(pipeline: New, zone: Callable[[str], None]) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    zone("-05:00")
    create(it, "TIMESTAMP")
    insert(it)
    assert it.synced()["rows"] == 1
    with session(it) as application:
        ask(application, "ALTER TABLE t MODIFY update_at DATETIME NOT NULL")
    insert(it)
    follow_hint(it)
    it.synced()
    assert it.ids().keys() == {1, 2}


def test_a_position_ahead_of_the_clock_is_never_nothing_new(pipeline: New) -> None:
    """Whatever put it there: a position that rests on no clock is compared with the present one."""
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    create(it, "DATETIME")
    insert(it)
    assert it.synced()["rows"] == 1
    it.write_config("extraction: {cursor_time_zone: Etc/GMT+3}")  # three hours west of Greenwich
    insert(it)
    follow_hint(it)


# A machine whose clock is wrong

enough = pytest.mark.enough_on("mysql")
DAYS = timedelta(days=3)


@contextmanager
def clock_ahead(by: timedelta) -> Iterator[None]:
    """Let the program believe that it is later."""
    with patch("floodmark.api.context.utc_now", lambda: utc_now() + by):
        yield


def written_ahead(it: Pipeline, *arguments: str) -> None:
    """Sync by a clock that is ahead, as a version did that did not compare it."""
    with clock_ahead(DAYS), patch("floodmark.sync.machine_clock.CLOCK_SKEW", 2 * DAYS):
        assert it.call("sync", "-p", "main", *arguments).code == 0


def state(it: Pipeline) -> dict[str, bytes]:
    """Everything in the lake but leases, records of runs, and what is known of the lake."""
    found = snapshot(it.lake.open())
    passing = (lake_layout.LEASES, lake_layout.PROBED, lake_layout.RUNS)
    return {key: data for key, data in found.items() if not key.startswith(passing)}


def follow(it: Pipeline, said: str) -> Ended:
    """Run the watermark command that a hint names."""
    named = re.search(r"floodmark (watermark (?:restore|reset) -t .*?)'", said)
    assert named is not None, said
    ended = it.call(*shlex.split(named[1]), "--force")
    assert ended.code == 0, ended
    return ended


def some_rows(it: Pipeline) -> None:
    create(it, "DATETIME")
    insert(it)


@pytest.mark.follows_hint("set the clock that is wrong (NTP), then run the command again")
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("by", [DAYS, -DAYS, timedelta(minutes=6)])
def test_a_machine_whose_clock_is_wrong_commits_nothing(
    pipeline: New, by: timedelta, first: bool
) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    some_rows(it)
    if not first:
        assert it.call("sync", "-p", "main").code == 0
        insert(it)
    before = state(it)
    with clock_ahead(by):
        for arguments in ((), ("--redshift-only",)):
            ended = it.call("sync", "-p", "main", *arguments)
            if first and arguments:
                continue  # there is nothing to load
            assert ended.code == 1, ended
            assert "this machine's clock says" in ended.out
            assert state(it) == before
        plan = it.call("sync", "-p", "main", "--dry-run")
        assert "this machine's clock says" in plan.out + plan.err
        compared = it.call("doctor", "--json")
        assert compared.code == 1
        wrong = [check for check in compared.value if "its clock is" in check["finding"]]
        assert {check["subject"] for check in wrong} == {"lake", "source PROD"}
    assert it.call("sync", "-p", "main").code == 0
    assert it.ids().keys() == ({1} if first else {1, 2})
    it.check_tracking()


@enough
@pytest.mark.follows_hint("the writing machine had a wrong clock: 'floodmark watermark …")
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("stages", [[], ["--backup-only"]])
def test_a_state_that_a_wrong_clock_wrote_is_left_by_the_hint(
    pipeline: New, first: bool, stages: list[str]
) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    some_rows(it)
    if not first:
        assert it.call("sync", "-p", "main").code == 0
        insert(it)
    written_ahead(it, *stages)
    before = state(it)
    for command in (["sync", "-p", "main"], ["watermark", "get", "-t", f"{it.schema}.t"]):
        ended = it.call(*command)
        assert ended.code == 1
        assert state(it) == before
        said = ended.out + ended.err
        assert "which is in the future: this machine's clock says" in said
    assert "which is in the future" in it.call("watermark", "list", "--json").out
    follow(it, said)
    insert(it)
    ended = it.call("sync", "-p", "main", "--json")
    assert ended.code == 0
    assert ended.table["rows"] == 1, "what a wrong clock has read is not read again"
    assert set(it.ids().values()) == {1}
    assert it.call("watermark", "validate", "-t", f"{it.schema}.t").code == 0
    assert it.call("watermark", "list").code == 0
    it.lake.open().delete(lake_layout.primary(it.table()))
    assert it.call("sync", "-p", "main").code == 0
    it.check_tracking()


@enough
@pytest.mark.parametrize("first", [True, False])
def test_a_position_in_the_future_is_left_by_the_hint(pipeline: New, first: bool) -> None:
    """As when MySQL and this machine share a clock that was days ahead."""
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    some_rows(it)
    if not first:
        assert it.call("sync", "-p", "main").code == 0
    ahead = open_store(it.lake.open(), clock=lambda: utc_now() + DAYS)
    moment: datetime = (utc_now() + DAYS).replace(microsecond=0)
    ahead.commit(it.table(), lambda _: Set(position=Position(moment)))
    ended = it.call("sync", "-p", "main")
    assert ended.code == 1
    follow(it, ended.out + ended.err)
    insert(it)
    assert it.call("sync", "-p", "main").code == 0
    assert it.ids().keys() == {1, 2}
    assert it.call("watermark", "validate", "-t", f"{it.schema}.t").code == 0


@enough
def test_clock_behind_during_a_load_stops_it_safely(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    some_rows(it)
    assert it.call("sync", "-p", "main", "--backup-only").code == 0
    before = state(it)
    with clock_ahead(-DAYS):
        ended = it.call("sync", "-p", "main", "--redshift-only")
        assert ended.code == 1
        assert "if this clock is wrong, set it (NTP)" in ended.out + ended.err
    assert state(it) == before
    ended = it.call("sync", "-p", "main", "--redshift-only", "--json")
    assert ended.table["loaded_rows"] == 1
