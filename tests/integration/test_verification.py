"""`sync --verify-data`: source and target held against each other, and what is found."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import duckdb
import pytest

from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.errors import FloodmarkError
from floodmark.model.position import START
from floodmark.model.verification import Comparison, WindowPair
from floodmark.mysql.row_checksums import SourceChecksums
from floodmark.sync.compare_windows import WindowComparison
from floodmark.warehouse.duckdb import DuckdbTarget
from floodmark.warehouse.redshift.target import RedshiftTarget
from floodmark.worker.compare_window import VerificationJob
from pipelines import DirectEngine, Ended, Pipeline, ask_once, numbers, warm_engine
from warehouses import name_target, new_warehouse

New = Callable[..., Pipeline]

CURSOR = "{cursor: [update_at, id]}"
STAMP = "update_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP"
OF_CHANGES = (
    f"id INT AUTO_INCREMENT PRIMARY KEY, v INT NOT NULL DEFAULT 0, note VARCHAR(20), {STAMP},"
    " KEY by_change (update_at, id)"
)
FOURS = "extraction: {window_rows: 4, windows_per_chunk: 2}"


def create(it: Pipeline, columns: str = OF_CHANGES, name: str = "t") -> None:
    ask_once(it, f"CREATE TABLE `{name}` ({columns})")


def fill(it: Pipeline, first: int, last: int, name: str = "t") -> None:
    """Add rows that changed long ago, three and three at once."""
    ask_once(
        it,
        f"INSERT INTO `{name}` (id, v, update_at) SELECT seq, seq,"
        f" '2025-06-01' + INTERVAL seq DIV 3 SECOND FROM {numbers(first, last)}",
    )


def verify(it: Pipeline, *arguments: str, which: str = "new") -> Ended:
    return it.call("sync", "-p", "main", f"--verify-data={which}", "--json", *arguments)


def compare_all(it: Pipeline) -> Any:
    """Compare everything that was loaded, and extract nothing."""
    ended = verify(it, "--load-only", which="all")
    found = ended.table["verification"]
    assert ended.code == (5 if found["differences"] else 0), ended
    return found


def in_target(it: Pipeline, *statements: str) -> None:
    with duckdb.connect(str(it.folder / "warehouse.duckdb")) as database:
        for statement in statements:
            database.execute(statement)


def shown(found: Any) -> list[tuple[str, tuple[Any, ...], dict[str, tuple[Any, Any]]]]:
    """What is shown of rows: what is wrong, their key, and the values of both sides."""
    return sorted(
        (
            row["kind"],
            tuple(row["key"].values()),
            {value["column"]: (value["source"], value["target"]) for value in row["values"]},
        )
        for row in found["shown"]
    )


@pytest.fixture
def synced(pipeline: New) -> Pipeline:
    """Twenty rows, synced and verified."""
    it = pipeline({"t": CURSOR}, settings=FOURS)
    create(it)
    fill(it, 1, 20)
    ended = verify(it)
    assert ended.code == 0, ended
    found = ended.table["verification"]
    assert (found["rows"], found["windows"], found["checksum_windows"]) == (20, 5, 5)
    return it


# How far it is verified


def test_equal_ranges_are_verified_and_nothing_is_rewritten(synced: Pipeline) -> None:
    watermark = synced.watermark()
    state = watermark.verified_state
    assert (state.status, state.position) == ("success", watermark.position)
    assert state.head == watermark.loaded_head
    again = verify(synced, "--load-only")
    assert (again.code, again.table["verification"]["windows"]) == (0, 0)
    assert compare_all(synced)["rows"] == 20
    assert synced.watermark() == watermark
    shown = synced.call("watermark", "get", "-t", f"{synced.schema}.t")
    assert "Equal Up To: 2025-06-01 00:00:06, id 20" in shown.out
    document = synced.call("watermark", "get", "-t", f"{synced.schema}.t", "--json").value
    assert document["verified_state"]["last_id"] == 20


def test_all_rows_of_a_large_table_are_compared_along_its_key(
    synced: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same rows are compared; but then the first row that differs has no position."""
    it = synced
    monkeypatch.setattr("floodmark.sync.verify.LARGE_TABLE_ROWS", 10)
    ask_once(it, "ANALYZE TABLE t")
    predicates: list[str] = []
    compare = WindowComparison.compare

    def noted(self: WindowComparison, pairs: Sequence[WindowPair]) -> list[Comparison]:
        predicates.extend(pair.window.predicate for pair in pairs)
        return compare(self, pairs)

    monkeypatch.setattr(WindowComparison, "compare", noted)
    watermark = it.watermark()
    found = compare_all(it)
    assert (found["rows"], found["windows"], found["checksum_windows"]) == (20, 5, 5)
    assert predicates[1].startswith("`id` > 4 AND `id` <= 8 AND"), predicates
    assert it.watermark() == watermark

    in_target(
        it,
        "UPDATE t SET v = -1 WHERE id = 6",
        "DELETE FROM t WHERE id = 20",
        "INSERT INTO t (id, v, update_at) SELECT id + 30, v, update_at FROM t WHERE id IN (1, 16)",
        "INSERT INTO t (id, v, update_at) VALUES (-5, 1, '2025-06-01'), (99, 1, '2031-01-01')",
    )
    found = compare_all(it)
    kinds = [(kind, key) for kind, key, _ in shown(found)]
    extra = [("extra", (key,)) for key in ("-5", "31", "46")]
    assert kinds == [("changed", ("6",)), *extra, ("missing", ("20",))]
    left = [(one["kind"], one["rows"]) for one in found["not_compared"] if one["rows"]]
    assert left == [("outside", 1)]
    state = it.watermark().verified_state
    start = it.chunks()[0].start
    assert (state.status, state.position) == ("failed", start)

    again = verify(it, "--load-only")
    assert (again.code, again.table["verification"]["rows"]) == (5, 20)


