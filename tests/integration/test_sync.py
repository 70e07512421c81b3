"""`sync --backup-only` over tables of all kinds, on a real server."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest

from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.model import lake_layout
from pipelines import DirectEngine, Pipeline, ask, ask_once, numbers, session, source_of
from scenarios import snapshot

New = Callable[..., Pipeline]

OF_CHANGES = (
    "id INT AUTO_INCREMENT PRIMARY KEY, v INT NOT NULL DEFAULT 0,"
    " update_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,"
    " KEY by_change (update_at, id)"
)
FOURS = "extraction: {window_rows: 4, windows_per_chunk: 2}"


def create(pipeline: Pipeline, columns: str = OF_CHANGES, name: str = "t") -> None:
    ask_once(pipeline, f"CREATE TABLE `{name}` ({columns})")


def fill(pipeline: Pipeline, first: int, last: int, name: str = "t") -> None:
    """Add rows that changed long ago, three and three at once."""
    ask_once(
        pipeline,
        f"INSERT INTO `{name}` (id, update_at) SELECT seq,"
        f" '2025-06-01' + INTERVAL seq DIV 3 SECOND FROM {numbers(first, last)}",
    )


def next_second() -> None:
    time.sleep(1.1 - time.time() % 1)


# What the seeds tell


@pytest.mark.parametrize("lake", ["local", "seaweedfs"])
def test_a_watermark_at_210000_and_a_limit_of_50(pipeline: New, lake: str) -> None:
    it = pipeline({"uni_prealert_order": "{cursor: id}"}, lake=lake)
    create(it, "id BIGINT AUTO_INCREMENT PRIMARY KEY, v INT", "uni_prealert_order")
    ask_once(it, f"INSERT INTO uni_prealert_order SELECT seq, 0 FROM {numbers(209901, 210200)}")
    for name in (f"{it.schema}.uni_prealert_order", f"PROD:{it.schema}.uni_prealert_order"):
        assert it.call("watermark", "set", "-t", name, "--id", "210000", "--force").code == 0
        shown = it.command("watermark", "get", "-t", name, "--json")
        assert json.loads(shown.out)["mysql_state"]["last_id"] == 210_000
    assert it.synced("--limit", "50")["rows"] == 50
    shown = it.command("watermark", "get", "-t", f"{it.schema}.uni_prealert_order", "--json")
    state = json.loads(shown.out)["mysql_state"]
    assert (state["last_id"], state["total_rows"], state["s3_file_count"]) == (210_050, 50, 1)
    assert it.ids("uni_prealert_order") == dict.fromkeys(range(210_001, 210_051), 1)


@pytest.mark.parametrize("lake", ["local", "seaweedfs"])
def test_counts_agree_with_what_lies_in_the_lake(pipeline: New, lake: str) -> None:
    """Several runs, all strategies, failed runs and an orphan in between."""
    it = pipeline({"t": "{cursor: [update_at, id]}"}, lake=lake, settings=FOURS)
    create(it)
    rows = 0
    for number, strategy in enumerate(["sequential", "intra-table", "inter-table"] * 2):
        fill(it, rows + 1, rows + 10)
        rows += 10
        if number == 4:
            first = it.watermark().mysql_state.last_sequence + 1
            failing = partial(FailsAfterChunk, first)
            assert it.sync("--strategy", strategy, engine=failing).code == 1
            assert it.watermark().mysql_state.status == "failed"
            assert it.watermark().position == it.chunks()[-1].end
        assert it.synced("--strategy", strategy)["rows"] == (2 if number == 4 else 10)
        it.check_tracking()
    assert it.ids() == dict.fromkeys(range(1, rows + 1), 1)
    state = it.watermark().mysql_state
    assert (state.status, state.total_rows) == ("success", rows)
    orphans = it.files() - it.named_files()
    assert len(orphans) == 1  # of the run that failed, after it had written a file
    listed = it.call("s3clean", "list", "-t", f"{it.schema}.t", "--json").value
    assert {file["path"] for file in listed if file["state"] == "orphan"} == orphans
    ended = it.call("watermark", "validate", "-t", f"{it.schema}.t", "--json")
    assert ended.code == 0


class FailsAfterChunk(DirectEngine):
    """Reads one chunk, and fails in the next one, of which one window is already written."""

    def __init__(self, sequence: int, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._sequence = sequence

    def extract(self, job: Any, windows: Any, progress: Any) -> Any:
        if job.sequence == self._sequence:
            return super().extract(job, windows, progress)
        super().extract(job, windows[:1], progress)
        return self._read(
            job,
            type(windows[0])(
                part=2, start=windows[0].start, end=windows[0].end, predicate="no_such_column"
            ),
        )


# Kinds of tables


def test_composite_and_text_primary_keys(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: update_at}"}, settings=FOURS)
    create(
        it,
        "country CHAR(2) NOT NULL, code VARCHAR(20) COLLATE utf8mb4_unicode_ci NOT NULL,"
        " n INT NOT NULL, update_at DATETIME(3) NOT NULL, PRIMARY KEY (country, code, n),"
        " KEY by_change (update_at, country, code, n)",
    )
    codes = ["a", "B", "ö", "é", "z", "ß", "", " x", "'", "\\", "日本", "🙂"]
    with session(it) as connection, connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO t VALUES (%s, %s, %s, '2025-06-01')",
            [(country, code, n) for country in ("US", "DE") for code in codes for n in (1, 2)],
        )
    assert it.synced()["rows"] == 48
    keys = [(row["country"], row["code"], row["n"]) for row in it.rows()]
    assert sorted(keys) == sorted(ask_once(it, "SELECT country, code, n FROM t"))
    it.check_tracking()
    brought = [it.synced("--limit", "5")["rows"] for _ in range(2)]
    assert brought == [0, 0]
    ask_once(it, "UPDATE t SET update_at = '2025-06-02' WHERE code = '🙂'")
    assert it.synced("--limit", "3")["rows"] == 3
    assert it.synced()["rows"] == 1


def test_a_text_key_walked_and_resumed(pipeline: New) -> None:
    it = pipeline(
        {"t": "{cursor: [update_at]}"},
        settings="extraction: {window_rows: 7, windows_per_chunk: 1, walk_from_rows: 1}",
    )
    create(it, "name VARCHAR(40) PRIMARY KEY, update_at DATETIME NOT NULL, KEY (update_at)")
    ask_once(
        it,
        "INSERT INTO t SELECT CONCAT(ELT(1 + seq % 4, 'a', 'B', 'ä', 'O''Neil '), seq),"
        f" '2025-06-01' + INTERVAL seq % 7 SECOND FROM {numbers(1, 60)}",
    )
    ask_once(it, "ANALYZE TABLE t")
    while it.synced("--limit", "9")["rows"]:
        pass
    names = it.ids(key="name")
    assert names == dict.fromkeys((name for (name,) in ask_once(it, "SELECT name FROM t")), 1)


def test_a_table_without_a_primary_key(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: update_at}"}, settings=FOURS)
    create(it, "id INT, update_at DATETIME NOT NULL, KEY (update_at)")
    fill(it, 1, 20)
    ended = it.sync("--json")
    assert ended.table["rows"] == 20
    fill(it, 30, 31)
    assert it.synced()["rows"] == 2
    assert set(it.ids().values()) == {1}
    it.check_tracking()


def test_neither_a_primary_key_nor_an_index(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: update_at}"}, settings=FOURS)
    create(it, "id INT, update_at DATETIME NOT NULL")
    fill(it, 1, 20)
    assert it.synced()["rows"] == 20
    assert len(it.chunks()) == 1
    fill(it, 30, 31)
    assert it.synced()["rows"] == 2
    assert set(it.ids().values()) == {1}


def test_no_index_on_the_cursor(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"}, settings=FOURS)
    create(it, "id INT PRIMARY KEY, update_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP")
    fill(it, 1, 20)
    ended = it.sync("--json")
    assert (ended.table["rows"], ended.table["chunks"]) == (20, 1)
    assert "no index" not in ended.err  # the table is small
    assert "no index on (update_at, id)" in it.sync("--dry-run").out
    ask_once(it, f"INSERT INTO t (id) SELECT seq FROM {numbers(30, 39)}")
    next_second()
    assert it.synced("--limit", "3")["rows"] == 3
    assert it.synced("--limit", "4")["rows"] == 4
    assert it.synced()["rows"] == 3
    assert set(it.ids().values()) == {1}
    it.check_tracking()


@pytest.mark.parametrize("key", ["id INT PRIMARY KEY", "id INT"])
def test_full_reloads(pipeline: New, key: str) -> None:
    it = pipeline({"t": "{cursor: none}"}, settings=FOURS)
    create(it, f"{key}, v INT NOT NULL DEFAULT 0, update_at DATETIME NOT NULL")
    fill(it, 1, 10)
    assert it.synced()["rows"] == 10
    ask_once(it, "UPDATE t SET v = 1 WHERE id = 5")
    ask_once(it, "DELETE FROM t WHERE id = 6")
    next_second()
    assert it.synced()["rows"] == 9
    first, second = it.chunks()
    assert [(chunk.reload, chunk.rows) for chunk in (first, second)] == [(True, 10), (True, 9)]
    assert it.newest()[5]["v"] == 1
    it.check_tracking()
    name = ("-t", f"{it.schema}.t")
    every_time = "Will start from: the start (the whole table is read every time)"
    assert every_time in it.call("watermark", "get", *name).out
    assert it.call("watermark", "reset", *name, "--force").code == 0
    assert (
        "Will start from: 2025-01-01 00:00:00 (default)" in it.call("watermark", "get", *name).out
    )


def test_a_reload_of_a_table_that_was_emptied(pipeline: New) -> None:
    """What is no longer there must not stay in the target."""
    it = pipeline({"t": "{cursor: none}"})
    create(it)
    fill(it, 1, 10)
    it.synced()
    ask_once(it, "DELETE FROM t")
    next_second()
    assert it.synced()["rows"] == 0
    last = it.chunks()[-1]
    assert (last.reload, last.files) == (True, ())
    it.check_tracking()


def test_a_table_whose_cursor_was_changed(pipeline: New) -> None:
    """From a cursor to full reloads and back again: read twice perhaps, but never stuck."""
    it = pipeline({"t": "{cursor: id}"}, settings=FOURS)
    create(it)
    fill(it, 1, 10)
    assert it.synced()["rows"] == 10
    reloaded = replace(it, tables={"t": "{cursor: none}"}).write_config()
    next_second()
    assert reloaded.synced()["rows"] == 10
    fill(it, 11, 12)
    it.write_config()
    assert it.synced()["rows"] in (2, 12)
    fill(it, 13, 13)
    assert it.synced()["rows"] == 1
    assert it.ids().keys() == set(range(1, 14))


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("none", "update_at", "has no primary key, and was read by another cursor before"),
        ("update_at", "id", "its position was read by (update_at), but its cursor is now (id)"),
    ],
)
def test_rows_without_a_key_do_not_come_again_by_another_cursor(
    pipeline: New, before: str, after: str, reason: str
) -> None:
    it = pipeline({"t": f"{{cursor: {before}}}"})
    create(it, "id INT NOT NULL, update_at DATETIME NOT NULL, KEY (update_at), KEY (id)")
    fill(it, 1, 5)

    def sync(*arguments: str) -> tuple[int, str, int]:
        ended = it.call("sync", "-p", "main", *arguments)
        with duckdb.connect(str(it.folder / "warehouse.duckdb")) as database:
            ((rows,),) = database.execute("SELECT COUNT(*) FROM t").fetchall()
        return ended.code, ended.out, rows

    code, _, rows = sync()
    assert (code, rows) == (0, 5)
    it = replace(it, tables={"t": f"{{cursor: {after}}}"}).write_config()
    for command in ([], ["reset", "--load-only", "--force"]):  # which does not move the position
        if command:
            assert it.call("watermark", *command, "-t", f"{it.schema}.t").code == 0
        code, said, rows = sync()
        assert (code, rows) == (1, 5)
        assert reason in " ".join(said.split())
    assert it.call("watermark", "reset", "-t", f"{it.schema}.t", "--force").code == 0
    assert sync()[::2] == (0, 5)
    fill(it, 6, 7)
    assert sync()[::2] == (0, 7)


def test_a_limit_would_cut_a_full_reload_short(pipeline: New) -> None:
    """The target would be left with so many rows."""
    it = pipeline({"t": "{cursor: none}"})
    create(it)
    fill(it, 1, 10)
    ended = it.sync("--limit", "3")
    assert ended.code == 2
    assert "--limit 3" in ended.out
    assert (it.files(), it.manifests()) == (set(), [])


def test_the_first_load_walks_the_primary_key(pipeline: New) -> None:
    """Interrupted, resumed, with changes behind and before it meanwhile."""
    it = pipeline(
        {"t": "{cursor: [update_at, id]}"},
        settings="extraction: {window_rows: 10, windows_per_chunk: 2, walk_from_rows: 50}",
    )
    create(it)
    fill(it, 1, 100)
    ask_once(it, "UPDATE t SET update_at = '2025-06-01' + INTERVAL 100 - id SECOND")
    ask_once(it, "ANALYZE TABLE t")

    class FailsAtThirdChunk(DirectEngine):
        def extract(self, job: Any, windows: Any, progress: Any) -> Any:
            return super().extract(job, windows if job.sequence < 3 else (), progress)

    assert it.sync(engine=FailsAtThirdChunk).code == 1
    assert it.ids() == dict.fromkeys(range(1, 41), 1)
    position = it.watermark().position
    assert position.walk is not None
    assert position.walk.key == 40
    shown = it.call("watermark", "get", "-t", f"{it.schema}.t")
    assert shown.code == 0
    ask_once(it, "UPDATE t SET v = 1 WHERE id IN (10, 90)")  # behind the walk, and before it
    ask_once(it, "DELETE FROM t WHERE id IN (11, 91)")
    fill(it, 101, 101)  # has an old stamp, as if it came late: not promised, yet above the walk
    next_second()
    assert it.synced()["rows"] == 59 + 2  # the walk to its old bound, and then to a fresh one
    assert it.watermark().position.walk is None
    assert it.synced()["rows"] == 0
    assert it.newest()[10]["v"] == it.newest()[90]["v"] == 1
    assert it.ids()[90] == 1
    it.check_tracking()


@pytest.mark.parametrize("index", ["KEY (update_at, id)", "KEY (v)"], ids=["walk", "no-index"])
def test_along_the_key_the_position_comes_from_the_rows_written(pipeline: New, index: str) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"}, settings=f"{FOURS[:-1]}, walk_from_rows: 1}}")
    create(it, f"id INT PRIMARY KEY, update_at DATETIME NOT NULL, v INT, {index}")
    fill(it, 1, 30)
    ask_once(it, "ANALYZE TABLE t")
    assert it.synced()["rows"] == 30
    (newest,) = ask_once(it, "SELECT update_at, id FROM t ORDER BY 1 DESC, 2 DESC LIMIT 1")
    position = it.watermark().position
    assert (position.timestamp, position.id) == (newest[0].replace(tzinfo=UTC), newest[1])
    fill(it, 31, 35)  # times of last year, and newer than any before
    assert it.synced()["rows"] == 5
    assert it.synced()["rows"] == 0
    it.check_tracking()


@pytest.mark.parametrize("cursor", ["[update_at, id]", "none"], ids=["walk", "reload"])
@pytest.mark.parametrize(
    ("kept", "about"), [("id % 10 < 7", True), ("id % 10 < 1", False)], ids=["dense", "sparse"]
)
def test_keys_with_gaps(pipeline: New, cursor: str, kept: str, about: bool) -> None:
    """Where few numbers are left out, windows are cut by number; else by rows, counted."""
    it = pipeline({"t": f"{{cursor: {cursor}}}"}, settings=f"{FOURS[:-1]}, walk_from_rows: 1}}")
    create(it)
    fill(it, 1, 200)
    ask_once(it, f"DELETE FROM t WHERE id BETWEEN 50 AND 70 OR NOT {kept}")
    ask_once(it, "INSERT INTO t (id, update_at) VALUES (-3, '2025-06-01')")
    ask_once(it, "ANALYZE TABLE t")
    told = it.sync("--dry-run", engine=NoEngine)
    rows = [identity for (identity,) in ask_once(it, "SELECT id FROM t")]
    assert ("read about " in told.out) == about
    if not about:
        assert f"read {len(rows)} rows" in told.out
    assert it.synced()["rows"] == len(rows)
    assert it.ids() == dict.fromkeys(rows, 1)
    assert max(file.rows for chunk in it.chunks() for file in chunk.files) <= 4
    it.check_tracking()
    assert it.call("sync", "-p", "main", "--redshift-only").code == 0  # also chunks without rows
    with duckdb.connect(str(it.folder / "warehouse.duckdb")) as target:
        assert sorted(target.execute("SELECT id FROM t").fetchall()) == [(n,) for n in sorted(rows)]


def test_a_range_without_rows_is_not_walked(pipeline: New) -> None:
    """The server's estimate counts what was deleted for as long as anybody may still see it."""
    it = pipeline({"t": "{cursor: [update_at, id]}"}, settings=f"{FOURS[:-1]}, walk_from_rows: 1}}")
    create(it)
    ask_once(it, f"INSERT INTO t (id, update_at) SELECT seq, '2024-06-01' FROM {numbers(1, 100)}")
    fill(it, 101, 300)
    ask_once(it, "ANALYZE TABLE t")
    assert (
        it.call(
            "watermark", "set", "-t", f"{it.schema}.t", "--timestamp", "2025-01-01", "--force"
        ).code
        == 0
    )
    before = it.watermark().position
    with session(it) as reader:
        ask(reader, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        ask_once(it, "DELETE FROM t WHERE id > 100")
        assert it.synced(engine=NoEngine)["rows"] == 0
    assert it.watermark().position == before


@pytest.mark.follows_hint("fill in their cursor, or set 'null_cursors: skip'")
def test_null_cursors_are_counted_and_reported(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"}, settings=FOURS)
    create(it, "id INT PRIMARY KEY, update_at DATETIME NULL, KEY (update_at, id)")
    fill(it, 1, 10)
    ask_once(it, "INSERT INTO t VALUES (11, NULL), (12, NULL)")
    ended = it.sync("--json")
    assert ended.table["rows"] == 10
    assert "2 rows have no value" in ended.err
    ask_once(it, "UPDATE t SET update_at = '2025-06-03' WHERE id = 11")
    assert it.synced()["rows"] == 1
    it.write_config("extraction: {null_cursors: error}")
    assert it.sync().code == 1
    it.write_config("extraction: {null_cursors: skip}")
    assert it.sync().code == 0
    assert it.ids() == dict.fromkeys(range(1, 12), 1)


def kept_objects(it: Pipeline) -> set[str]:
    """The objects in the lake, but for the records of runs."""
    return {key for key in snapshot(it.lake.open()) if not key.startswith(lake_layout.RUNS)}


def test_an_empty_table(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    create(it)
    ended = it.sync()
    assert (ended.code, it.files()) == (0, set())
    assert "nothing new" in ended.out
    assert [chunk.only_columns for chunk in it.chunks()] == [True]
    before = kept_objects(it)
    assert it.sync().code == 0
    assert kept_objects(it) == before
    fill(it, 1, 3)
    assert it.synced()["rows"] == 3


@pytest.mark.parametrize("name", ["odd-näme 1", "select", "a`b", "%2F", "x;y'z\"", "UPPER", "日本"])
def test_names_with_odd_characters(pipeline: New, name: str) -> None:
    it = pipeline({name: "{cursor: [update_at, id]}"}, settings=FOURS)
    quoted = name.replace("`", "``")
    create(it, OF_CHANGES, quoted)
    fill(it, 1, 10, quoted)
    assert it.synced()["rows"] == 10
    assert it.ids(name) == dict.fromkeys(range(1, 11), 1)
    it.check_tracking(name)


def test_columns_with_odd_names(pipeline: New) -> None:
    it = pipeline({"t": '{cursor: ["wann `war\'s", "schlüssel"]}'}, settings=FOURS)
    create(
        it,
        "`schlüssel` INT PRIMARY KEY, `wann ``war's` DATETIME NOT NULL, `a.b` INT, `%s` INT,"
        " KEY (`wann ``war's`, `schlüssel`)",
    )
    ask_once(it, f"INSERT INTO t SELECT seq, '2025-06-01', seq, seq FROM {numbers(1, 10)}")
    assert it.synced()["rows"] == 10
    assert it.ids(key="schlüssel") == dict.fromkeys(range(1, 11), 1)


def test_rows_at_the_very_start(pipeline: New) -> None:
    """The default start is where reading begins, not what is left out."""
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    create(it)
    ask_once(
        it,
        "INSERT INTO t (id, update_at) VALUES (1, '2024-12-31 23:59:59'),"
        " (2, '2025-01-01 00:00:00'), (3, '2025-01-01 00:00:01')",
    )
    assert it.synced()["rows"] == 2
    assert it.ids() == {2: 1, 3: 1}


@pytest.fixture(scope="module")
def eastern(server: PrivateMariaDB, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("eastern")
    with type(server)(folder, options={"default_time_zone": "+08:00"}) as running:
        yield running


@pytest.mark.parametrize("kind", ["DATETIME", "TIMESTAMP", "TIMESTAMP(6)"])
def test_a_server_that_is_not_in_utc(pipeline: New, eastern: PrivateMariaDB, kind: str) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"}, server=eastern)
    digits = "(6)" if "6" in kind else ""
    create(
        it,
        f"id INT AUTO_INCREMENT PRIMARY KEY, v INT, update_at {kind} NOT NULL DEFAULT"
        f" CURRENT_TIMESTAMP{digits} ON UPDATE CURRENT_TIMESTAMP{digits}, KEY (update_at, id)",
    )
    ask_once(it, "INSERT INTO t (v) VALUES (1), (2)")
    next_second()
    assert it.synced()["rows"] == 2  # neither too early nor eight hours late
    now = datetime.now(UTC) + timedelta(hours=8 if kind == "DATETIME" else 0)
    reached = it.watermark().position.timestamp
    assert reached is not None
    assert abs(reached - now) < timedelta(seconds=10)
    with session(it) as late:
        late.begin()
        ask(late, "INSERT INTO t (v) VALUES (3)")
        ask_once(it, "INSERT INTO t (v) VALUES (4)")
        next_second()
        assert it.synced()["rows"] == 0
        late.commit()
    next_second()
    assert it.synced()["rows"] == 2
    ask_once(it, "INSERT INTO t (v, update_at) VALUES (5, NOW() + INTERVAL 1 HOUR)")
    assert it.synced()["rows"] == 0
    assert it.watermark().position.timestamp is not None
    assert set(it.ids().values()) == {1}


# What goes wrong, and what is refused


def test_one_table_that_fails_leaves_the_others(pipeline: New) -> None:
    it = pipeline(dict.fromkeys(["a", "b", "c"], "{cursor: [update_at, id]}"), settings=FOURS)
    for name in ("a", "c"):
        create(it, name=name)
        fill(it, 1, 10, name)
    for strategy in ("sequential", "inter-table", "intra-table"):
        ended = it.sync("--strategy", strategy, "--json")
        assert ended.code == 3
        states = [table["status"] for table in ended.value["tables"]]
        assert states == ["success", "failed", "success"]
    assert it.ids("a") == it.ids("c") == dict.fromkeys(range(1, 11), 1)


def test_a_privilege_that_was_taken_away(pipeline: New, server: PrivateMariaDB) -> None:
    it = pipeline(dict.fromkeys(["a", "b"], "{cursor: [update_at, id]}"), settings=FOURS)
    server.execute(f"CREATE USER '{it.schema}'@'127.0.0.1' IDENTIFIED BY 'x'")
    server.execute(f"GRANT PROCESS ON *.* TO '{it.schema}'@'127.0.0.1'")
    for name in ("a", "b"):
        create(it, name=name)
        fill(it, 1, 10, name)
        server.execute(f"GRANT SELECT ON {it.schema}.{name} TO '{it.schema}'@'127.0.0.1'")
    server.execute(f"REVOKE SELECT ON {it.schema}.b FROM '{it.schema}'@'127.0.0.1'")
    server.execute(f"GRANT SELECT (id, v) ON {it.schema}.b TO '{it.schema}'@'127.0.0.1'")
    source = {**source_of(server), "user": it.schema, "password": "x"}
    it = Pipeline(it.folder, it.lake, source, it.schema, it.tables, FOURS).write_config()
    ended = it.sync()
    assert ended.code == 3
    assert it.ids("a") == dict.fromkeys(range(1, 11), 1)
    server.execute(f"DROP USER '{it.schema}'@'127.0.0.1'")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-p", "main", "--backup-only", "--limit", "-1"], "'-1'"),
        (["-p", "main", "--backup-only", "--limit", "0"], "'0'"),
        (["-p", "main", "--backup-only", "--limit", "many"], "'many'"),
        (["-p", "main", "--backup-only", "--redshift-only"], "--redshift-only"),
        (["-p", "nain", "--backup-only"], "'nain'"),
        (["-t", "shop.nothing", "--backup-only"], "'shop.nothing'"),
        (["--backup-only"], "nothing to sync"),
        (["-p", "main", "--strategy", "fast"], "'fast'"),
        (["-p", "main", "--every", "often"], "'often'"),
        (["-p", "main", "--every", "0m"], "'0m'"),
        (["-p", "main", "--every", "5m", "--dry-run"], "--dry-run"),
    ],
)
def test_what_is_refused(pipeline: New, arguments: list[str], says: str) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    create(it)
    fill(it, 1, 3)
    ended = it.call("sync", *arguments)
    assert ended.code == 2
    assert says in ended.err.splitlines()[0]
    assert snapshot(it.lake.open()) == {}


def test_a_dry_run_changes_nothing(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"}, settings=FOURS)
    create(it)
    fill(it, 1, 30)
    for _ in range(2):
        before = snapshot(it.lake.open())
        ended = it.sync("--dry-run", "--json", engine=NoEngine)
        assert ended.code == 0
        assert snapshot(it.lake.open()) == before
        it.synced("--limit", "10")
    assert "20" in ended.out


class NoEngine(DirectEngine):
    """Must not be asked for anything."""

    def extract(self, job: Any, windows: Any, progress: Any) -> Any:
        raise AssertionError("Spark would have been started")


def test_the_result_as_json(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"}, settings=FOURS)
    create(it)
    fill(it, 1, 10)
    ended = it.sync("--json")
    table = ended.table
    assert ended.value["session_id"] == it.watermark().session_id
    assert table["table_name"] == str(it.table())
    assert table["status"] == "success"
    assert (table["rows"], table["files"], table["chunks"]) == (10, 3, 2)
    assert table["bytes"] == sum(chunk.bytes for chunk in it.chunks())
    assert table["seconds"] > 0
    assert table["end"] == {"timestamp": "2025-06-01T00:00:03Z", "id": 10}


def test_the_command_itself(pipeline: New) -> None:
    """Cold, as a user runs it: Spark starts, ends, and is not started for nothing."""
    it = pipeline({"t": "{cursor: [update_at, id]}"}, settings=FOURS)
    create(it)
    fill(it, 1, 10)
    before = os.umask(0)
    try:
        ended = it.command("sync", "-t", f"{it.schema}.t")
    finally:
        os.umask(before)
    assert ended.code == 0, ended
    assert "10 rows in 3 files" in ended.out
    made = [path for path in it.folder.rglob("*") if str(path) != it.config]
    assert {"lake", "warehouse.duckdb"} <= {path.name for path in made}
    assert [path for path in made if path.stat().st_mode & 0o077] == []
    assert {line.partition(":")[0] for line in ended.err.splitlines()} == {"info"}, ended.err
    began = time.monotonic()
    process = it.start("sync", "-t", f"{it.schema}.t")
    java = False
    while process.poll() is None:
        java = java or _has_java(process.pid)
    out, _ = process.communicate()
    assert process.returncode == 0
    assert "nothing new" in out
    assert not java
    assert time.monotonic() - began < 5
    it.check_tracking()


def _has_java(parent: int) -> bool:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text()
        except OSError:
            continue
        name, _, rest = stat.partition("(")[2].rpartition(")")
        if name == "java" and int(rest.split()[1]) == parent:
            return True
    return False


@pytest.mark.follows_hint("GRANT PROCESS ON *.* TO the user, or set 'extraction.lag_seconds'")
def test_a_user_that_sees_no_transactions(pipeline: New, server: PrivateMariaDB) -> None:
    """Without the PROCESS privilege nothing is read, unless a lag is configured."""
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    server.execute(f"CREATE USER '{it.schema}'@'127.0.0.1' IDENTIFIED BY 'x'")
    server.execute(f"GRANT SELECT ON {it.schema}.* TO '{it.schema}'@'127.0.0.1'")
    create(it)
    fill(it, 1, 10)
    ask_once(it, "INSERT INTO t (v) VALUES (1)")
    source = {**source_of(server), "user": it.schema, "password": "x"}
    it = Pipeline(it.folder, it.lake, source, it.schema, it.tables).write_config()
    next_second()
    held = it.synced()
    assert (held["rows"], held["status"]) == (0, "held_back")
    assert held["held_back"] == "no PROCESS privilege, so open transactions cannot be seen"
    assert "GRANT PROCESS" in held["hint"]
    it.write_config("extraction: {lag_seconds: 60}")
    assert it.synced()["rows"] == 10
    it.write_config("extraction: {lag_seconds: 1}")
    next_second()
    assert it.synced()["rows"] == 1
    server.execute(f"DROP USER '{it.schema}'@'127.0.0.1'")


def test_files_have_the_size_that_is_set(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"}, settings="extraction: {file_mb: 1}")
    create(it, f"{OF_CHANGES}, noise VARBINARY(4000)")
    ask_once(
        it,
        "INSERT INTO t (id, update_at, noise) SELECT seq, '2025-06-01',"
        f" RANDOM_BYTES(1000) FROM {numbers(1, 100)}",
    )
    assert it.synced()["files"] == 1
    assert os.path.splitext(next(iter(it.files())))[1] == ".parquet"


def test_sync_without_new_rows_records_that_it_ran(
    pipeline: Callable[..., Pipeline], server: PrivateMariaDB
) -> None:
    it = pipeline({"t": "{cursor: id}"})
    server.execute(f"CREATE TABLE {it.schema}.t (id INT AUTO_INCREMENT PRIMARY KEY)")
    assert "no watermark" in it.call("watermark", "list").out
    assert it.sync().code == 0
    assert "in step" in it.call("watermark", "list").out
