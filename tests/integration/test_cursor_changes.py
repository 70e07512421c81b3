"""A position belongs to a cursor: by another one it means nothing, and is refused."""

import dataclasses
import re
import shlex
from collections.abc import Callable, Sequence
from typing import Any

import duckdb
import pytest
from msgspec import structs

from floodmark.model import lake_layout
from floodmark.model.checksummed_json import seal
from floodmark.model.manifest import Chunk, Manifest
from pipelines import Ended, Pipeline, ask_once, numbers

New = Callable[..., Pipeline]

ROWS = 100
PAST = "update_at DATETIME(6) NOT NULL, created_at DATETIME(6) NOT NULL"
KEYED = f"id INT AUTO_INCREMENT PRIMARY KEY, {PAST}, KEY by_change (update_at, id)"
KEYLESS = f"id INT NOT NULL, {PAST}, KEY by_change (update_at, id)"


def create(it: Pipeline, columns: str = KEYED) -> None:
    """Make a table whose times of change run against its times of creation."""
    execute(
        it,
        f"CREATE TABLE t ({columns});"
        "INSERT INTO t (id, update_at, created_at) SELECT seq, '2025-06-01' + INTERVAL seq MINUTE,"
        f" '2025-03-01' - INTERVAL seq MINUTE FROM {numbers(1, ROWS)}",
    )


def execute(it: Pipeline, statements: str) -> None:
    """Run statements on the source, one after another."""
    for statement in statements.split(";"):
        ask_once(it, statement)


def configure(it: Pipeline, table: str) -> Pipeline:
    """The same pipeline, with other settings of its table."""
    return dataclasses.replace(it, tables={"t": table}).write_config()


def whole(it: Pipeline, *arguments: str) -> Ended:
    """Run both stages."""
    return it.call("sync", "-p", "main", "--json", *arguments)


def loaded(it: Pipeline, columns: str = "id") -> list[tuple[Any, ...]]:
    """What the warehouse holds."""
    with duckdb.connect(str(it.folder / "warehouse.duckdb"), read_only=True) as database:
        return sorted(database.sql(f"SELECT {columns} FROM t").fetchall())


def in_source(it: Pipeline, columns: str = "id") -> list[tuple[Any, ...]]:
    """What the source holds."""
    return sorted(ask_once(it, f"SELECT {columns} FROM t"))


def follow(it: Pipeline, hint: str) -> None:
    """Run the command that a hint names, as somebody who does not want to be asked."""
    command = re.search(r"'floodmark ([^']*)'", hint)
    assert command, hint
    assert it.call(*shlex.split(command[1]), "--force").code == 0


def refused(ended: Ended) -> str:
    """The hint of a sync that another cursor has stopped before anything was read."""
    assert (ended.code, ended.table["rows"]) == (1, 0), ended
    assert "its position was read by" in ended.table["error"]
    return str(ended.table["hint"])


@pytest.mark.follows_hint("then sync, reads the table again from the start")
@pytest.mark.parametrize("columns", [KEYED, KEYLESS], ids=["keyed", "keyless"])
@pytest.mark.parametrize("other", ["id", "[created_at, id]"])
def test_another_cursor_is_refused_until_the_table_is_read_again(
    pipeline: New, columns: str, other: str
) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    create(it, columns)
    assert whole(it, "--limit", "10").table["loaded_rows"] == 10
    it = configure(it, f"{{cursor: {other}}}")
    hint = refused(whole(it))
    assert "'cursor: [update_at, id]' in the configuration keeps the previous one" in hint
    assert it.watermark().mysql_state.status == "failed"
    follow(it, hint)
    whole(it)
    assert loaded(it) == in_source(it)
    assert whole(it).table["rows"] == 0


