"""Tables that have nothing new: few statements and requests, and what is recorded."""

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pymysql
import pytest

from floodmark.model import lake_layout
from floodmark.mysql.probe import probe
from floodmark.state.lease import LeaseDocument, break_lease, read_lease
from floodmark.storage.local import LocalObjectStore
from floodmark.storage.s3 import S3ObjectStore
from floodmark.sync import spark_engine as engines
from floodmark.sync import unchanged
from pipelines import DirectEngine, Pipeline, ask_once, numbers
from scenarios import open_store

New = Callable[..., Pipeline]
TABLES = 12
BY_TIME, BY_ID = "{cursor: [update_at, id]}", "{cursor: id}"


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "SparkEngine", DirectEngine)


def filled(
    pipeline: New, count: int = 1, cursor: str = BY_TIME, lake: str = "local", **how: Any
) -> Pipeline:
    names = ["t", *(f"t{number}" for number in range(1, count))]
    it = pipeline(dict.fromkeys(names, cursor), lake=lake, **how)
    for name in names:
        ask_once(
            it,
            f"CREATE TABLE {name} (id INT AUTO_INCREMENT PRIMARY KEY, v INT,"
            " update_at DATETIME NULL, KEY by_change (update_at, id))",
        )
        ask_once(
            it,
            f"INSERT INTO {name} SELECT seq, 0, '2025-06-01' + INTERVAL seq SECOND"
            f" FROM {numbers(1, 3)}",
        )
    assert it.call("sync", "-p", "main").code == 0
    return it


class Counted:
    """What goes to the server and to the lake."""

    def __init__(self) -> None:
        self.statements: Counter[str] = Counter()
        self.requests: Counter[str] = Counter()


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    found = Counted()
    execute = pymysql.connections.Connection.query

    def query(self: Any, sql: Any, *rest: Any) -> Any:
        text = sql if isinstance(sql, str) else bytes(sql).decode(errors="replace")
        found.statements[re.sub(r"`t\d*`|\d+", "N", text)] += 1
        return execute(self, sql, *rest)

    monkeypatch.setattr(pymysql.connections.Connection, "query", query)
    for store in (LocalObjectStore, S3ObjectStore):
        for name in ("get", "put", "put_if_absent", "put_if_match", "list_objects"):
            method = getattr(store, name)

            def counting(
                self: Any,
                key: str,
                *rest: Any,
                _method: Any = method,
                _name: str = name,
                **more: Any,
            ) -> Any:
                found.requests[_name] += 1
                return _method(self, key, *rest, **more)

            monkeypatch.setattr(store, name, counting)
    return found


def lease_of(it: Pipeline, name: str = "t") -> LeaseDocument:
    found = read_lease(it.lake.open(), it.table(name))
    assert found is not None
    return found


@pytest.mark.parametrize("strategy", ["sequential", "inter-table", "intra-table"])
@pytest.mark.parametrize("cursor", [BY_TIME, BY_ID])
def test_a_table_with_nothing_new_takes_one_statement(
    pipeline: New, counted: Counted, strategy: str, cursor: str
) -> None:
    it = filled(pipeline, TABLES, cursor)
    before = {name: lease_of(it, name) for name in it.tables}
    counted.statements.clear()
    assert it.call("sync", "-p", "main", "--strategy", strategy).code == 0
    often = {sql: n for sql, n in counted.statements.items() if n >= TABLES}
    assert list(often.values()) == [TABLES], often
    for name, was in before.items():
        now = lease_of(it, name)
        assert now.in_step_at
        assert was.in_step_at
        assert now.in_step_at >= was.in_step_at
        assert now.loaded_fresh == now.in_step_at
        assert now.succeeded_at
        assert was.succeeded_at
        assert now.succeeded_at > was.succeeded_at
        assert (now.number, now.released) == (was.number + 1, True)


