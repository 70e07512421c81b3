"""Which table of the warehouse a source table is loaded into, and whose it is."""

import json
import re
import shutil
from typing import Any

import duckdb
import pytest

from floodmark.warehouse.duckdb import DuckdbTarget
from pipelines import Pipeline, ask_once
from target_tables import CURSOR, KEYED, KEYLESS, Make, drop, edit, held, insert
from warehouses import name_target, new_postgres

pytestmark = pytest.mark.enough_on("mysql")


DUCKDB = "{type: duckdb, path: ./warehouse.duckdb}"


def two_sources(it: Pipeline, first: str, second: str) -> None:
    """Let a second pipeline load the same table of another source into another connection."""
    source = json.dumps({"type": "mysql", **it.source})
    tables = f"{{{it.schema}.t: {{cursor: update_at}}}}"
    other = f"  other: {{source: P2, target: again, tables: {tables}}}\n"
    edit(
        it,
        (f"  warehouse: {DUCKDB}\n", f"  warehouse: {first}\n  again: {second}\n  P2: {source}\n"),
        ("pipelines:\n", f"pipelines:\n{other}"),
    )


@pytest.mark.parametrize("path", ["warehouse.duckdb", "./x/../warehouse.duckdb", "link.duckdb"])
def test_two_connections_to_one_file_are_one_target(pipeline: Make, path: str) -> None:
    it = pipeline({"t": "{cursor: update_at}"})
    (it.folder / "link.duckdb").symlink_to(it.folder / "warehouse.duckdb")
    two_sources(it, DUCKDB, f"{{type: duckdb, path: {path}}}")
    for name in ("main", "other"):
        ended = it.call("sync", "-p", name)
        assert ended.code == 2
        assert "would both be loaded into" in ended.err
        assert "target_name" in ended.err
    assert it.files() == set()


def test_two_names_of_one_server_are_one_target(
    pipeline: Make, request: pytest.FixtureRequest
) -> None:
    it = pipeline({"t": "{cursor: update_at}"})
    connection = new_postgres(request.getfixturevalue("postgres"), it.lake).connection
    settings: dict[str, Any] = {
        name: getattr(connection, name) for name in ("port", "database", "user", "schema")
    }
    settings |= {"type": "postgres", "password": connection.password.reveal()}  # type: ignore[union-attr]
    two_sources(
        it,
        json.dumps(settings | {"host": "127.0.0.1"}),
        json.dumps(settings | {"host": "localhost"}),
    )
    ended = it.call("sync", "-p", "main", "-p", "other")
    assert ended.code == 2
    assert "would both be loaded into" in ended.err


@pytest.mark.parametrize("definition", [KEYED, KEYLESS], ids=["keyed", "keyless"])
def test_a_source_under_another_name_is_not_loaded_into_the_same_table(
    pipeline: Make, definition: str
) -> None:
    """A connection was renamed: the ledger knows whose the table is, before a row is read."""
    it = pipeline({"t": f"{{{CURSOR[definition]}}}"})
    ask_once(it, definition.format("t"))
    insert(it, "t", 1, 10)
    assert it.call("sync", "-p", "main").code == 0
    edit(it, ("  PROD:", "  P2:"), ("source: PROD", "source: P2"))
    ended = it.call("sync", "-p", "main")
    assert ended.code == 1
    assert f"t in the target belongs to PROD:{it.schema}.t" in ended.out
    assert f"watermark move -t PROD:{it.schema}.t --to P2:{it.schema}.t" in ended.err
    assert not list(it.lake.open().list_objects("incremental/P2/"))
    assert held(it, "t") == list(range(1, 11))
    # Another name for the table, as the hint says.
    edit(it, ("{cursor:", "{target_name: t2, cursor:"))
    assert it.call("sync", "-p", "main").code == 0
    assert held(it, "t2") == held(it, "t") == list(range(1, 11))