def test_previous_cursor_continues(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    create(it)
    whole(it, "--limit", "10")
    refused(whole(configure(it, "{cursor: id}")))
    assert whole(configure(it, "{cursor: update_at}")).table["rows"] == ROWS - 10
    assert loaded(it) == in_source(it)


def test_validate_dry_run_and_doctor_see_another_cursor(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    create(it)
    whole(it, "--limit", "10")
    it = configure(it, "{cursor: id}")
    validated = it.call("watermark", "validate", "--json")
    assert validated.code == 5
    (found,) = validated.value
    (difference,), (hint,) = found["differences"], found["hints"]
    assert "was read by (update_at, id), and the configuration says (id)" in difference
    planned = it.call("sync", "-p", "main", "--dry-run", "--json")
    assert "its cursor is now (id)" in planned.value[0]["read"]["error"]
    checked = it.call("doctor", "--json")
    assert checked.code == 1
    assert any("its cursor is now (id)" in check["finding"] for check in checked.value)
    verified = it.call("watermark", "validate", "--data")
    assert "the rows could not be compared" in verified.out
    follow(it, hint)
    whole(it)
    assert it.call("watermark", "validate", "--data").code == 0


@pytest.mark.follows_hint(
    "to switch, configure 'cursor: […]' and run 'floodmark watermark reset -t …"
)
@pytest.mark.parametrize("stamped", ["NULL", "NOT NULL DEFAULT CURRENT_TIMESTAMP"])
def test_a_found_cursor_stays_when_a_better_one_appears(pipeline: New, stamped: str) -> None:
    it = pipeline({"t": "{}"})
    execute(it, "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY); INSERT INTO t VALUES (1)")
    it.synced()
    execute(
        it,
        f"ALTER TABLE t ADD updated_at DATETIME {stamped} ON UPDATE CURRENT_TIMESTAMP;"
        "INSERT INTO t (id, updated_at) VALUES (2, '2025-01-02')",
    )
    assert it.call("watermark", "set", "-t", str(it.table()), "--id", "1").code == 0
    assert it.synced()["rows"] == 1
    assert it.watermark().position.id == 2
    checks = it.call("doctor", "--json").value
    (check,) = (check for check in checks if "suggests the cursor" in check["finding"])
    assert "kept from the first sync: (id)" in str(checks)
    assert "(updated_at, id)" in check["finding"]
    it = configure(it, "{cursor: [updated_at, id]}")
    refused(it.sync("--json"))
    follow(it, re.sub(r"'cursor:[^']*'", "", check["hint"]))
    it.synced()
    assert it.watermark().mysql_state.cursor is not None
    assert it.watermark().position.timestamp is not None


def test_a_table_that_was_read_whole_stays_so_until_a_cursor_is_named(pipeline: New) -> None:
    it = pipeline({"t": "{}"})
    execute(it, "CREATE TABLE t (name VARCHAR(9) PRIMARY KEY); INSERT INTO t VALUES ('a')")
    assert it.synced()["rows"] == 1
    execute(
        it,
        "ALTER TABLE t ADD updated_at DATETIME NOT NULL DEFAULT '2025-06-01'"
        " ON UPDATE CURRENT_TIMESTAMP",
    )
    whole(it)
    assert [chunk.reload for chunk in it.chunks()] == [True, True]
    it = configure(it, "{cursor: updated_at}")
    assert it.synced()["rows"] == 1
    assert not it.chunks()[-1].reload


def test_a_cursor_whose_column_is_gone(pipeline: New) -> None:
    it = pipeline({"t": "{}"})
    create(it)
    it.synced("--limit", "10")
    execute(it, "ALTER TABLE t DROP KEY by_change, DROP COLUMN update_at")
    follow(it, refused(it.sync("--json")))
    it.synced()
    assert it.newest().keys() == set(range(1, ROWS + 1))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a VARCHAR(9) COLLATE utf8mb4_bin", "a VARCHAR(9) COLLATE utf8mb4_general_ci"),
        ("a VARCHAR(9) COLLATE utf8mb4_bin", "a VARBINARY(40)"),
        ("a INT", "a VARCHAR(20) COLLATE utf8mb4_bin"),
    ],
)
def test_a_key_that_is_ordered_in_another_way(pipeline: New, before: str, after: str) -> None:
    it = pipeline({"t": "{cursor: [update_at, a]}"})
    execute(
        it,
        f"CREATE TABLE t ({before} NOT NULL PRIMARY KEY, update_at DATETIME NOT NULL,"
        " KEY by_change (update_at, a));"
        "INSERT INTO t VALUES ('1', '2025-06-01'), ('2', '2025-06-01'), ('11', '2025-06-01')",
    )
    it.synced("--limit", "2")
    execute(it, f"ALTER TABLE t MODIFY {after} NOT NULL")
    ended = it.sync("--json")
    assert (ended.code, ended.table["rows"]) == (1, 0)
    assert "a was " in ended.table["error"]
    follow(it, ended.table["hint"])
    assert it.synced()["rows"] == 3


