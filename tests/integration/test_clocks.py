"""A position knows the clock that it was read by: one that is put back is noticed."""

import shlex
from collections.abc import Callable, Iterator

import pytest

from floodmark.embedded.mariadb import PrivateMariaDB
from pipelines import Pipeline, ask, ask_once, session

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
    assert "rows that are stamped meanwhile would not be seen" in ended.table["error"]
    command = shlex.split(ended.table["hint"].partition("'floodmark ")[2].partition("' goes")[0])
    assert it.call(*command).code == 0


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