@pytest.mark.follows_hint("set 'target_name' back to …; or 'floodmark watermark reset -t …")
@pytest.mark.parametrize("definition", [KEYED, KEYLESS], ids=["keyed", "keyless"])
@pytest.mark.parametrize("way_out", ["drop", "rename"])
def test_target_names_that_are_swapped_mix_nothing(
    pipeline: Make, definition: str, way_out: str
) -> None:
    cursor = CURSOR[definition]
    it = pipeline({"a": f"{{target_name: x, {cursor}}}", "b": f"{{target_name: y, {cursor}}}"})
    for table, first in (("a", 1), ("b", 101)):
        ask_once(it, definition.format(table))
        insert(it, table, first, first + 9)
    assert it.call("sync", "-p", "main").code == 0
    edit(it, ("target_name: x", "target_name: z"))
    edit(it, ("target_name: y", "target_name: x"), ("target_name: z", "target_name: y"))
    for table, first in (("a", 11), ("b", 111)):
        insert(it, table, first, first)
    ended = it.call("sync", "-p", "main")
    assert ended.code == 1
    assert "were loaded into x so far: loading into y now" in ended.out
    assert "were loaded into y so far: loading into x now" in ended.out
    assert (held(it, "x"), held(it, "y")) == (list(range(1, 11)), list(range(101, 111)))
    for table in ("a", "b"):
        name = f"PROD:{it.schema}.{table}"
        assert f"floodmark watermark reset -t {name} --load-only" in ended.err
        assert it.call("watermark", "reset", "-t", name, "--load-only", "--force").code == 0
    ended = it.call("sync", "-p", "main")
    assert ended.code == 1
    assert f"y in the target belongs to PROD:{it.schema}.b" in ended.out
    assert f"x in the target belongs to PROD:{it.schema}.a" in ended.out
    if way_out == "drop":
        for table in ("x", "y"):
            assert f"drop {table} in the target" in ended.err
            drop(it, table)
    else:
        assert "another 'target_name'" in ended.err
        edit(it, ("target_name: x", "target_name: x2"), ("target_name: y", "target_name: y2"))
    end = "" if way_out == "drop" else "2"
    assert it.call("sync", "-p", "main").code == 0
    assert held(it, f"y{end}") == list(range(1, 12))
    assert held(it, f"x{end}") == list(range(101, 112))
    assert it.call("watermark", "validate").code == 0


@pytest.mark.parametrize("definition", [KEYED, KEYLESS], ids=["keyed", "keyless"])
def test_a_changed_target_name_splits_nothing(pipeline: Make, definition: str) -> None:
    it = pipeline({"t": f"{{{CURSOR[definition]}}}"})
    ask_once(it, definition.format("t"))
    insert(it, "t", 1, 10)
    assert it.call("sync", "-p", "main").code == 0
    edit(it, ("{cursor:", "{target_name: x, cursor:"))
    validated = it.call("watermark", "validate")
    assert validated.code == 5
    assert "were loaded into t" in validated.out
    insert(it, "t", 11, 15)
    ended = it.call("sync", "-p", "main")
    assert ended.code == 1
    assert "were loaded into t so far: loading into x now" in ended.out
    name = f"PROD:{it.schema}.t"
    assert f"floodmark watermark reset -t {name} --load-only" in ended.err
    it.call("watermark", "reset", "-t", name, "--load-only", "--force")
    assert it.call("sync", "-p", "main").code == 0
    assert held(it, "x") == list(range(1, 16))
    assert it.call("watermark", "validate").code == 0


# Another target


@pytest.mark.parametrize("definition", [KEYED, KEYLESS], ids=["keyed", "keyless"])
def test_another_target_gets_everything_though_nothing_is_new(
    pipeline: Make, definition: str, request: pytest.FixtureRequest, monkeypatch: Any
) -> None:
    it = pipeline({"t": f"{{{CURSOR[definition]}}}"})
    ask_once(it, definition.format("t"))
    for first in (1, 11):
        insert(it, "t", first, first + 9)
        assert it.call("sync", "-p", "main").code == 0
    duckdb.connect(str(it.folder / "other.duckdb")).close()
    edit(it, ("./warehouse.duckdb", "./other.duckdb"))
    ended = it.call("sync", "-p", "main")
    assert ended.code == 0, ended
    assert "other.duckdb/t instead of duckdb:" in ended.err
    with duckdb.connect(str(it.folder / "other.duckdb")) as database:
        assert database.execute("SELECT COUNT(*) FROM t").fetchall() == [(20,)]
    for _ in range(2):  # another kind of target, and then another schema
        it.write_config()
        warehouse = new_postgres(request.getfixturevalue("postgres"), it.lake)
        name_target(it.config, warehouse.connection)
        assert it.call("sync", "-p", "main").code == 0
        assert warehouse.query("SELECT COUNT(*) FROM {schema}.t") == [(20,)]
    assert it.watermark().redshift_state.total_rows == 20
    assert it.call("watermark", "validate").code == 0
    monkeypatch.setattr("floodmark.api.loading.open_target", None)  # it is not asked again
    assert it.call("sync", "-p", "main").code == 0


