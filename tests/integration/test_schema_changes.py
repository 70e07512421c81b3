"""Schemas that change while a table is synced: rows stay equal, and a lost warehouse comes back."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipelines import ask_once
from synced_table import COLUMNS, CURSOR, STAMP, NewTable
from warehouses import name_target

# What happens between syncs, and how many hints must be followed.
CHANGES: dict[str, tuple[list[list[str]], int]] = {
    "default": ([["ALTER TABLE t ADD COLUMN x INT NOT NULL DEFAULT 7"]], 0),
    "nullable default": ([["ALTER TABLE t ADD COLUMN x VARCHAR(9) DEFAULT 'a''\\\\é'"]], 0),
    "bytes and dates": (
        [
            [
                "ALTER TABLE t ADD COLUMN x VARBINARY(4) NOT NULL DEFAULT X'00ff27'",
                "ALTER TABLE t ADD COLUMN y DATETIME(6) NOT NULL DEFAULT '2024-02-29 01:02:03.5'",
                "ALTER TABLE t ADD COLUMN z DECIMAL(12,4) NOT NULL DEFAULT -1.25",
                "ALTER TABLE t ADD COLUMN f FLOAT NOT NULL DEFAULT 0.1",
                "ALTER TABLE t ADD COLUMN b BIT(1) NOT NULL DEFAULT b'1'",
            ]
        ],
        0,
    ),
    "default that changed since": (
        [["ALTER TABLE t ADD COLUMN x INT DEFAULT 7", "ALTER TABLE t ALTER x SET DEFAULT 8"]],
        0,
    ),
    "now": ([["ALTER TABLE t ADD COLUMN x DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)"]], 0),
    "generated": ([["ALTER TABLE t ADD COLUMN x INT AS (big * 2) STORED"]], 1),
    "updated": (
        [["ALTER TABLE t ADD COLUMN x INT DEFAULT 7", "UPDATE t SET x = 8 WHERE id = 3"]],
        1,
    ),
    "dropped": ([["ALTER TABLE t DROP COLUMN note"]], 0),
    "renamed": ([["ALTER TABLE t CHANGE note remark VARCHAR(20)"]], 1),
    "narrowed": ([["ALTER TABLE t MODIFY big INT NOT NULL"]], 0),
    "narrowed decimal": ([["ALTER TABLE t MODIFY amount DECIMAL(8,1)"]], 1),
    "int to varchar": ([["ALTER TABLE t MODIFY big VARCHAR(30) NOT NULL"]], 1),
    "varchar to int": ([["UPDATE t SET note = '007'", "ALTER TABLE t MODIFY note INT"]], 0),
    "date to datetime": ([["ALTER TABLE t MODIFY day DATETIME"]], 0),
    "decimal that is neither wider nor narrower": (
        [["ALTER TABLE t MODIFY amount DECIMAL(11,4)"]],
        2,
    ),
    "two changes": (
        [
            ["ALTER TABLE t MODIFY amount DECIMAL(11,4)"],
            ["ALTER TABLE t MODIFY big VARCHAR(40) NOT NULL", "ALTER TABLE t DROP COLUMN day"],
        ],
        3,
    ),
    "numbers, then a flag": (
        [
            ["ALTER TABLE t ADD COLUMN x INT NOT NULL DEFAULT 1"],
            ["ALTER TABLE t MODIFY x DECIMAL(12,2) NOT NULL DEFAULT 1"],
            ["ALTER TABLE t MODIFY x BIT(1) NOT NULL DEFAULT b'1'"],
        ],
        0,
    ),
    "a float, then a flag": (
        [
            ["ALTER TABLE t ADD COLUMN x SMALLINT NOT NULL DEFAULT 1"],
            ["ALTER TABLE t MODIFY x FLOAT NOT NULL DEFAULT 1"],
            ["ALTER TABLE t MODIFY x BIT(1) NOT NULL DEFAULT b'1'"],
        ],
        1,
    ),
    "case of a name": ([["ALTER TABLE t CHANGE note Note VARCHAR(20)"]], 0),
    "dropped and added again": (
        [["ALTER TABLE t DROP COLUMN note"], ["ALTER TABLE t ADD COLUMN note INT DEFAULT 5"]],
        0,
    ),
}


# What the target has no part in.
OF_THE_SOURCE = ("nullable default", "default that changed since", "now", "generated", "updated")
CASES = [
    (kind, name)
    for name in CHANGES
    for kind in ("duckdb", "postgres", "redshift")
    if kind == "duckdb" or name not in OF_THE_SOURCE
]


@pytest.mark.follows_hint("--force', then sync, reads them again")
@pytest.mark.follows_hint("--load-only --force' and sync load all of it from the lake")
@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize(("target", "name"), CASES)
def test_rows_stay_equal_and_a_lost_warehouse_comes_back(
    new_table: NewTable, target: str, name: str
) -> None:
    steps, hints = CHANGES[name]
    synced = new_table(target)
    synced.add(1, 6, day=1)
    synced.change(
        "UPDATE t SET note = IF(id = 2, NULL, CONCAT('n', id)), day = '2024-02-29',"
        " amount = id + 0.25"
    )
    assert synced.sync().code == 0
    followed = 0
    for number, statements in enumerate(steps, 1):
        synced.change(*statements)
        synced.add(10 * number, 10 * number + 2, day=1 + number)
        followed += synced.settle()
        synced.check_equal()
    assert followed == hints
    synced.lose()
    ended = synced.sync("--redshift-only")
    assert ended.code == 0, ended
    synced.check_equal()
    synced.add(90, 91, day=9)
    assert synced.settle() == 0
    synced.check_equal()


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize("target", ["duckdb", "postgres", "redshift"])
def test_changes_that_are_pending_together(new_table: NewTable, target: str) -> None:
    synced = new_table(target)
    synced.add(1, 6, day=1)
    assert synced.sync("--backup-only").code == 0
    statements = [
        "ALTER TABLE t MODIFY big VARCHAR(40) NOT NULL",
        "ALTER TABLE t MODIFY day DATETIME",
        "ALTER TABLE t MODIFY amount DECIMAL(11,4)",
        "ALTER TABLE t ADD COLUMN x INT NOT NULL DEFAULT 7",
        "ALTER TABLE t DROP COLUMN x",
        "ALTER TABLE t ADD COLUMN x INT NOT NULL DEFAULT 8",
    ]
    for number, statement in enumerate(statements, 2):
        synced.change(statement)
        synced.add(10 * number, 10 * number + 1, day=number)
        assert synced.settle("--backup-only") == 0
    assert synced.sync("--redshift-only").code == 0
    synced.check_equal()


# Which rows were read before


def test_a_table_without_a_key_is_read_again(new_table: NewTable) -> None:
    columns = f"id INT, big BIGINT NOT NULL, {STAMP}, KEY (update_at)"
    synced = new_table(columns=columns, settings="{cursor: update_at}")
    synced.add(1, 4, day=1)
    assert synced.sync().code == 0
    synced.change("ALTER TABLE t ADD COLUMN x INT NOT NULL DEFAULT 7")
    synced.add(5, 6, day=2)
    assert synced.settle() == 0
    synced.check_equal()
    synced.change("ALTER TABLE t CHANGE big large BIGINT NOT NULL")
    synced.change("INSERT INTO t (id, large, update_at) VALUES (7, 7, '2025-06-03')")
    ended = synced.sync()
    assert ended.code == 1
    assert "its column large is new" in ended.out
    assert f"'floodmark watermark reset -t {synced.it.table()} --force'" in ended.err
    assert synced.settle() == 1
    synced.check_equal()


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize(
    "settings", ["{cursor: id}", "{cursor: none}", "{cursor: update_at}"], ids=str
)
def test_every_kind_of_cursor(new_table: NewTable, settings: str) -> None:
    synced = new_table(settings=settings)
    synced.add(1, 6, day=1)
    assert synced.sync().code == 0
    synced.change("ALTER TABLE t ADD COLUMN x INT NOT NULL DEFAULT 7")
    synced.add(7, 9, day=2)
    assert synced.settle() == 0
    synced.check_equal()
    assert bool(synced.it.chunks()[-1].fills) == ("none" not in settings)


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize("keys", [", KEY by_change (update_at, id)", ""], ids=["walk", "whole"])
def test_a_first_load_on_its_way(new_table: NewTable, keys: str) -> None:
    columns = f"id INT AUTO_INCREMENT PRIMARY KEY, big BIGINT NOT NULL, {STAMP}{keys}"
    settings = "extraction: {window_rows: 2, windows_per_chunk: 1, walk_from_rows: 1}"
    synced = new_table(columns=columns, run_settings=settings)
    synced.add(1, 9, day=1)
    assert synced.sync("--limit", "4").code == 0
    assert (synced.it.watermark().position.walk is not None) == (keys != "")
    synced.change("ALTER TABLE t ADD COLUMN x INT NOT NULL DEFAULT 7")
    synced.add(20, 21, day=2)
    assert synced.settle("--limit", "3") == 0
    assert synced.settle() == 0
    synced.check_equal()


@pytest.mark.enough_on("mysql")
def test_a_position_that_an_operator_moved_may_have_rows_of_any_chunk(new_table: NewTable) -> None:
    synced = new_table()
    synced.add(1, 4, day=1)
    synced.add(5, 8, day=3)
    assert synced.sync().code == 0
    synced.change("ALTER TABLE t ADD COLUMN x INT NOT NULL DEFAULT 7")
    name = str(synced.it.table())
    assert synced.it.call("watermark", "reset", "-t", name, "--extract-only", "--force").code == 0
    assert synced.sync("--limit", "2").code == 0
    # Two rows were read with the column by now, and six without it.
    assert synced.it.call("watermark", "restore", "-t", name, "--from", "1-1", "--force").code == 0
    synced.add(9, 9, day=4)
    assert synced.settle() == 0
    synced.check_equal()
    assert synced.it.chunks()[-1].fills == {"x": "7"}


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{cursor: [update_at, id], exclude: [note]}", CURSOR),
        ("{cursor: [update_at, id], hash: [note]}", CURSOR),
        (CURSOR, "{cursor: [update_at, id], exclude: [note]}"),
        (CURSOR, "{cursor: [update_at, id], booleans: [flag]}"),
    ],
)
@pytest.mark.parametrize("note", ["CONCAT('n', id)", "'same'"])
def test_columns_that_are_chosen_otherwise(
    new_table: NewTable, before: str, after: str, note: str
) -> None:
    synced = new_table(columns=f"{COLUMNS}, flag TINYINT NOT NULL DEFAULT 1", settings=before)
    synced.add(1, 4, day=1)
    synced.change(f"UPDATE t SET note = {note}")
    assert synced.sync().code == 0
    replace(synced.it, tables={"t": after}).write_config()
    name_target(synced.it.config, synced.warehouse.connection)
    synced.add(5, 6, day=2)
    must_read = after == CURSOR and "same" not in note
    assert synced.settle() == must_read
    ended = synced.sync("--load-only", "--verify-data=all")
    assert ended.code == 0, ended


@pytest.mark.parametrize("settings", [CURSOR, "{cursor: none}"])
def test_dropped_column_is_reported_once(new_table: NewTable, settings: str) -> None:
    synced = new_table(settings=settings)
    synced.add(1, 2, day=1)
    assert synced.sync().code == 0
    synced.change("ALTER TABLE t DROP COLUMN note")
    said = []
    for day in (2, 3):
        synced.add(10 * day, 10 * day, day=day)
        ended = synced.sync()
        assert ended.code == 0
        said.append("note is no longer in the source" in ended.err)
    assert said == [True, False]


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize("policy", ["null", "quarantine"])
def test_zero_dates_of_a_new_column(new_table: NewTable, policy: str) -> None:
    synced = new_table(run_settings=f"extraction: {{zero_dates: {policy}}}")
    synced.add(1, 4, day=1)
    assert synced.sync().code == 0
    synced.change("SET sql_mode = ''", "ALTER TABLE t ADD COLUMN x DATE NOT NULL")
    synced.change(
        "SET sql_mode = ''",
        "INSERT INTO t (big, update_at, x) VALUES (9, '2025-06-02', '2024-01-01')",
    )
    if policy == "null":
        assert synced.settle() == 0
        assert synced.it.chunks()[-1].fills == {"x": None}
        return
    ended = synced.sync()
    assert ended.code == 1
    assert "its column x is new" in ended.out


# Keys, hashes, and columns that swap their names


@pytest.mark.follows_hint("drop its table in the target, then")
@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize(
    ("kind", "becomes", "cursor"),
    [
        ("BINARY(5)", "BINARY(8)", CURSOR),
        ("DECIMAL(10,4)", "DECIMAL(10,2)", "{cursor: update_at}"),
        ("INT(5) ZEROFILL", "VARCHAR(9)", CURSOR),
    ],
    ids=str,
)
def test_keys_with_other_values_replace_those_before(
    new_table: NewTable, kind: str, becomes: str, cursor: str
) -> None:
    columns = f"id {kind} PRIMARY KEY, big BIGINT NOT NULL, {STAMP}, KEY (update_at, id)"
    synced = new_table(columns=columns, settings=cursor)
    synced.add(1, 3, day=1)
    assert synced.sync().code == 0
    synced.change("SET sql_mode = ''", f"ALTER TABLE t MODIFY id {becomes} NOT NULL")
    synced.add(4, 5, day=2)
    ended = synced.sync()
    name = synced.it.table()
    hint = f"hint: drop its table in the target, then 'floodmark watermark reset -t {name} --force'"
    assert (ended.code, hint in " ".join(ended.err.split())) == (1, True), ended
    # Who reads the table again, and leaves the old keys in the target, is stopped there.
    reset = ("watermark", "reset", "-t", str(name), "--extract-only", "--force")
    assert synced.it.call(*reset).code == 0
    ended = synced.sync()
    assert "hint: drop t in the target" in " ".join(ended.err.split()), ended
    assert synced.settle() == 1
    synced.check_equal()


@pytest.mark.enough_on("mysql")
def test_the_case_of_a_key_is_no_change(new_table: NewTable) -> None:
    synced = new_table()
    synced.add(1, 3, day=1)
    assert synced.sync().code == 0
    synced.change("ALTER TABLE t CHANGE id ID INT AUTO_INCREMENT")
    synced.add(4, 5, day=2)
    assert synced.settle() == 0
    synced.check_equal()


@pytest.mark.enough_on("mysql")
def test_rows_of_a_table_that_gets_a_key_are_read_into_a_new_one(new_table: NewTable) -> None:
    columns = f"id INT NOT NULL, big BIGINT NOT NULL, v VARBINARY(9), {STAMP}, KEY (update_at)"
    synced = new_table(columns=columns, settings="{cursor: update_at}")
    synced.add(1, 3, day=1)
    synced.change("UPDATE t SET v = id")
    assert synced.sync().code == 0
    synced.change("ALTER TABLE t ADD PRIMARY KEY (id), MODIFY v BINARY(9)")
    synced.add(4, 5, day=2)
    assert synced.settle() == 1
    synced.check_equal()


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize(
    ("change", "hashed", "told"),
    [
        ("MODIFY amount DECIMAL(12,4)", "amount", "was decimal(10,2)"),
        ("MODIFY amount DECIMAL(12,2)", "amount", ""),
        ("CHANGE note w VARCHAR(20), CHANGE w note VARCHAR(20)", "big", "changed places"),
        ("MODIFY bits SET('b','a')", "big", "was set('a','b')"),
        ("MODIFY w TINYTEXT", "big", ""),
    ],
)
def test_values_that_changed_unseen(
    new_table: NewTable, change: str, hashed: str, told: str
) -> None:
    synced = new_table(
        columns=f"{COLUMNS}, w VARCHAR(20), bits SET('a','b')",
        settings=f"{{cursor: [update_at, id], hash: [{hashed}]}}",
    )
    synced.add(1, 3, day=1)
    synced.change(
        "UPDATE t SET note = CONCAT('n', id), w = CONCAT('w', id), amount = id, bits = 1 + id % 3"
    )
    assert synced.sync().code == 0
    synced.change(f"ALTER TABLE t {change}")
    synced.add(4, 5, day=2)
    ended = synced.sync()
    assert (ended.code, told in " ".join(ended.out.split())) == (int(bool(told)), True), ended
    synced.settle()
    ended = synced.sync("--load-only", "--verify-data=all")
    assert ended.code == 0, ended


@pytest.mark.enough_on("mariadb")
@pytest.mark.parametrize(("letters", "hints"), [(100, 1), (50, 0)])
def test_text_is_cut_between_characters(new_table: NewTable, letters: int, hints: int) -> None:
    synced = new_table(columns=f"{COLUMNS}, w TEXT")
    synced.add(1, 3, day=1)
    synced.change(f"UPDATE t SET w = CONCAT(id, REPEAT('日', {letters}))")
    assert synced.sync().code == 0
    # 253 bytes are left of 301, as the next character would take three.
    synced.change("SET sql_mode = ''", "ALTER TABLE t MODIFY w TINYTEXT CHARACTER SET utf8mb4")
    synced.add(4, 5, day=2)
    assert synced.settle() == hints
    synced.check_equal()


# JSON and dates, in verification


@pytest.mark.parametrize("target", ["duckdb", "postgres", "text"])
def test_json_is_kept_verbatim_or_the_change_is_reported(new_table: NewTable, target: str) -> None:
    kind = "duckdb" if target == "duckdb" else "postgres"
    synced = new_table(kind, columns=f"{COLUMNS}, j JSON")
    if target == "text":
        file = Path(synced.it.config)
        file.write_text(file.read_text().replace('"json": "jsonb"', '"json": "text"'))
    synced.add(1, 3, day=1)
    synced.change(
        """UPDATE t SET j = '{"b": 1, "a": -0, "a": [-0.0, 1.0e2, 1.10]}'""",
        "UPDATE t SET j = '-0' WHERE id = 2",
    )
    ended = synced.sync("--verify-data")
    assert ended.code == 0, ended
    rewritten = target == "postgres"
    assert ("JSON is compared by meaning, not by text" in ended.err) == rewritten
    in_source = ask_once(synced.it, "SELECT j FROM t ORDER BY id")
    in_target = synced.warehouse.query("SELECT j FROM {schema}.t ORDER BY id")
    assert (in_source == in_target) == (not rewritten)
    if not rewritten:
        synced.warehouse.query("UPDATE {schema}.t SET j = concat(j, ' ') WHERE id = 3")
        assert synced.sync("--load-only", "--verify-data=all").code == 5


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize("keys", [", KEY by_change (update_at, id)", ""], ids=["index", "key"])
def test_rows_with_a_partial_date_for_their_cursor_are_not_compared(
    new_table: NewTable, keys: str
) -> None:
    synced = new_table(
        columns=f"id INT PRIMARY KEY, big BIGINT, update_at DATETIME NOT NULL{keys}",
        run_settings="extraction: {window_rows: 2, windows_per_chunk: 1}",
    )
    synced.add(1, 6, day=1)
    synced.change(
        "SET sql_mode = ''",
        "INSERT INTO t VALUES (21, 1, '2025-06-00'), (22, 1, '2025-07-00'), (30, 1, '2025-08-01')",
    )
    ended = synced.sync("--verify-data")
    assert ended.code == 0, ended
    assert "2 rows not compared: the cursor is a zero or partial date" in ended.err
    synced.warehouse.query("UPDATE t SET big = 7 WHERE id = 30")
    ended = synced.sync("--load-only", "--verify-data=all")
    assert (ended.code, "1 with different values in the target" in ended.out) == (5, True)


# What an earlier version left, and what is loaded late


@pytest.mark.enough_on("mysql")
def test_what_an_earlier_version_left_null_is_found(new_table: NewTable) -> None:
    synced = new_table()
    synced.add(1, 4, day=1)
    assert synced.sync().code == 0
    synced.change("ALTER TABLE t ADD COLUMN x INT NOT NULL DEFAULT 7")
    synced.add(5, 6, day=2)
    assert synced.sync().code == 0
    synced.warehouse.query("UPDATE t SET x = NULL WHERE id < 5")
    ended = synced.sync("--load-only", "--verify-data=all")
    assert (ended.code, "4 with different values in the target" in ended.out) == (5, True)


@pytest.mark.enough_on("mysql")
def test_late_rows_are_not_loaded_without_their_value(new_table: NewTable) -> None:
    synced = new_table()
    name = str(synced.it.table())
    synced.add(1, 4, day=1)
    assert synced.sync("--backup-only").code == 0
    synced.change("ALTER TABLE t ADD COLUMN x INT NOT NULL DEFAULT 7")
    synced.add(5, 6, day=2)
    assert synced.sync("--backup-only").code == 0
    moment = f"{synced.it.manifests()[0].created_at:%Y-%m-%d %H:%M:%S.%f}"
    assert (
        synced.it.call("watermark", "set", "-t", name, "--timestamp", moment, "--force").code == 0
    )
    assert synced.sync("--load-only").code == 0
    assert len(synced.warehouse.query("SELECT * FROM t")) == 2
    assert synced.it.call("watermark", "restore", "-t", name, "--from", "1-2", "--force").code == 0
    ended = synced.sync("--load-only")
    assert ended.code == 1
    assert "which already filled x in all earlier rows" in ended.out
    assert synced.settle() == 1
    synced.check_equal()


ZERO_TEXT = "x VARCHAR(5) NOT NULL DEFAULT 'a\\0b'"
ZERO_JSON = """x JSON DEFAULT ('{"a": "\\\\u0000"}')"""


@pytest.mark.enough_on("mysql")
@pytest.mark.follows_hint("leave it out with 'exclude: […]' for the table, or change it")
@pytest.mark.parametrize(
    ("column", "key", "way_out"),
    [
        (ZERO_TEXT, "PRIMARY KEY", "exclude"),
        (ZERO_TEXT, "NOT NULL", "neither"),
        (ZERO_JSON, "NOT NULL", "change"),
    ],
)
def test_default_that_the_target_cannot_hold(
    new_table: NewTable, column: str, key: str, way_out: str
) -> None:
    """No row can be set aside for it: those that are there were loaded before."""
    cursor = CURSOR if key == "PRIMARY KEY" else "{cursor: update_at}"
    synced = new_table("postgres", f"id INT {key}, big INT, {STAMP}", cursor)
    synced.add(1, 3, day=1)
    assert synced.sync().code == 0
    synced.change(f"ALTER TABLE t ADD COLUMN {column}")
    synced.add(4, 5, day=2)
    ended = synced.sync()
    assert ended.code == 1
    assert "cannot hold the value that x has in rows read before" in " ".join(ended.out.split())
    if way_out == "exclude":
        config = Path(synced.it.config)
        config.write_text(config.read_text().replace("{cursor:", "{exclude: [x], cursor:"))
    if way_out == "change":
        synced.change("UPDATE t SET x = '1'")
    synced.follow(ended)
    ended = synced.sync()
    assert ended.code == 0
    held = [row[0] for row in synced.warehouse.query("SELECT id FROM {schema}.t ORDER BY id")]
    if way_out == "neither":
        assert "5 rows went to quarantine" in ended.err
        assert held == []
    else:
        assert held == [1, 2, 3, 4, 5]
    assert synced.it.call("watermark", "validate").code == 0


DEPENDANTS = [
    ("postgres", "VIEW", "CREATE VIEW {schema}.other AS SELECT amount FROM {schema}.t"),
    ("duckdb", "INDEX", "CREATE INDEX other ON {schema}.t (amount)"),
]


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize(("target", "kind", "create"), DEPENDANTS)
def test_column_that_something_in_the_target_depends_on(
    new_table: NewTable, target: str, kind: str, create: str
) -> None:
    synced = new_table(target)
    synced.add(1, 3, day=1)
    assert synced.sync().code == 0
    synced.warehouse.query(create)
    synced.change("ALTER TABLE t MODIFY amount DECIMAL(12,2)")
    synced.add(4, 5, day=2)
    ended = synced.sync()
    assert ended.code == 1
    assert "hint: if a view or an index uses t, drop that" in " ".join(ended.err.split())
    synced.warehouse.query(f"DROP {kind} {{schema}}.other")
    assert synced.sync().code == 0
    synced.warehouse.query(create)
    synced.check_equal()