def test_times_that_lose_digits(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    create(it)
    it.synced()
    execute(
        it,
        "INSERT INTO t VALUES (1000, '2025-06-02 00:00:00.3', '2025-01-01');"
        "UPDATE t SET update_at = '2025-06-02 00:00:00.2' WHERE id = 1",
    )
    it.synced("--limit", "1")
    execute(it, "ALTER TABLE t MODIFY update_at DATETIME NOT NULL")
    ended = it.sync("--json")
    assert "update_at was datetime(6) when its position was read" in ended.table["error"]
    follow(it, ended.table["hint"])
    it.synced()
    assert it.newest().keys() == {*range(1, ROWS + 1), 1000}


@pytest.mark.parametrize(
    "change",
    [
        "MODIFY id BIGINT UNSIGNED AUTO_INCREMENT",
        "DROP KEY by_change, ADD KEY by_time (update_at)",
        "ADD COLUMN more INT, ADD UNIQUE KEY (created_at, id)",
        "RENAME COLUMN id TO ID",
    ],
)
def test_changes_that_leave_the_cursor_as_it_is(pipeline: New, change: str) -> None:
    it = pipeline({"t": "{cursor: update_at}"})
    create(it)
    it.synced("--limit", "10")
    execute(it, f"ALTER TABLE t {change}")
    assert it.synced()["rows"] == ROWS - 10


def test_a_position_behind_a_moment_may_get_a_key_that_breaks_ties(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: update_at}"})
    create(it, KEYLESS)
    it.synced("--limit", "10")
    assert it.watermark().position.id is None
    execute(it, "ALTER TABLE t ADD PRIMARY KEY (id)")
    assert it.synced()["rows"] == ROWS - 10


def without_cursors(it: Pipeline) -> None:
    """Make the log look as a version has left it that kept no cursors."""
    objects = it.lake.open()
    for manifest in it.manifests():
        assert isinstance(manifest.change, Chunk)
        state = structs.replace(manifest.standing.mysql_state, cursor=None)
        older: Manifest = structs.replace(
            manifest,
            change=structs.replace(manifest.change, cursor=None),
            standing=structs.replace(manifest.standing, mysql_state=state),
        )
        objects.put(lake_layout.manifest(it.table(), manifest.head), seal(older))
    for key in _watermarks(it):
        objects.delete(key)


def _watermarks(it: Pipeline) -> Sequence[str]:
    return [info.key for info in it.lake.open().list_objects("watermarks/")]


def test_older_log_shows_another_time_column(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    create(it)
    it.synced("--limit", "10")
    without_cursors(it)
    assert it.watermark().mysql_state.cursor is None
    follow(it, refused(configure(it, "{cursor: [created_at, id]}").sync("--json")))
    it.synced()
    assert it.newest().keys() == set(range(1, ROWS + 1))


def test_older_log_continues_and_records_its_cursor(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    create(it)
    it.synced("--limit", "10")
    without_cursors(it)
    assert it.synced()["rows"] == ROWS - 10
    assert [column.name for column in it.watermark().mysql_state.cursor or ()] == [
        "update_at",
        "id",
    ]


def test_verification_leaves_out_what_another_cursor_read(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    create(it)
    whole(it)
    it = configure(it, "{cursor: id}")
    follow(it, refused(whole(it)))
    ended = whole(it, "--verify-data=all")
    assert ended.code == 0, ended
    assert ended.table["verification"]["rows"] == ROWS
    assert loaded(it) == in_source(it)