@pytest.mark.parametrize("definition", [KEYED, KEYLESS], ids=["keyed", "keyless"])
def test_another_target_name_is_refused_though_nothing_is_new(
    pipeline: Make, definition: str
) -> None:
    it = pipeline({"t": f"{{{CURSOR[definition]}}}"})
    ask_once(it, definition.format("t"))
    insert(it, "t", 1, 10)
    assert it.call("sync", "-p", "main").code == 0
    edit(it, ("{cursor:", "{target_name: x, cursor:"))
    said = follow_hints(it)
    assert "were loaded into t so far: loading into x now" in said[0]
    assert held(it, "x") == list(range(1, 11))


@pytest.mark.parametrize("definition", [KEYED, KEYLESS], ids=["keyed", "keyless"])
def test_dropped_target_table_is_detected_without_new_rows(pipeline: Make, definition: str) -> None:
    it = pipeline({"t": f"{{{CURSOR[definition]}}}"})
    ask_once(it, definition.format("t"))
    insert(it, "t", 1, 10)
    assert it.call("sync", "-p", "main").code == 0
    drop(it, "t")
    ended = it.call("sync", "-p", "main", "--redshift-only")
    assert ended.code == 1
    assert "the target has no table t" in ended.out
    assert "the target has no table t" in follow_hints(it)[0]
    assert held(it, "t") == list(range(1, 11))


# An older lake


def follow_hints(it: Pipeline) -> list[str]:
    """Sync, and do what the hints say, until nothing is refused; return what was said."""
    said: list[str] = []
    for _ in range(4):
        ended = it.call("sync", "-p", "main")
        if ended.code == 0:
            return said
        assert ended.code == 1
        said.append(ended.out)
        if found := re.search(r"empty (\w+) in the target", ended.err):
            with duckdb.connect(str(it.folder / "warehouse.duckdb")) as database:
                database.execute(f"DELETE FROM {found[1]}")
        (command,) = re.findall(r"'floodmark (watermark reset -t \S+(?: --load-only)?)'", ended.err)
        assert it.call(*command.split(), "--force").code == 0
    raise AssertionError(said)


@pytest.mark.follows_hint("--load-only', then sync, to load everything in this lake again")
@pytest.mark.parametrize("definition", [KEYED, KEYLESS], ids=["keyed", "keyless"])
@pytest.mark.parametrize("since", ["syncs", "set", "reset", "load reset", "nothing loaded"])
def test_an_older_lake_that_is_put_back_is_seen(
    pipeline: Make, definition: str, since: str
) -> None:
    it = pipeline({"t": f"{{{CURSOR[definition]}}}"})
    ask_once(it, definition.format("t"))
    insert(it, "t", 1, 10)
    sync = ["sync", "-p", "main"]
    assert it.call(*sync, *(["--backup-only"] if since == "nothing loaded" else [])).code == 0
    backup = shutil.copytree(str(it.lake.folder), it.folder / "backup")
    name = f"PROD:{it.schema}.t"
    if since == "set":
        at = ("--timestamp", "2025-06-01 00:00:10")
        assert it.call("watermark", "set", "-t", name, *at, "--force").code == 0
    if since.endswith("reset"):
        more = ["--load-only"] if since == "load reset" else []
        assert it.call("watermark", "reset", "-t", name, *more, "--force").code == 0
    for first in (11, 21):
        insert(it, "t", first, first + 9)
        assert it.call(*sync).code == 0
    assert held(it, "t") == list(range(1, 31))
    shutil.rmtree(str(it.lake.folder))
    shutil.copytree(backup, str(it.lake.folder))
    if since in ("syncs", "set"):
        validated = it.call("watermark", "validate")
        assert validated.code == 5
        assert "is in the ledger, but not in the lake" in validated.out
        assert f"floodmark watermark reset -t {name} --load-only" in " ".join(validated.out.split())
        assert "--repair" not in validated.err
    insert(it, "t", 31, 35)
    said = follow_hints(it)
    if since in ("syncs", "set"):
        assert "the lake was restored to an older state" in " ".join(said[0].split())
    assert held(it, "t") == list(range(1, 36))
    insert(it, "t", 36, 40)
    assert it.call(*sync).code == 0
    assert held(it, "t") == list(range(1, 41))
    assert it.call("watermark", "validate").code == 0