@pytest.mark.enough_on("mariadb")
@pytest.mark.parametrize("lake", ["local", "seaweedfs"])
def test_a_table_with_nothing_new_takes_five_requests_and_one_of_them_writes(
    pipeline: New, counted: Counted, lake: str
) -> None:
    it = filled(pipeline, TABLES, lake=lake)
    counted.requests.clear()
    assert it.call("sync", "-p", "main").code == 0
    found = {name: count // TABLES for name, count in counted.requests.items() if count >= TABLES}
    gets = 4 if lake == "local" else 3  # a folder reads what it compares with
    assert found == {"get": gets, "list_objects": 1, "put_if_match": 1}


CHANGES = {
    "a new row": "INSERT INTO t VALUES (10, 1, '2025-07-01')",
    "a row of the same second": "INSERT INTO t VALUES (10, 1, '2025-06-01 00:00:03')",
    "a changed row": "UPDATE t SET v = 7, update_at = '2025-07-02' WHERE id = 1",
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_is_new_is_read(pipeline: New, change: str) -> None:
    it = filled(pipeline)
    ask_once(it, CHANGES[change])
    ended = it.call("sync", "-p", "main", "--json")
    assert (ended.table["rows"], ended.table["loaded_rows"]) == (1, 1)


REMARKS = {
    "rows in the future": ("INSERT INTO t VALUES (10, 1, '2055-07-01')", "in the future"),
    "rows without a time": (
        "INSERT INTO t VALUES (10, 1, NULL)",
        "has no value in (update_at, id)",
    ),
}


@pytest.mark.parametrize("change", REMARKS)
def test_a_round_warns_as_before(pipeline: New, change: str) -> None:
    it = filled(pipeline)
    statement, warning = REMARKS[change]
    ask_once(it, statement)
    for _ in range(2):
        ended = it.call("sync", "-p", "main", "--json")
        assert (ended.code, ended.table["rows"]) == (0, 0)
        assert warning in str(ended.table["warnings"])


def test_an_emptied_table_with_an_id_cursor_is_reported(pipeline: New) -> None:
    it = filled(pipeline, cursor=BY_ID)
    ask_once(it, "TRUNCATE TABLE t")
    for _ in range(2):
        ended = it.call("sync", "-p", "main", "--json")
        assert "was the table emptied" in str(ended.table["warnings"])


def between(monkeypatch: pytest.MonkeyPatch, action: Callable[[], Any]) -> list[str]:
    """Do something once, right before the look at the source."""
    done: list[str] = []

    def late(*arguments: Any, **options: Any) -> Any:
        if not done:
            done.append("once")
            action()
        return probe(*arguments, **options)

    monkeypatch.setattr(unchanged, "probe", late)
    return done


ALTERED = {
    "the cursor's column is renamed": ("ALTER TABLE t RENAME COLUMN update_at TO changed", 2),
    "its index is dropped": ("ALTER TABLE t DROP KEY by_change", 0),
    "its type changes": ("ALTER TABLE t MODIFY update_at TIMESTAMP(6) NULL", 0),
    "the table is gone": ("DROP TABLE t", 2),
}


@pytest.mark.parametrize("what", ALTERED)
def test_a_table_altered_after_its_definition_was_read_is_described_again(
    pipeline: New, monkeypatch: pytest.MonkeyPatch, counted: Counted, what: str
) -> None:
    it = filled(pipeline)
    statement, code = ALTERED[what]
    done = between(monkeypatch, lambda: ask_once(it, statement))
    counted.statements.clear()
    assert it.call("sync", "-p", "main").code == code
    described = [sql for sql in counted.statements if "information_schema.tables t" in sql]
    assert done
    assert len(described) >= 2, "not described again under the lease"


@pytest.mark.enough_on("mariadb")
def test_nothing_is_recorded_if_an_operator_came_in_between(
    pipeline: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = filled(pipeline)
    reset = ("watermark", "reset", "-t", f"{it.schema}.t", "--force")
    done = between(monkeypatch, lambda: it.command(*reset))
    ended = it.call("sync", "-p", "main", "--json")
    assert done
    assert (ended.table["rows"], ended.table["loaded_rows"]) == (3, 3)


@pytest.mark.enough_on("mariadb")
def test_nothing_is_recorded_if_another_run_has_the_table(pipeline: New) -> None:
    it = filled(pipeline)
    with open_store(it.lake.open()).lease(it.table()):
        held = lease_of(it)
        ended = it.call("sync", "-p", "main")
        assert (ended.code, lease_of(it)) == (4, held)


@pytest.mark.enough_on("mariadb")
def test_a_paused_holder_whose_lease_was_broken_finds_out(pipeline: New) -> None:
    it = filled(pipeline)
    paused = open_store(it.lake.open()).lease(it.table())
    break_lease(it.lake.open(), it.table())
    assert it.call("sync", "-p", "main").code == 0
    number = lease_of(it).number
    paused.release()
    assert (lease_of(it).number, lease_of(it).released) == (number, True)


@pytest.mark.enough_on("mariadb")
def test_a_failure_is_cleared_only_by_the_stage_that_succeeds(pipeline: New) -> None:
    it = filled(pipeline)
    ask_once(it, "RENAME TABLE t TO away")
    assert it.call("sync", "-p", "main").code == 2
    assert [failure.stage for failure in lease_of(it).failures] == ["extract"]
    ask_once(it, "RENAME TABLE away TO t")
    assert it.call("sync", "-p", "main").code == 0
    assert lease_of(it).failures == ()


@pytest.mark.enough_on("mariadb")
@pytest.mark.parametrize("loses", ["the watermark", "the newest manifest"])
def test_state_that_needs_a_closer_look_gets_it(pipeline: New, loses: str) -> None:
    it = filled(pipeline)
    objects, table = it.lake.open(), it.table()
    if loses == "the watermark":
        objects.delete(lake_layout.primary(table))
        assert it.call("sync", "-p", "main").code == 0
        assert objects.get(lake_layout.primary(table))
    else:
        objects.delete(lake_layout.manifest(table, it.manifests()[-1].head))
        assert it.call("sync", "-p", "main").code == 1
