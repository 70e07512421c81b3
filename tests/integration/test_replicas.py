"""Replicas, groups and proxies: no committed row is lost, whatever lags behind what."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.embedded.process import free_ports
from floodmark.model.extraction import Receipt
from pipelines import (
    DirectEngine,
    Pipeline,
    ask_once,
    new_pipeline,
    source_of,
    wait_until,
)
from scenarios import Lake
from servers.mysql import MISSING, PrivateMySQL
from servers.replication import (
    Proxy,
    Replicated,
    connect,
    follow,
    forget_history,
    impatient_pair,
    new_server,
    replicated,
)

TABLE = (
    "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT, update_at TIMESTAMP(6) NOT NULL"
    " DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6), KEY by_change (update_at, id))"
)
CURSOR = {"t": "{cursor: [update_at, id]}"}
NO_LAG = "extraction: {lag_seconds: 1}"


@pytest.fixture(scope="module", params=["mariadb", "mysql"])
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Replicated]:
    with impatient_pair(request.param, tmp_path_factory.mktemp("pair")) as servers:
        yield servers


@pytest.fixture(autouse=True)
def running(request: pytest.FixtureRequest) -> Iterator[None]:
    """Leave the replica running, whatever a test did to it."""
    yield
    if "pair" in request.fixturenames:
        pair: Replicated = request.getfixturevalue("pair")
        pair.start()
        pair.catch_up()


def on_replica(pair: Replicated, folder: Path, *, settings: str = "", **more: Any) -> Pipeline:
    """A pipeline that reads from the replica; its schema is made on the primary."""
    it = new_pipeline(
        pair.primary, Lake(folder=str(folder / "lake")), folder, CURSOR, settings=settings
    )
    ask_once(it, TABLE)
    pair.catch_up()
    return change(it, source={**source_of(pair.replica), **more})


def change(it: Pipeline, **changes: Any) -> Pipeline:
    """Change what the configuration says."""
    for name, value in changes.items():
        object.__setattr__(it, name, value)
    return it.write_config()


def insert(pair: Replicated, it: Pipeline, *values: int) -> None:
    for value in values:
        pair.primary.execute(f"INSERT INTO {it.schema}.t (v) VALUES ({value})")


def values(it: Pipeline) -> list[int]:
    return sorted(row["v"] for row in it.newest().values())


def primary_of(pair: Replicated, **more: Any) -> dict[str, Any]:
    return {
        "primary": {
            "host": pair.primary.host,
            "port": pair.primary.port,
            "user": pair.primary.user,
            "password": pair.primary.password,
            **more,
        }
    }


def sync_until(it: Pipeline, wanted: list[int], seconds: float = 30) -> None:
    """Sync until these values are there; reading stays behind a replica by a few seconds."""
    deadline = time.monotonic() + seconds
    while values(it) != wanted:
        assert time.monotonic() < deadline, f"{values(it)} instead of {wanted}"
        it.synced()
        time.sleep(0.3)


# A row that is stamped first and committed last, while the applier stands between the two commits.


def test_a_stopped_applier_holds_the_table_back(pair: Replicated, tmp_path: Path) -> None:
    it = on_replica(pair, tmp_path, settings="extraction: {lag_seconds: 3}")
    with connect(pair.primary, it.schema) as late, late.cursor() as writing:
        writing.execute("INSERT INTO t (v) VALUES (1)")
        insert(pair, it, 2)
        pair.catch_up()
        pair.stop_applier()
        late.commit()
    time.sleep(5)
    result = it.synced()
    assert (result["rows"], result["status"]) == (0, "held_back")
    assert "applier is stopped" in result["held_back"]
    assert "start replication there" in result["hint"]
    pair.start()
    sync_until(it, [1, 2])


def test_a_stopped_receiver_holds_the_table_back(pair: Replicated, tmp_path: Path) -> None:
    it = on_replica(pair, tmp_path, settings=NO_LAG)
    pair.stop()
    result = it.synced()
    assert result["status"] == "held_back"
    ended = it.sync()
    assert ended.code == 0
    assert "held back" in ended.out
    assert it.call("doctor").code == 1


def test_a_stopped_replica_deletes_nothing(pair: Replicated, tmp_path: Path) -> None:
    it = on_replica(pair, tmp_path, settings=NO_LAG)
    old = f"INSERT INTO {it.schema}.t (v, update_at) VALUES"
    pair.primary.execute(f"{old} (1, '2025-06-01'), (2, '2025-06-02')")
    pair.catch_up()
    assert it.call("sync", "-p", "main").code == 0
    pair.primary.execute(f"DELETE FROM {it.schema}.t WHERE v = 1")
    pair.catch_up()
    pair.stop_applier()
    ended = it.call("reconcile", "-p", "main", "--deletes", "hard")
    assert ended.code == 0
    assert "held back" in ended.out
    assert "applier is stopped" in ended.out
    assert len(it.manifests()) == 1
    pair.start()
    pair.catch_up()
    ended = it.call("reconcile", "-p", "main", "--deletes", "hard", "--json")
    assert (ended.code, ended.table["reconciliation"]["removed"]) == (0, 1), ended


def test_a_replica_that_applies_late_is_followed(pair: Replicated, tmp_path: Path) -> None:
    it = on_replica(pair, tmp_path, settings="extraction: {lag_seconds: 3}")
    pair.stop()
    if pair.is_mysql:
        pair.replica.execute("CHANGE REPLICATION SOURCE TO SOURCE_DELAY = 4")
    else:
        pair.replica.execute("CHANGE MASTER TO MASTER_DELAY = 4")
    pair.start()
    try:
        for number in range(3):
            with connect(pair.primary, it.schema) as late, late.cursor() as writing:
                writing.execute(f"INSERT INTO t (v) VALUES ({number * 2 + 1})")
                insert(pair, it, number * 2 + 2)
                time.sleep(1)
                late.commit()
            it.synced()
            time.sleep(0.5)
        sync_until(it, [1, 2, 3, 4, 5, 6])
    finally:
        pair.stop()
        if pair.is_mysql:
            pair.replica.execute("CHANGE REPLICATION SOURCE TO SOURCE_DELAY = 0")
        else:
            pair.replica.execute("CHANGE MASTER TO MASTER_DELAY = 0")


# With the primary


@pytest.mark.follows_hint("name its primary in the connection ('primary: {host: …}')")
def test_with_its_primary_a_replica_is_read_exactly(pair: Replicated, tmp_path: Path) -> None:
    it = on_replica(pair, tmp_path, **primary_of(pair))
    with connect(pair.primary, it.schema) as late, late.cursor() as writing:
        writing.execute("INSERT INTO t (v) VALUES (1)")
        insert(pair, it, 2)
        pair.catch_up()
        time.sleep(1.1)
        assert it.synced()["rows"] == 0  # a transaction is open on the primary
        late.commit()
    time.sleep(1.1)
    assert it.synced()["rows"] == 2  # at once: there is no lag
    assert values(it) == [1, 2]
    assert it.chunks()[-1].gtids


def test_with_its_primary_a_stopped_replica_is_waited_for(pair: Replicated, tmp_path: Path) -> None:
    it = on_replica(pair, tmp_path, **primary_of(pair, wait_seconds=1))
    insert(pair, it, 1)
    pair.catch_up()
    pair.stop_applier()
    insert(pair, it, 2)
    time.sleep(1.1)
    assert "applier is stopped" in it.synced()["held_back"]
    pair.start()
    time.sleep(0.1)
    sync_until(it, [1, 2])


def test_ids_through_a_replica_with_its_primary(pair: Replicated, tmp_path: Path) -> None:
    it = on_replica(pair, tmp_path, **primary_of(pair))
    change(it, tables={"t": "{cursor: id}"})
    with connect(pair.primary, it.schema) as late, late.cursor() as writing:
        insert(pair, it, 1)
        writing.execute("INSERT INTO t (v) VALUES (2)")
        insert(pair, it, 3)
        pair.catch_up()
        assert it.synced()["rows"] == 1  # the second id may still come
        late.commit()
    time.sleep(1.1)
    it.synced()
    assert values(it) == [1, 2, 3]


def test_a_primary_that_is_none_is_refused(pair: Replicated, tmp_path: Path) -> None:
    primary = {"host": pair.replica.host, "port": pair.replica.port}
    it = on_replica(pair, tmp_path, primary=primary)
    assert "the configured primary is not a primary" in it.synced()["held_back"]


def test_a_primary_that_says_nothing_is_not_waited_for(
    pair: Replicated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        it = on_replica(
            pair, tmp_path, primary={"host": "127.0.0.1", "port": silent.getsockname()[1]}
        )
        ended = it.sync("--json")
    assert ended.code == 1
    assert "the primary: MySQL at 127.0.0.1" in ended.table["error"]


@pytest.mark.parametrize("kind", ["mariadb", "mysql"])
def test_a_replica_of_a_replica(tmp_path: Path, kind: str) -> None:
    """How far the one in the middle is behind cannot be seen from the last one."""
    if kind == "mysql" and not PrivateMySQL.is_available():
        pytest.skip(MISSING)
    with (
        replicated(kind, tmp_path / "pair") as pair,
        new_server(kind, tmp_path / "last", 3) as last,
    ):
        forget_history(last)
        follow(last, pair.replica)
        it = on_replica(pair, tmp_path / "it", settings=NO_LAG)
        insert(pair, it, 1)
        Replicated(pair.primary, last).catch_up()
        move(it, last)
        assert "its source is a replica itself" in it.synced()["held_back"]
        change(it, source={**source_of(last), **primary_of(pair)})
        assert "has another source than" in it.synced()["held_back"]


def test_a_primary_that_was_left_behind(tmp_path: Path) -> None:
    """A replica follows the new primary, and its configuration still names the old one."""
    if not PrivateMySQL.is_available():
        pytest.skip(MISSING)
    with (
        replicated("mysql", tmp_path / "pair") as pair,
        new_server("mysql", tmp_path / "last", 3) as last,
    ):
        forget_history(last)
        follow(last, pair.primary)
        it = on_replica(pair, tmp_path / "it")
        Replicated(pair.primary, last).catch_up()
        change(it, source={**source_of(last), **primary_of(pair)})
        assert it.synced()["status"] == "success"
        promote(pair)
        last.execute("STOP REPLICA")
        last.execute("RESET REPLICA ALL")
        follow(last, pair.replica)
        pair.replica.execute(f"INSERT INTO {it.schema}.t (v) VALUES (1)")
        Replicated(pair.replica, last).catch_up()
        assert "has another source than" in it.synced()["held_back"]


# Heartbeats


def test_a_heartbeat_table_shows_how_far_a_replica_is(pair: Replicated, tmp_path: Path) -> None:
    it = on_replica(pair, tmp_path, settings="extraction: {lag_seconds: 2}")
    heartbeat = f"{it.schema}.heartbeat"
    pair.primary.execute(f"CREATE TABLE {heartbeat} (ts VARCHAR(26) NOT NULL)")
    pair.catch_up()
    change(it, source={**it.source, "heartbeat": {"table": heartbeat}})
    assert "is empty" in it.synced()["held_back"]
    insert(pair, it, 1)
    time.sleep(3)
    pair.primary.execute(f"INSERT INTO {heartbeat} VALUES ('2025-06-01T12:00:00.000000')")
    pair.catch_up()
    assert it.synced()["rows"] == 0
    pair.primary.execute(f"UPDATE {heartbeat} SET ts = UTC_TIMESTAMP(6)")
    pair.catch_up()
    assert it.synced()["rows"] == 1
    pair.primary.execute(f"UPDATE {heartbeat} SET ts = UTC_TIMESTAMP(6) + INTERVAL 8 HOUR")
    pair.catch_up()
    assert "is in the future" in it.synced()["held_back"]


# Other servers that only look like a primary


def test_a_writable_replica_whose_threads_are_stopped_is_a_replica(
    pair: Replicated, tmp_path: Path
) -> None:
    it = on_replica(pair, tmp_path)
    pair.stop()
    assert pair.replica.execute("SELECT @@GLOBAL.read_only") == [(0,)]
    assert it.synced()["status"] == "held_back"


@pytest.mark.parametrize("variable", ["read_only", "super_read_only", "innodb_read_only"])
@pytest.mark.parametrize("kind", ["mariadb", "mysql"])
def test_a_read_only_server_is_held_back(
    tmp_path: Path, kind: str, variable: str, request: pytest.FixtureRequest
) -> None:
    if kind == "mysql" and not PrivateMySQL.is_available():
        pytest.skip(MISSING)
    if (kind, variable) == ("mariadb", "super_read_only"):
        pytest.skip("MariaDB has no super_read_only")
    server = new_server(kind, tmp_path / "server", 1)
    with server:
        it = new_pipeline(server, Lake(folder=str(tmp_path / "lake")), tmp_path / "it", CURSOR)
        ask_once(it, TABLE)
        ask_once(it, "INSERT INTO t (v, update_at) VALUES (1, '2025-06-01')")
        if variable != "innodb_read_only":
            server.execute(f"SET GLOBAL {variable} = ON")
            result = it.synced()
            assert (result["rows"], result["status"]) == (0, "held_back")
            assert variable in result["held_back"]
    if variable == "innodb_read_only":
        server._options["innodb-read-only"] = "1"
        with server:
            assert variable in it.synced()["held_back"]


def test_the_privilege_to_see_replication(pair: Replicated, tmp_path: Path) -> None:
    it = on_replica(pair, tmp_path, settings=NO_LAG)
    user = "reader@'127.0.0.1'"
    pair.primary.execute(f"DROP USER IF EXISTS {user}")
    pair.primary.execute(f"CREATE USER {user} IDENTIFIED BY 'x'")
    pair.primary.execute(f"GRANT SELECT, PROCESS ON *.* TO {user}")
    insert(pair, it, 1)
    pair.catch_up()
    time.sleep(2.1)
    login = {"user": "reader", "password": "x"}
    change(it, source={**source_of(pair.replica), **login})
    result = it.synced()
    privilege = "REPLICATION CLIENT" if pair.is_mysql else "REPLICA MONITOR"
    assert f"no {privilege} privilege" in result["held_back"]
    assert result["hint"] == f"GRANT {privilege} ON *.* TO the user"
    assert privilege in it.call("doctor").out
    # A server that never applied another one's transactions is no replica.
    change(it, source={**source_of(pair.primary), **login})
    assert it.synced()["rows"] == 1


@pytest.mark.skipif(not PrivateMySQL.is_available(), reason=MISSING)
def test_the_primary_of_a_group_is_no_replica(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    group = {
        "plugin-load-add": "group_replication.so",
        "loose-group-replication-group-name": "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa",
        "loose-group-replication-local-address": f"127.0.0.1:{port}",
        "loose-group-replication-group-seeds": f"127.0.0.1:{port}",
        "loose-group-replication-bootstrap-group": "ON",
        "loose-group-replication-start-on-boot": "OFF",
        "loose-group-replication-communication-stack": "XCOM",
    }
    with new_server("mysql", tmp_path / "server", 1, group) as server:
        it = new_pipeline(server, Lake(folder=str(tmp_path / "lake")), tmp_path / "it", CURSOR)
        ask_once(it, TABLE)
        ask_once(it, "INSERT INTO t (v) VALUES (1)")
        time.sleep(1.1)
        assert "group replication is configured, and not running" in it.synced()["held_back"]
        server.execute("START GROUP_REPLICATION")
        wait_until(lambda: server.execute("SELECT @@GLOBAL.super_read_only") == [(0,)])
        assert it.synced()["rows"] == 1
        doctor = it.call("doctor")
        assert "a primary: open transactions are visible" in doctor.out


GALERA = Path("/usr/lib/galera/libgalera_smm.so")


@pytest.mark.skipif(not GALERA.exists(), reason="Galera is not installed with MariaDB here")
def test_a_node_of_a_cluster(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    cluster = {
        "wsrep-on": "ON",
        "wsrep-provider": str(GALERA),
        "wsrep-cluster-address": "gcomm://",
        "wsrep-node-address": "127.0.0.1",
        "wsrep-provider-options": f"base_port={port};gmcast.listen_addr=tcp://127.0.0.1:{port}",
        "binlog-format": "ROW",
    }
    with new_server("mariadb", tmp_path / "server", 1, cluster) as server:
        it = new_pipeline(server, Lake(folder=str(tmp_path / "lake")), tmp_path / "it", CURSOR)
        ask_once(it, TABLE)
        ask_once(it, "INSERT INTO t (v, update_at) VALUES (1, NOW() - INTERVAL 5 SECOND)")
        assert it.synced()["rows"] == 0  # a minute's lag, for transactions on other nodes
        it.write_config("extraction: {lag_seconds: 3}")
        assert it.synced()["rows"] == 1
        assert "transactions on its other nodes cannot be seen" in it.call("doctor").out
        server.execute("SET GLOBAL wsrep_desync = ON")
        assert "this node of the cluster is not ready" in it.synced()["held_back"]


# Several servers behind one address


@pytest.mark.parametrize("cursor", ["[update_at, id]", "none"])
def test_rows_come_from_the_server_that_was_planned_with(
    pair: Replicated, tmp_path: Path, cursor: str
) -> None:
    it = on_replica(pair, tmp_path)
    pair.primary.execute("CREATE USER IF NOT EXISTS everywhere@'127.0.0.1' IDENTIFIED BY 'x'")
    pair.primary.execute("GRANT ALL ON *.* TO everywhere@'127.0.0.1'")
    pair.catch_up()
    pair.stop()
    insert(pair, it, *range(8))
    time.sleep(1.1)
    with Proxy(pair.primary) as proxy:
        login = {"port": proxy.port, "user": "everywhere", "password": "x"}
        change(it, source={**it.source, **login}, tables={"t": f"{{cursor: {cursor}}}"})

        class Switching(DirectEngine):
            def extract(self, *arguments: Any) -> list[Receipt]:
                proxy.point_at(pair.replica)  # the plan is made, and rows are about to be read
                return super().extract(*arguments)

        ended = it.sync("--json", engine=Switching)
        assert ended.code == 1
        assert "reached a different server" in ended.table["error"]
        assert it.chunks() == []
        proxy.point_at(pair.primary)
        assert it.synced()["rows"] == 8


def test_the_identity_of_the_server_is_in_the_manifest(pair: Replicated, tmp_path: Path) -> None:
    it = on_replica(pair, tmp_path, **primary_of(pair))
    insert(pair, it, 1)
    time.sleep(1.1)
    it.synced()
    server = it.chunks()[-1].server
    assert server
    assert f":{pair.replica.port}" in server
    assert it.watermark().mysql_state.server == server


# Failover


def move(it: Pipeline, server: PrivateMariaDB) -> None:
    change(it, source=source_of(server))


def test_a_failover_to_a_server_that_lacks_something(pair: Replicated, tmp_path: Path) -> None:
    it = on_replica(pair, tmp_path, settings=NO_LAG)
    move(it, pair.primary)
    insert(pair, it, 1)
    pair.catch_up()
    pair.stop()
    insert(pair, it, 2)
    time.sleep(2.1)
    it.synced()
    assert values(it) == [1, 2]
    # The replica is promoted without the last transaction, and goes its own way.
    pair.replica.execute(f"INSERT INTO {it.schema}.t (v, update_at) VALUES (3, '2025-06-01')")
    try:
        promote(pair)
        move(it, pair.replica)
        ended = it.sync("--json")
        assert ended.code == 1
        assert "has not executed all transactions" in ended.table["error"]
        assert "watermark set" in ended.table["hint"]
        assert values(it) == [1, 2]
    finally:
        pair.replica.execute(f"DELETE FROM {it.schema}.t WHERE v = 3")
        demote(pair)


@pytest.mark.parametrize("how", ["reconcile", "backfill"])
def test_a_failover_to_a_server_that_lacks_a_repaired_row(
    pair: Replicated, tmp_path: Path, how: str
) -> None:
    """The replica has everything that the last sync read, and not what was read again since."""
    it = on_replica(pair, tmp_path, settings=NO_LAG)
    move(it, pair.primary)
    insert(pair, it, 1)
    time.sleep(2.1)
    assert it.call("sync", "-p", "main").code == 0
    pair.catch_up()
    pair.stop()
    pair.primary.execute(f"INSERT INTO {it.schema}.t (v, update_at) VALUES (2, '2025-06-01')")
    table = ("-t", f"{it.schema}.t")
    commands = {"reconcile": ("reconcile", *table), "backfill": ("backfill", *table)}
    options = ("--from", "2025-05-01") if how == "backfill" else ()
    assert it.call(*commands[how], *options).code == 0
    assert values(it) == [1, 2]
    try:
        promote(pair)
        move(it, pair.replica)
        for command in (("reconcile", "-p", "main", "--deletes", "hard"), ("sync", "-p", "main")):
            ended = it.call(*command)
            assert ended.code == 1, ended
            assert "has not executed all transactions" in ended.out
        assert it.chunks()[-1].rows
    finally:
        demote(pair)
    move(it, pair.primary)
    assert it.call("reconcile", "-p", "main", "--deletes", "hard").code == 0


def test_a_failover_to_a_server_that_has_everything(pair: Replicated, tmp_path: Path) -> None:
    it = on_replica(pair, tmp_path, settings=NO_LAG)
    move(it, pair.primary)
    insert(pair, it, 1)
    time.sleep(2.1)
    it.synced()
    pair.catch_up()
    try:
        promote(pair)
        move(it, pair.replica)
        ended = it.sync("--json")
        assert ended.code == 0
        assert "the server is now " in ended.err
        assert f":{pair.replica.port}" in str(it.watermark().mysql_state.server)
        assert "another server" not in it.sync("--json").err
    finally:
        demote(pair)


def test_a_position_restored_from_another_server(pair: Replicated, tmp_path: Path) -> None:
    """What counts is the server that the position was read from, not the one of the last chunk."""
    it = on_replica(pair, tmp_path, settings=NO_LAG)
    change(it, source=source_of(pair.primary), tables={"t": "{cursor: id}"})
    insert(pair, it, 1, 2)
    pair.catch_up()
    pair.stop()
    insert(pair, it, 3, 4, 5)
    time.sleep(1.1)
    assert it.synced()["rows"] == 5
    try:
        promote(pair)
        move(it, pair.replica)
        ended = it.sync("--json")
        assert ended.code == 1
        assert "--id …" in ended.table["hint"]
        assert "has not executed all transactions" in it.sync("--dry-run").out
        name = f"{it.schema}.t"
        assert it.call("watermark", "reset", "-t", name, "--force").code == 0
        assert it.synced()["rows"] == 2
        pair.replica.execute(f"INSERT INTO {name} (v) VALUES (6), (7), (8), (9)")
        assert it.call("watermark", "restore", "-t", name, "--from", "1-1", "--force").code == 0
        ended = it.sync("--json")
        assert (ended.code, ended.table["rows"]) == (1, 0)
        assert "has not executed all transactions" in ended.table["error"]
    finally:
        pair.replica.execute(f"DROP TABLE {it.schema}.t")
        recover(pair, it)


def test_a_failover_between_servers_without_gtids(tmp_path: Path) -> None:
    with (
        PrivateMariaDB(tmp_path / "old") as old,
        PrivateMariaDB(tmp_path / "new") as new,
    ):
        it = new_pipeline(old, Lake(folder=str(tmp_path / "lake")), tmp_path / "it", CURSOR)
        ask_once(it, TABLE)
        ask_once(it, "INSERT INTO t (v, update_at) VALUES (1, '2025-06-01'), (2, '2025-06-02')")
        assert it.synced()["rows"] == 2
        assert it.chunks()[-1].gtids is None
        new.execute(f"CREATE DATABASE {it.schema}")
        new.execute(TABLE, database=it.schema)
        new.execute("INSERT INTO t (v, update_at) VALUES (1, '2025-06-01')", database=it.schema)
        move(it, new)
        ended = it.sync("--json")
        assert (ended.code, ended.table["rows"]) == (1, 0)
        assert "its rows end before the position" in ended.table["error"]
        new.execute(
            "INSERT INTO t (v, update_at) VALUES (2, '2025-06-02'), (3, '2025-06-01')",
            database=it.schema,
        )
        ended = it.sync("--json")
        assert ended.code == 1
        assert "it has 3 rows" in ended.table["error"]
        new.execute("DELETE FROM t WHERE v = 3", database=it.schema)
        ended = it.sync("--json")
        assert ended.code == 0
        assert "it has everything that was read there, by position and row counts" in ended.err


def promote(pair: Replicated) -> None:
    pair.stop()
    pair.replica.execute("RESET REPLICA ALL" if pair.is_mysql else "RESET SLAVE ALL")


def recover(pair: Replicated, it: Pipeline) -> None:
    """Make a server that has gone its own way a replica again, from nothing."""
    for server in (pair.replica, pair.primary):
        server.execute(f"DROP DATABASE IF EXISTS {it.schema}")
    for server in (pair.replica, pair.primary):
        forget_history(server)
    if not pair.is_mysql:
        pair.replica.execute("SET GLOBAL gtid_slave_pos = ''")
    demote(pair)


def demote(pair: Replicated) -> None:
    follow(pair.replica, pair.primary)