# Going back without a key


GO_BACK = {
    "restore over a reset": ("restore", "--from", "1-1"),
    "restore over a sync": ("restore", "--from", "1-1"),
    "restore over a chunk not loaded": ("restore", "--from", "1-1"),
    "set": ("set", "--timestamp", "2025-06-01 00:00:05"),
    "reset of stage 1": ("reset", "--extract-only"),
}


@pytest.mark.follows_hint("then sync, to read the whole table again into an emptied target table")
@pytest.mark.parametrize("definition", [KEYED, KEYLESS], ids=["keyed", "keyless"])
@pytest.mark.parametrize("way", list(GO_BACK))
def test_going_back_loads_nothing_twice(pipeline: Make, definition: str, way: str) -> None:
    it = pipeline({"t": f"{{{CURSOR[definition]}}}"})
    ask_once(it, definition.format("t"))
    insert(it, "t", 1, 10)
    sync, name = ("sync", "-p", "main"), f"PROD:{it.schema}.t"
    assert it.call(*sync).code == 0
    if way == "restore over a reset":
        assert it.call("watermark", "reset", "-t", name, "--force").code == 0
    else:
        insert(it, "t", 11, 12)
    assert it.call(*sync, *(["--backup-only"] if "not loaded" in way else [])).code == 0
    command, *more = GO_BACK[way]
    ended = it.call("watermark", command, "-t", name, *more, "--force")
    if definition == KEYLESS:
        assert ended.code == 2
        assert f"{name} has no primary key: the rows of chunk" in ended.err
        (hint,) = re.findall(r"'floodmark (watermark reset -t \S+)', then sync", ended.err)
        assert it.call(*hint.split(), "--force").code == 0
    else:
        assert ended.code == 0
    insert(it, "t", 21, 25)
    assert it.call(*sync).code == 0
    expected = [row[0] for row in ask_once(it, "SELECT id FROM t ORDER BY id")]
    assert held(it, "t") == expected
    assert it.call("watermark", "validate").code == 0


@pytest.mark.parametrize("way", ["reset", "reset of stage 2", "set forward", "saved"])
def test_moving_back_is_possible_without_a_key(pipeline: Make, way: str) -> None:
    """No rows came since: none would be read again."""
    it = pipeline({"t": f"{{{CURSOR[KEYLESS]}}}"})
    ask_once(it, KEYLESS.format("t"))
    insert(it, "t", 1, 10)
    sync, name = ("sync", "-p", "main"), f"PROD:{it.schema}.t"
    assert it.call(*sync).code == 0
    saved = it.folder / "saved.json"
    saved.write_text(it.call("watermark", "get", "-t", name, "--json").out)
    if way == "set forward":
        at = ("--timestamp", "2025-06-02")
        assert it.call("watermark", "set", "-t", name, *at, "--force").code == 0
    else:
        more = ["--load-only"] if way == "reset of stage 2" else []
        assert it.call("watermark", "reset", "-t", name, *more, "--force").code == 0
    if way == "reset of stage 2":
        assert it.call(*sync).code == 0
    origin = ("--file", str(saved)) if way == "saved" else ("--from", "1-1")
    assert it.call("watermark", "restore", "-t", name, *origin, "--force").code == 0
    insert(it, "t", 11, 12)
    assert it.call(*sync).code == 0
    assert held(it, "t") == list(range(1, 13))
    assert it.call("watermark", "validate").code == 0


def test_a_target_that_took_the_last_load_is_opened_once(
    pipeline: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, open_file = [], DuckdbTarget.__init__

    def counted(self: DuckdbTarget, *arguments: Any, **options: Any) -> None:
        opened.append(1)
        open_file(self, *arguments, **options)

    monkeypatch.setattr(DuckdbTarget, "__init__", counted)
    it = pipeline({"t": f"{{{CURSOR[KEYED]}}}"})
    ask_once(it, KEYED.format("t"))
    for first in (1, 11):
        opened.clear()
        insert(it, "t", first, first + 9)
        assert it.call("sync", "-p", "main").code == 0
        assert held(it, "t") == list(range(1, first + 10))
        assert len(opened) == 1