@pytest.mark.enough_on("mysql")
def test_an_error_in_one_part_ends_the_other_parts(
    synced: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("floodmark.sync.verify.LARGE_TABLE_ROWS", 10)
    monkeypatch.setattr("floodmark.mysql.row_checksums._PART_NUMBERS", 1)
    ask_once(synced, "ANALYZE TABLE t")
    asked: list[str] = []

    def fails(_: SourceChecksums, __: object, statement: str) -> None:
        asked.append(statement)
        if len(asked) > 1:
            Event().wait(0.5)  # meanwhile, the first error is seen
        raise FloodmarkError("the server is busy")

    monkeypatch.setattr(SourceChecksums, "read", fails)
    found = compare_all(synced)
    assert "checksums failed: the server is busy" in str(found["remarks"])
    assert (found["rows"], found["checksum_windows"]) == (20, 0)
    assert len(asked) < 8  # of the two windows of the first chunk


@pytest.mark.enough_on("mysql")
def test_a_part_of_a_table_is_compared_along_its_index(
    pipeline: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most of the table is older than the first position, or its keys have gaps."""
    monkeypatch.setattr("floodmark.sync.verify.LARGE_TABLE_ROWS", 10)
    it = pipeline({"late": CURSOR, "sparse": CURSOR}, settings=FOURS)
    for name in ("late", "sparse"):
        create(it, name=name)
    fill(it, 1, 2000, name="late")
    ask_once(it, "UPDATE late SET update_at = '2020-01-01' WHERE id <= 1980")
    ask_once(
        it,
        "INSERT INTO sparse (id, v, update_at) SELECT seq * 100, seq, '2025-06-01' + INTERVAL seq"
        f" SECOND FROM {numbers(1, 20)}",
    )
    for name in ("late", "sparse"):
        ask_once(it, f"ANALYZE TABLE {name}")
        ended = it.call("sync", "-t", f"{it.schema}.{name}", "--verify-data=all", "--json")
        found = ended.table["verification"]
        assert (found["rows"], found["windows"]) == (20, 5), (name, ended)


@pytest.mark.enough_on("mysql")
def test_only_new_rows_are_compared_unless_all_are_requested(synced: Pipeline) -> None:
    in_target(synced, "UPDATE t SET v = -1 WHERE id = 6")
    fill(synced, 21, 25)
    ended = verify(synced)
    assert (ended.code, ended.table["verification"]["rows"]) == (0, 5)
    assert synced.watermark().verified_state.position == synced.watermark().position
    found = compare_all(synced)
    assert shown(found) == [("changed", ("6",), {"v": ("6", "-1")})]
    # What turned out to be different is verified no more, and found again.
    state = synced.watermark().verified_state
    assert (state.status, str(state.position)) == ("failed", "2025-06-01 00:00:01, id 4")
    assert state.error == "source and target differ in rows: 1 with different values in the target"
    again = verify(synced)
    assert (again.code, again.table["verification"]["rows"]) == (5, 21)


def test_a_difference_stops_the_verified_position_until_it_is_repaired(pipeline: New) -> None:
    it = pipeline({"t": CURSOR}, settings=FOURS)
    create(it)
    fill(it, 1, 20)
    assert it.call("sync", "-p", "main").code == 0
    in_target(it, "UPDATE t SET note = 'other' WHERE id = 14", "DELETE FROM t WHERE id = 19")
    ended = verify(it)
    assert ended.code == 5
    assert ended.table["verification"]["rows"] == 20  # all the same, to find everything at once
    assert shown(ended.table["verification"]) == [
        ("changed", ("14",), {"note": (None, "other")}),
        ("missing", ("19",), {}),
    ]
    state = it.watermark().verified_state
    assert (state.position.id, state.status) == (12, "failed")
    in_target(it, "UPDATE t SET note = NULL WHERE id = 14")
    ended = verify(it)
    assert (ended.code, ended.table["verification"]["rows"]) == (5, 8)
    assert it.watermark().verified_state.position.id == 16
    in_target(it, "INSERT INTO t VALUES (19, 19, NULL, '2025-06-01 00:00:06')")
    assert verify(it).code == 0
    state = it.watermark().verified_state
    assert (state.position.id, state.status, state.error) == (20, "success", None)


@pytest.mark.enough_on("mariadb")
def test_interrupted_comparison_resumes(pipeline: New, monkeypatch: pytest.MonkeyPatch) -> None:
    compare = WindowComparison.compare

    def die_at_second_chunk(
        self: WindowComparison, pairs: Sequence[WindowPair]
    ) -> list[Comparison]:
        if pairs[0].window.start.id == 8:
            raise FloodmarkError("struck")
        return compare(self, pairs)

    it = pipeline({"t": CURSOR}, settings=FOURS)
    create(it)
    fill(it, 1, 20)
    with monkeypatch.context() as patched:
        patched.setattr(WindowComparison, "compare", die_at_second_chunk)
        broken = it.call("sync", "-p", "main", "--verify-data", "--json")
    assert (broken.code, broken.table["error"]) == (1, "struck")
    assert broken.table["loaded_rows"] == 20
    assert it.watermark().verified_state.position.id == 8
    ended = verify(it)
    assert (ended.code, ended.table["verification"]["rows"]) == (0, 12)


@pytest.mark.enough_on("mysql")
def test_what_was_skipped_by_hand_is_no_difference(synced: Pipeline) -> None:
    fill(synced, 21, 40)
    name = f"{synced.schema}.t"
    at = ("--timestamp", "2025-06-01 00:00:10", "--id", "30", "--force")
    assert synced.call("watermark", "set", "-t", name, *at, "--force").code == 0
    ended = verify(synced)
    assert (ended.code, ended.table["verification"]["rows"]) == (0, 10)
    assert compare_all(synced)["rows"] == 30
    assert synced.watermark().verified_state.position == synced.watermark().position


@pytest.mark.enough_on("mariadb")
def test_what_is_read_again_is_verified_again(synced: Pipeline) -> None:
    name = f"{synced.schema}.t"
    assert (
        synced.call(
            "watermark", "set", "-t", name, "--timestamp", "2025-06-01 00:00:02", "--force"
        ).code
        == 0
    )
    assert str(synced.watermark().verified_state.position) == "2025-06-01 00:00:02"
    assert compare_all(synced)["rows"] == 8  # never beyond where the table stands
    ended = verify(synced)
    assert (ended.code, ended.table["verification"]["rows"]) == (0, 12)
    assert synced.call("watermark", "reset", "-t", name, "--load-only", "--force").code == 0
    assert synced.watermark().verified_state.position == START
    assert verify(synced).table["verification"]["rows"] == 20


@pytest.mark.enough_on("mysql")
def test_nothing_synced_is_nothing_to_compare(pipeline: New) -> None:
    it = pipeline({"t": CURSOR})
    create(it)
    ended = verify(it)
    assert (ended.code, ended.table["verification"]["windows"]) == (0, 0)
    told = it.call("sync", "-p", "main", "--verify-data")
    assert "nothing new to compare" in told.out


# What is found


def test_each_kind_of_difference_is_reported(synced: Pipeline) -> None:
    in_target(
        synced,
        "UPDATE t SET v = v + 1, note = '' WHERE id = 3",
        "DELETE FROM t WHERE id = 5",
        "INSERT INTO t SELECT t.* FROM t, range(2) WHERE id = 7",
        "INSERT INTO t VALUES (99, 0, 'x', '2025-06-01 00:00:03')",
    )
    found = compare_all(synced)
    assert found["differences"] == {"changed": 1, "missing": 1, "duplicate": 2, "extra": 1}
    assert shown(found) == [
        ("changed", ("3",), {"v": ("3", "4"), "note": (None, "")}),
        ("duplicate", ("7",), {}),
        ("extra", ("99",), {}),
        ("missing", ("5",), {}),
    ]
    assert sorted((row["kind"], row["key"]["id"]) for row in found["keys"]) == [
        ("changed", "3"),
        ("duplicate", "7"),
        ("extra", "99"),
        ("missing", "5"),
    ]
    told = synced.call("sync", "-p", "main", "--verify-data=all")
    assert told.code == 5
    assert "changed: id = '3'" in told.out
    assert "note: NULL in the source, '' in the target" in told.out
    assert "1 in the target only, most likely deleted in the source" in told.out
    assert "hint:" in told.err


@pytest.mark.enough_on("mariadb")
def test_a_few_rows_are_shown_and_all_are_counted(synced: Pipeline) -> None:
    fill(synced, 21, 40)
    assert synced.call("sync", "-p", "main").code == 0
    in_target(synced, "UPDATE t SET v = -v")
    found = compare_all(synced)
    assert (found["differences"], len(found["shown"])) == ({"changed": 40}, 20)
    assert sorted(int(row["key"]["id"]) for row in found["keys"]) == list(range(1, 41))
    assert {row["kind"] for row in found["keys"]} == {"changed"}
    assert "the first 20 of 40 rows" in synced.call("sync", "-p", "main", "--verify-data=all").out


def test_rows_that_have_moved_on_are_no_difference(synced: Pipeline) -> None:
    ask_once(synced, "UPDATE t SET v = -1 WHERE id % 2 = 0")
    found = compare_all(synced)
    assert (found["rows"], found["moved"], found["differences"]) == (10, 10, {})
    ask_once(synced, "DELETE FROM t WHERE id IN (1, 2)")
    found = compare_all(synced)
    assert (found["moved"], found["differences"]) == (9, {"extra": 2})
    assert shown(found) == [("extra", ("1",), {}), ("extra", ("2",), {})]


def test_an_older_version_that_was_left_behind_is_no_row_that_has_moved_on(
    synced: Pipeline,
) -> None:
    in_target(
        synced,
        "INSERT INTO t BY NAME SELECT * REPLACE ('old' AS note,"
        " TIMESTAMP '2025-06-01 00:00:01.5' AS update_at) FROM t WHERE id = 20",
    )
    found = compare_all(synced)
    assert (found["moved"], shown(found)) == (0, [("stale", ("20",), {})])
    ask_once(synced, "UPDATE t SET v = -1 WHERE id = 20")
    found = compare_all(synced)
    assert (found["moved"], found["differences"]) == (2, {})


def test_a_row_that_came_late_is_missing(synced: Pipeline) -> None:
    ask_once(synced, "INSERT INTO t VALUES (77, 0, 'late', '2025-06-01 00:00:02')")
    assert shown(compare_all(synced)) == [("missing", ("77",), {})]


@pytest.mark.enough_on("mysql")
def test_a_target_without_the_table_differs(synced: Pipeline) -> None:
    in_target(synced, "DROP TABLE t")
    ended = verify(synced, which="all")
    assert ended.code == 5
    assert "the target has no table t" in ended.table["error"]


@pytest.mark.enough_on("mariadb")
def test_a_column_that_the_target_lacks_is_reported(synced: Pipeline) -> None:
    ask_once(synced, "ALTER TABLE t ADD COLUMN new_one INT DEFAULT 5")
    ended = verify(synced, which="all")
    assert ended.code == 0
    assert "not in the target yet, and not compared: new_one" in ended.err


@pytest.mark.enough_on("mysql")
def test_one_table_that_differs_among_others_is_a_difference(pipeline: New) -> None:
    it = pipeline({"t": CURSOR, "u": CURSOR}, settings=FOURS)
    for name in ("t", "u"):
        create(it, name=name)
        fill(it, 1, 10, name)
    assert it.call("sync", "-p", "main", "--strategy", "inter-table", "--verify-data").code == 0
    in_target(it, "DELETE FROM u WHERE id = 1")
    ended = verify(it, "--strategy", "inter-table", which="all")
    assert ended.code == 5
    assert [table["status"] for table in ended.value["tables"]] == ["success", "differs"]


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize("other", ["--backup-only", "--dry-run"])
def test_without_a_load_there_is_nothing_to_verify(synced: Pipeline, other: str) -> None:
    ended = verify(synced, other)
    assert ended.code == 2
    assert other in ended.err


@pytest.mark.enough_on("mariadb")
def test_watermark_validate_compares_the_rows_too(synced: Pipeline) -> None:
    fine = synced.call("watermark", "validate", "--data", "--json")
    assert fine.code == 0, fine
    assert fine.value[0]["verification"]["rows"] == 20
    assert "20 rows compared" in synced.call("watermark", "validate", "--data").out
    in_target(synced, "UPDATE t SET v = -1 WHERE id = 3")
    assert synced.call("watermark", "validate").code == 0
    told = synced.call("watermark", "validate", "--data")
    assert told.code == 5
    assert "v: '3' in the source, '-1' in the target" in told.out
    assert synced.watermark().verified_state.status == "failed"
    assert synced.call("watermark", "validate", "--data", "--lake-only").code == 2


@pytest.mark.enough_on("mysql")
def test_a_table_that_cannot_be_compared_leaves_the_others_alone(pipeline: New) -> None:
    it = pipeline({"t": CURSOR, "u": CURSOR}, settings=FOURS)
    for name in it.tables:
        create(it, name=name)
        fill(it, 1, 5, name)
    assert it.call("sync", "-p", "main").code == 0
    in_target(it, "DROP TABLE t")
    found = it.call("watermark", "validate", "--data")
    assert found.code == 5
    assert f"the rows could not be compared: the target has no table t, but {it.table()}" in (
        " ".join(found.out.split())
    )
    assert "5 rows compared" in found.out


@pytest.mark.enough_on("mariadb")
def test_rows_in_quarantine_are_counted_apart(
    pipeline: New, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    warehouse = new_warehouse("postgres", request, tmp_path / "target")
    it = pipeline({"t": CURSOR}, settings=FOURS)
    name_target(it.config, warehouse.connection)
    create(it)
    fill(it, 1, 20)
    assert verify(it).code == 0
    ask_once(it, "UPDATE t SET note = 'a\\0b', update_at = '2025-06-02' WHERE id IN (3, 18)")
    ended = verify(it)
    found = ended.table["verification"]
    assert (ended.code, ended.table["quarantined_rows"], found["quarantined"]) == (0, 2, 2)
    assert "2 rows are in quarantine, and so not in the target" in ended.err
    assert it.watermark().verified_state.position == it.watermark().position
    warehouse.query("DELETE FROM {schema}.t WHERE id = 4")
    found = compare_all(it)
    assert (found["quarantined"], found["moved"]) == (2, 2)  # older versions are still there
    assert shown(found) == [("missing", ("4",), {})]


# Where it is compared


class NoSpark(DirectEngine):
    """Reads nothing."""

    def compare(self, job: VerificationJob, pairs: Sequence[WindowPair]) -> list[Comparison]:
        raise FloodmarkError("Spark was started")


@pytest.mark.enough_on("mariadb")
def test_equal_windows_and_a_few_rows_need_no_spark(
    synced: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = replace(synced, engine=NoSpark)
    assert compare_all(it)["checksum_windows"] == 5
    in_target(it, "UPDATE t SET v = -1 WHERE id IN (3, 9)")
    found = compare_all(it)
    assert (found["checksum_windows"], found["rows"]) == (3, 20)
    assert [key for _, key, _ in shown(found)] == [("3",), ("9",)]
    monkeypatch.setattr("floodmark.sync.compare_windows._MOST_ROWS_HERE", 3)
    assert verify(it, which="all").table["error"] == "Spark was started"


@pytest.mark.enough_on("mysql")
def test_a_target_without_the_functions_is_compared_row_by_row(
    synced: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_target(synced, "UPDATE t SET v = -1 WHERE id = 3")
    monkeypatch.setattr(DuckdbTarget, "_sha256", lambda _, text: f"no_such_hash({text})")
    ended = verify(synced, "--load-only", which="all")
    found = ended.table["verification"]
    assert shown(found) == [("changed", ("3",), {"v": ("3", "-1")})]
    assert (found["checksum_windows"], found["rows"]) == (0, 20)
    assert found["read_columns"] == ["id", "v", "note", "update_at"]
    assert ended.err.count("compared row by row, as checksums failed: DuckDB: Catalog Error") == 1


@pytest.mark.enough_on("mariadb")
def test_invalid_dates_are_left_to_the_comparison_of_rows(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: id}"}, settings=FOURS)
    create(it, "id INT PRIMARY KEY, d DATE")
    days = ["0000-00-00", "2024-00-15", "2024-02-31", "2025-01-01"]
    for number, day in enumerate(days * 2, start=1):
        insert = f"INSERT INTO t VALUES ({number}, '{day}')"
        ask_once(it, insert, sql_mode="ALLOW_INVALID_DATES")
    ended = verify(it)
    found = ended.table["verification"]
    assert (ended.code, found["rows"], found["windows"]) == (0, 8, 2)
    assert found["checksum_windows"] == 0
    ask_once(it, "DELETE FROM t WHERE id IN (2, 3, 6, 7)")
    in_target(it, "DELETE FROM t WHERE id IN (2, 3, 6, 7)")
    found = compare_all(it)
    assert (found["rows"], found["checksum_windows"]) == (4, found["windows"])


# Cursors and keys


@pytest.mark.parametrize(
    ("settings", "columns"),
    [
        ("{cursor: id}", f"id INT AUTO_INCREMENT PRIMARY KEY, v INT, {STAMP}"),
        ("{cursor: id}", f"id BIGINT UNSIGNED PRIMARY KEY, v INT, {STAMP}"),
        ("{cursor: update_at}", f"id INT, v INT, {STAMP}, KEY (update_at)"),
        (CURSOR, f"id INT PRIMARY KEY, v INT, {STAMP}"),  # no index: along the key
        ("{cursor: none}", f"id INT PRIMARY KEY, v INT, {STAMP}"),
        ("{cursor: none}", f"id INT, v INT, {STAMP}"),
    ],
    ids=["id", "unsigned id", "moments alone", "no index", "reload", "reload without a key"],
)
def test_every_kind_of_cursor(pipeline: New, settings: str, columns: str) -> None:
    it = pipeline({"t": settings}, settings=FOURS)
    create(it, columns)
    fill(it, 1, 20)
    ended = verify(it)
    assert ended.code == 0, ended
    assert ended.table["verification"]["rows"] == 20
    state = it.watermark().verified_state
    assert (state.position, state.head) == (it.watermark().position, it.watermark().loaded_head)
    told = it.call("watermark", "get", "-t", f"{it.schema}.t").out
    assert ("Equal Up To: the end" in told) == ("none" in settings)
    in_target(it, "UPDATE t SET v = -1 WHERE id = 15", "DELETE FROM t WHERE id = 9")
    found = compare_all(it)
    if "KEY" in columns and "PRIMARY" in columns:
        assert shown(found) == [("changed", ("15",), {"v": ("15", "-1")}), ("missing", ("9",), {})]
    else:
        assert found["differences"] == {"missing": 2, "extra": 1}


@pytest.mark.parametrize("index", [", KEY (update_at, code)", ""], ids=["index", "no index"])
def test_text_keys_whatever_their_collation(pipeline: New, index: str) -> None:
    """Their order is the server's own, and rows tie across windows."""
    it = pipeline({"t": "{cursor: update_at}"}, settings=FOURS)
    create(it, f"code VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY, v INT, {STAMP}{index}")
    codes = ["a", "B", "c", "Äx", "é", "Z", "_", "0", "aa", "ß", "y'", 'x"', "\\", "日本"]
    for number, code in enumerate(codes):
        escaped = code.replace("\\", "\\\\").replace("'", "''")
        ask_once(
            it,
            f"INSERT INTO t VALUES ('{escaped}', {number},"
            f" '2025-06-01' + INTERVAL {number} DIV 6 SECOND)",
        )
    rows = 0
    for _ in range(4):
        ended = verify(it, "--limit", "4")
        assert ended.code == 0, ended
        rows += ended.table["rows"]
    assert rows == len(codes)
    assert compare_all(it)["differences"] == {}
    ask_once(it, "UPDATE t SET v = 100 WHERE code IN ('b', '日本')")  # both have moved on
    in_target(
        it, "UPDATE t SET v = -1 WHERE code IN ('é', '\\')", "DELETE FROM t WHERE code = 'Äx'"
    )
    ask_once(it, "DELETE FROM t WHERE code = 'Z'")
    ask_once(it, "INSERT INTO t VALUES ('z', 5, NOW())")  # the same key to the server, not to us
    found = compare_all(it)
    assert found["moved"] == 2
    assert shown(found) == [
        ("changed", ("\\",), {"v": ("12", "-1")}),
        ("changed", ("é",), {"v": ("4", "-1")}),
        ("extra", ("Z",), {}),
        ("missing", ("Äx",), {}),
    ]


def test_composite_keys(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: update_at}"}, settings=FOURS)
    create(
        it,
        f"day DATE, part VARBINARY(4), n DECIMAL(5,2), v INT, {STAMP}, PRIMARY KEY (day, part, n),"
        " KEY (update_at)",
    )
    ask_once(
        it,
        "INSERT INTO t SELECT '2025-01-01' + INTERVAL seq DIV 4 DAY, CHAR(seq % 4), seq / 4, seq,"
        f" '2025-06-01' + INTERVAL seq DIV 3 SECOND FROM {numbers(1, 20)}",
    )
    assert verify(it).code == 0
    ask_once(it, "UPDATE t SET v = 0 WHERE v IN (2, 11)")
    ask_once(it, "DELETE FROM t WHERE v = 8")
    in_target(it, "UPDATE t SET v = -1 WHERE v = 17")
    found = compare_all(it)
    assert found["moved"] == 2
    assert shown(found) == [
        ("changed", ("2025-01-05", "0x01", "4.25"), {"v": ("17", "-1")}),
        ("extra", ("2025-01-03", "0x00", "2.00"), {}),
    ]


def test_equal_rows_without_a_key_are_counted(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: update_at}"}, settings=FOURS)
    create(it, f"v INT, note VARCHAR(9), {STAMP}, KEY (update_at)")
    ask_once(
        it,
        "INSERT INTO t SELECT seq % 2, NULL, '2025-06-01' + INTERVAL seq % 3 SECOND"
        f" FROM {numbers(1, 30)}",
    )
    assert verify(it).code == 0
    in_target(
        it,
        "INSERT INTO t SELECT * FROM t LIMIT 1",
        "INSERT INTO t VALUES (0, '', '2025-06-01 00:00:01')",
    )
    found = compare_all(it)
    assert found["differences"] == {"duplicate": 1, "extra": 1}
    assert ("extra", ("0", "", "2025-06-01 00:00:01"), {}) in shown(found)


# Every target, every type

TYPES = {
    "whole": ("BIGINT", "9223372036854775806", "{} + 1"),
    "huge": ("BIGINT UNSIGNED", "18446744073709551615", "{} - 1"),
    "flag": ("BIT(1)", "b'1'", "NOT {}"),
    "exact": ("DECIMAL(38,10)", "1234567890123456789012345678.0000000001", "-{}"),
    "wide": ("DECIMAL(60,30)", "-1.000000000000000000000000000001", None),
    "single": ("FLOAT", "0.1", "{} * 1.001"),
    "twice": ("DOUBLE", "0.1", "{} * 1.000000000000001"),
    "day": ("DATE", "'1000-01-01'", "{} + 1"),
    "wall": ("DATETIME(6)", "'9999-12-31 23:59:59.999998'", "{} + INTERVAL '1 microsecond'"),
    "moment": ("TIMESTAMP(6) NULL", "'2025-03-30 01:30:00.000001'", "{} + INTERVAL '1 hour'"),
    "span": ("TIME(3)", "'-25:00:00.5'", "{} || '1'"),
    "word": ("VARCHAR(20)", "'tail  '", "'tail '"),
    "story": ("LONGTEXT", "REPEAT('é\\n\"', 9000)", "{} || ' '"),
    "choice": ("ENUM('a','b')", "'b'", "'a'"),
    "doc": ("JSON", '\'{"a": [1, null], "b": 1.0}\'', "'{{\"b\": 2}}'"),
    "empty": ("VARCHAR(5)", "''", "NULL"),
    "none": ("VARCHAR(5)", "NULL", "''"),
    "octets": ("VARBINARY(5)", "x'00FF00'", None),
    "shape": ("POINT", "ST_GeomFromText('POINT(1 2)')", None),
}


@pytest.mark.parametrize("kind", ["duckdb", "postgres", "redshift", "redshift, unloaded"])
def test_every_type_in_every_target(
    pipeline: New,
    server: PrivateMariaDB,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    kind, unloaded, _ = kind.partition(", unloaded")
    if unloaded:
        monkeypatch.setattr(RedshiftTarget, "unload_rows", 0)
    warehouse = new_warehouse(kind, request, tmp_path / "target")
    (tmp_path / "target").mkdir(exist_ok=True)
    lake = "ministack" if kind == "redshift" else "local"
    it = pipeline({"t": CURSOR}, lake=lake, settings=FOURS)
    if lake != "local":
        warehouse = replace(warehouse, lake=it.lake)
    name_target(it.config, warehouse.connection)
    columns = ", ".join(f"`{name}` {kind}" for name, (kind, _, _) in TYPES.items())
    server.execute("SET GLOBAL time_zone = '+05:30'")
    try:
        create(it, f"id INT PRIMARY KEY, {columns}, update_at TIMESTAMP(3), KEY (update_at, id)")
        values = ", ".join(value for _, value, _ in TYPES.values())
        ask_once(
            it,
            f"INSERT INTO t SELECT seq, {values}, '2025-06-01' + INTERVAL seq SECOND"
            f" FROM {numbers(1, 30)}",
        )
        ask_once(it, "INSERT INTO t (id, update_at) VALUES (31, '2025-06-02')")
        ended = verify(it)
        assert ended.code == 0, ended
        assert ended.table["verification"]["rows"] == 31
        read = {"redshift": ["single", "twice", "shape"]}.get(kind, [])
        assert ended.table["verification"]["read_columns"] == read
        assert ended.table["verification"]["checksum_windows"] == 8
        told = f"read to be compared, as there is no checksum: {', '.join(read)}"
        assert (told in ended.err) == bool(read)
        if unloaded:
            stand_in = request.getfixturevalue("redshift")
            assert "UNLOAD" in {execution.kind for execution in stand_in.executed}
            assert not list(it.lake.open().list_objects("loads/"))
        expected = []
        for number, (name, (_, _, other)) in enumerate(TYPES.items(), start=1):
            new = (
                other
                or {
                    "wide": {"postgres": "{} * 2"}.get(kind, "'-1.000000000000000000000000000002'"),
                    "octets": {"duckdb": "'\\x00\\xFF\\x01'::BLOB"}.get(
                        kind, "decode('00FF01', 'hex')"
                    ),
                    "shape": {"duckdb": "'\\x00'::BLOB"}.get(kind, "decode('00', 'hex')"),
                }[name]
            )
            column = f'"{name}"'
            warehouse.query(
                f"UPDATE {{schema}}.t SET {column} = {new.format(column)} WHERE id = {number}"
            )
            expected.append((number, {name}))
        found = compare_all(it)
        assert found["differences"] == {"changed": len(TYPES)}
        differing = sorted((int(key[0]), set(values)) for _, key, values in shown(found))
        assert differing == expected
        assert not any(one == other for _, _, v in shown(found) for one, other in v.values())
    finally:
        server.execute("SET GLOBAL time_zone = 'SYSTEM'")


@pytest.mark.parametrize("kind", ["duckdb", "postgres"])
def test_windows_are_compared_on_spark(
    pipeline: New,
    spark: Any,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    monkeypatch.setattr("floodmark.sync.compare_windows._MOST_ROWS_HERE", 0)
    warehouse = new_warehouse(kind, request, tmp_path / "target")
    (tmp_path / "target").mkdir(exist_ok=True)
    it = pipeline({"t": CURSOR}, settings=FOURS, engine=warm_engine(spark))
    name_target(it.config, warehouse.connection)
    create(it)
    fill(it, 1, 20)
    ended = verify(it)
    assert (ended.code, ended.table["verification"]["windows"]) == (0, 5)
    ask_once(it, "UPDATE t SET v = -1 WHERE id = 1")
    ask_once(it, "DELETE FROM t WHERE id = 2")
    warehouse.query("UPDATE {schema}.t SET v = -1 WHERE id = 3")
    found = compare_all(it)
    assert found["moved"] == 1
    assert shown(found) == [("changed", ("3",), {"v": ("3", "-1")}), ("extra", ("2",), {})]
