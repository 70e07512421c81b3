"""`floodmark doctor` on a healthy set-up, and on everything that can be wrong."""

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import duckdb
import pytest

from floodmark.checks.check import check_clock
from floodmark.checks.lake import check_lake
from floodmark.checks.spark import check_spark
from floodmark.config.models import SparkSettings
from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.embedded.process import free_ports
from floodmark.model.timestamps import utc_now
from floodmark.storage.memory import MemoryObjectStore
from floodmark.subprocesses import LOOPBACK
from pipelines import Pipeline
from scenarios import open_store
from servers.postgres import PrivatePostgres

TABLE = "CREATE TABLE {}.t (id INT AUTO_INCREMENT PRIMARY KEY, update_at DATETIME, name TEXT)"

Checks = list[dict[str, Any]]


@pytest.fixture
def one(pipeline: Callable[..., Pipeline], server: PrivateMariaDB) -> Pipeline:
    made = pipeline({"t": "{cursor: id}"})
    server.execute(TABLE.format(made.schema))
    return made


def examine(it: Pipeline, *arguments: str, code: int = 0) -> Checks:
    """Every check, of which some failed if the exit code says so."""
    ended = it.call("doctor", "--json", *arguments)
    assert ended.code == code, ended
    found: Checks = ended.value
    assert any(check["state"] == "failed" for check in found) == (code == 1)
    return found


def the_failed(checks: Checks) -> dict[str, Any]:
    (check,) = [check for check in checks if check["state"] == "failed"]
    assert check["hint"]
    return check


def change(it: Pipeline, **changes: Any) -> Pipeline:
    """The same with another connection to the source."""
    return Pipeline(**{**vars(it), "source": {**it.source, **changes}}).write_config()


def test_all_is_well(one: Pipeline) -> None:
    subjects = {check["subject"] for check in examine(one)}
    assert subjects >= {
        "configuration",
        "lake",
        "Java",
        "Spark",
        "target warehouse",
        "source PROD",
        str(one.table()),
        "leases",
    }


def test_a_check_is_a_line_and_a_hint_another(one: Pipeline) -> None:
    one.write_config("extraction: {cursor_time_zone: Mars/Olympus}")
    ended = one.call("doctor")
    assert ended.code == 1
    lines = ended.out.splitlines()
    at = lines.index("✗ time zone: extraction.cursor_time_zone: unknown time zone 'Mars/Olympus'")
    assert lines[at + 1] == "    hint: write it as 'America/New_York' or 'UTC'"
    assert "checks failed" in ended.err


@pytest.mark.enough_on("mariadb")
def test_nothing_is_left_behind(one: Pipeline) -> None:
    examine(one)
    assert sorted(path.name for path in one.folder.iterdir()) == ["floodmark.yml", "lake"]
    assert list(one.lake.open().list_objects("")) == []


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize("kind", ["seaweedfs", "ministack"])
def test_a_lake_in_s3(pipeline: Callable[..., Pipeline], server: PrivateMariaDB, kind: str) -> None:
    it = pipeline({"t": "{cursor: id}"}, lake=kind)
    server.execute(TABLE.format(it.schema))
    lake = [check["finding"] for check in examine(it) if check["subject"] == "lake"]
    assert "honors conditional writes" in lake[0]
    assert lake[1:] == ["its clock agrees with this machine's"]


def test_a_lake_that_overwrites_is_refused() -> None:
    class Careless(MemoryObjectStore):
        def put_if_match(self, key: str, data: bytes, etag: str) -> str:
            return self.put(key, data)

    (conditions,) = check_lake(Careless(), utc_now)
    assert conditions.state == "failed"
    assert "ignores If-Match" in conditions.finding


@pytest.mark.parametrize(
    ("seconds", "state", "finding"),
    [
        (0, "ok", "its clock agrees with this machine's"),
        (-4, "ok", "its clock agrees with this machine's"),
        (30, "note", "its clock is 29 s ahead of this machine's"),
        (-400, "failed", "its clock is 400 s behind this machine's"),
    ],
)
def test_clocks(seconds: int, state: str, finding: str) -> None:
    before = datetime(2026, 1, 1, tzinfo=UTC)
    theirs = before + timedelta(seconds=seconds)
    found = check_clock("lake", theirs, before, before + timedelta(seconds=1))
    assert (found.state, found.finding) == (state, finding)


def test_a_source_that_does_not_answer(one: Pipeline) -> None:
    found = the_failed(examine(change(one, port=free_ports(1)[0]), code=1))
    assert found["subject"] == "source PROD"
    assert "does not answer" in found["finding"]


def test_a_wrong_password(one: Pipeline) -> None:
    found = the_failed(examine(change(one, password="wrong"), code=1))
    assert "refuses user" in found["finding"]


def test_a_variable_that_is_not_set(one: Pipeline) -> None:
    found = examine(change(one, password="${NO_SUCH_VARIABLE}"), code=1)
    assert any("NO_SUCH_VARIABLE is not set" in check["finding"] for check in found)


def test_privileges_that_are_missing_are_named(one: Pipeline, server: PrivateMariaDB) -> None:
    user = f"'{one.schema}'@'{LOOPBACK}'"
    server.execute(f"CREATE USER {user} IDENTIFIED BY 'x'")
    server.execute(f"GRANT SELECT (id, update_at) ON {one.schema}.t TO {user}")
    server.execute(f"GRANT INSERT ON {one.schema}.t TO {user}")
    found = examine(change(one, user=one.schema, password="x"), code=1)
    held, refused = (check for check in found if check["state"] == "failed")
    assert "no PROCESS privilege" in held["finding"]
    assert "GRANT PROCESS ON *.*" in held["hint"]
    assert refused["subject"] == str(one.table())
    assert "SELECT command denied" in refused["finding"] or "name" in refused["finding"]


def test_an_index_that_is_missing_is_spelled_out(one: Pipeline) -> None:
    it = Pipeline(**{**vars(one), "tables": {"t": "{cursor: [update_at, id]}"}}).write_config()
    hints = [check["hint"] for check in examine(it)]
    assert f"CREATE INDEX by_change ON `{it.schema}`.`t` (`update_at`, `id`)" in hints


def with_postgres(it: Pipeline, server: PrivatePostgres, **changes: Any) -> Pipeline:
    target = {
        "type": "postgres",
        "host": server.host,
        "port": server.port,
        "database": server.database,
        "user": server.user,
        "password": server.password,
        **changes,
    }
    path = Path(it.config)
    text = path.read_text()
    duckdb = "{type: duckdb, path: ./warehouse.duckdb}"
    assert duckdb in text
    path.write_text(text.replace(duckdb, json.dumps(target)))
    return it


@pytest.mark.enough_on("mysql")
def test_postgres_is_tried(one: Pipeline, postgres: PrivatePostgres) -> None:
    found = examine(with_postgres(one, postgres, schema="doctor_made"))
    target = [check["finding"] for check in found if check["subject"] == "target warehouse"]
    assert target[0].startswith("PostgreSQL ")
    assert target[1] == "not encrypted: loopback"
    assert target[2] == "its clock agrees with this machine's"
    assert not postgres.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'doctor_made'")


@pytest.mark.enough_on("mysql")
def test_a_user_who_may_not_create_tables(one: Pipeline, postgres: PrivatePostgres) -> None:
    postgres.execute(f"CREATE ROLE {one.schema} LOGIN PASSWORD 'x'")
    postgres.execute(f"CREATE SCHEMA {one.schema}")
    it = with_postgres(one, postgres, user=one.schema, password="x", schema=one.schema)
    found = the_failed(examine(it, code=1))
    assert found["subject"] == "target warehouse"
    assert "permission denied" in found["finding"]


@pytest.mark.enough_on("mysql")
def test_a_warehouse_that_does_not_answer_is_one_line(
    one: Pipeline, postgres: PrivatePostgres
) -> None:
    found = the_failed(examine(with_postgres(one, postgres, port=free_ports(1)[0]), code=1))
    assert "Connection refused" in found["finding"]
    assert "\n" not in found["finding"]


@pytest.mark.enough_on("mariadb")
def test_a_database_of_our_own_is_tried_once_it_is_there(one: Pipeline) -> None:
    first = [check["finding"] for check in examine(one) if check["subject"] == "target warehouse"]
    assert first[0].startswith("the first load will create ")
    duckdb.connect(str(one.folder / "warehouse.duckdb")).close()
    then = [check["finding"] for check in examine(one) if check["subject"] == "target warehouse"]
    assert then[0].startswith("DuckDB v")


def java_that_says(folder: Path, version: str) -> str:
    """A JAVA_HOME."""
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return str(folder)


@pytest.mark.enough_on("mariadb")
@pytest.mark.parametrize(
    ("version", "finding"),
    [("1.8.0_402", "is version 8: Spark needs 17 or newer"), ("11.0.2", "is version 11: Spark")],
)
def test_an_old_java(
    one: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, finding: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", java_that_says(tmp_path, version))
    found = the_failed(examine(one, code=1))
    assert found["subject"] == "Java"
    assert finding in found["finding"]


@pytest.mark.enough_on("mariadb")
def test_no_java(one: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = the_failed(examine(one, code=1))
    assert found["subject"] == "Java"
    assert "openjdk-17" in found["hint"]


@pytest.mark.enough_on("mariadb")
def test_a_master_that_does_not_answer(one: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLOODMARK_SPARK", raising=False)  # would replace the file's settings
    port = free_ports(1)[0]
    one.write_config(f'spark: {{master: "spark://{LOOPBACK}:{port}"}}')
    found = the_failed(examine(one, code=1))
    assert found["finding"].startswith(f"{LOOPBACK}:{port} does not answer")


@pytest.mark.enough_on("mysql")
def test_spark_is_started_when_asked_for(one: Pipeline) -> None:
    ended = one.command("doctor", "--spark", "--json")
    assert ended.code == 0, ended
    spark = [check["finding"] for check in ended.value if check["subject"] == "Spark"]
    assert spark[-1].startswith("started, and a worker answered, in ")


@pytest.mark.follows_hint("if that run is dead: floodmark doctor -t '…' --break-lease")
@pytest.mark.enough_on("mariadb")
def test_a_held_lease_is_shown_and_broken(one: Pipeline) -> None:
    store = open_store(one.lake.open())
    with store.lease(one.table()):
        held = [check for check in examine(one) if "held by tester" in check["finding"]]
        assert held[0]["hint"].endswith(f"floodmark doctor -t '{one.table()}' --break-lease")
        assert str(os.getpid()) in held[0]["finding"]
        after = examine(one, "-t", str(one.table()), "--break-lease")
        assert after[-1]["finding"] == "none held"


def test_a_missing_pyspark_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("floodmark.checks.spark.version", missing)
    (check,) = check_spark(SparkSettings(), start=False)
    assert (check.state, check.finding, check.hint) == (
        "failed",
        "PySpark is not installed",
        "pip install pyspark",
    )
