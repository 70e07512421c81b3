"""Tables in the target that differ from the source: what is fine, what is changed, what stops."""

import pytest

from synced_table import STAMP, NewTable, Synced

SOURCE = f"id INT PRIMARY KEY, big INT, note VARCHAR(9) NOT NULL DEFAULT 'n', {STAMP}"
TARGETS = ["duckdb", "postgres", "redshift"]
EXTRAS = {
    "duckdb": "tag VARCHAR, _etl_loaded_at TIMESTAMP NOT NULL DEFAULT now()",
    "postgres": "tag text, _etl_loaded_at timestamptz NOT NULL DEFAULT now(),"
    " serial bigint GENERATED ALWAYS AS IDENTITY",
    "redshift": "tag VARCHAR(9), _etl_loaded_at TIMESTAMP NOT NULL DEFAULT '2025-01-01'",
}


def own_table(synced: Synced, kind: str, extra: str) -> None:
    """Create the target's table as a user would: wider, and with columns of its own."""
    text = "VARCHAR(200)" if kind == "redshift" else "VARCHAR"
    key = "" if kind == "duckdb" else ", PRIMARY KEY (id)"
    if kind != "duckdb":
        synced.warehouse.query("CREATE SCHEMA IF NOT EXISTS {schema}")
    synced.warehouse.query(
        "CREATE TABLE {schema}.t (id BIGINT NOT NULL, big BIGINT,"
        f" note {text} NOT NULL, update_at TIMESTAMP, {extra}{key})"
    )


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize("kind", TARGETS)
def test_wider_and_extra_columns_are_fine_and_not_null_is_dropped(
    new_table: NewTable, kind: str
) -> None:
    synced = new_table(kind, SOURCE)
    own_table(synced, kind, EXTRAS[kind])
    synced.add(1, 3, day=1)
    assert synced.settle() == 0
    synced.check_equal()
    synced.change(
        "UPDATE t SET big = 9, update_at = '2025-06-02' WHERE id = 1",
        "ALTER TABLE t MODIFY note VARCHAR(300) NULL",
        "INSERT INTO t VALUES (4, 4, NULL, '2025-06-02')",
    )
    assert synced.settle() == 0
    synced.check_equal()
    stamped = synced.warehouse.query("SELECT id FROM {schema}.t WHERE _etl_loaded_at IS NULL")
    assert stamped == []


@pytest.mark.enough_on("mysql")
@pytest.mark.follows_hint("ALTER COLUMN … … in the target")
def test_columns_that_postgres_computes_stop_the_load(new_table: NewTable) -> None:
    synced = new_table("postgres", SOURCE)
    synced.warehouse.query("CREATE SCHEMA {schema}")
    synced.warehouse.query(
        "CREATE TABLE {schema}.t (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
        " big int GENERATED ALWAYS AS (7) STORED, note text, update_at timestamp)"
    )
    synced.add(1, 3, day=1)
    checks = synced.it.call("doctor", "--json").value
    found = [check["finding"] for check in checks if "GENERATED ALWAYS" in check["finding"]]
    assert [finding.split()[0] for finding in found] == ["id", "big"], checks
    assert synced.settle() == 1
    synced.check_equal()


@pytest.mark.enough_on("mysql")
def test_numeric_without_digits_holds_every_number(new_table: NewTable) -> None:
    """Other tools create it for decimals."""
    numbers = ("n INT", "u BIGINT UNSIGNED", "price DECIMAL(10,2)", "wide DECIMAL(65,30)")
    synced = new_table("postgres", f"{SOURCE}, {', '.join(numbers)}")
    synced.warehouse.query("CREATE SCHEMA {schema}")
    synced.warehouse.query(
        "CREATE TABLE {schema}.t (id int PRIMARY KEY, big int, note text, update_at timestamp,"
        " n numeric, u numeric, price numeric, wide numeric)"
    )
    values = "18446744073709551615, 1.50, -12345678901234567890123456789012345.678"
    synced.change(f"INSERT INTO t VALUES (1, 1, 'n', '2025-06-01', -7, {values})")
    for day in (2, 3):  # an empty table, and one that has rows
        assert synced.settle() == 0
        synced.check_equal()
        synced.change(f"UPDATE t SET n = 8, price = 0.10, update_at = '2025-06-0{day}'")
    assert synced.sync().code == 0
    synced.warehouse.query("UPDATE {schema}.t SET price = 0.104")
    ended = synced.sync("--load-only", "--verify-data=all", "--json")
    found = ended.table["verification"]
    assert (ended.code, found["differences"]) == (5, {"changed": 1}), ended
    assert [one["key"] for one in found["keys"]] == [{"id": "1"}]
    (value,) = found["shown"][0]["values"]
    assert (value["column"], value["source"], value["target"]) == ("price", "0.10", "0.104")
    assert synced.sync("--load-only", "--verify-data=all", "--repair").code == 0
    synced.check_equal()
    assert str(synced.warehouse.query("SELECT price FROM {schema}.t")[0][0]) == "0.10"


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize("kind", TARGETS)
def test_dropped_column_stays_and_becomes_nullable(new_table: NewTable, kind: str) -> None:
    synced = new_table(kind, SOURCE)
    own_table(synced, kind, "tag VARCHAR(9)")
    synced.add(1, 3, day=1)
    assert synced.settle() == 0
    synced.change("ALTER TABLE t DROP COLUMN note")
    said = []
    for day in (2, 3):
        synced.add(10 * day, 10 * day, day=day)
        ended = synced.sync()
        assert ended.code == 0, ended
        said.append(("note is no longer" in ended.err, "NOT NULL of t.note" in ended.err))
    assert said == [(True, True), (False, False)]
    synced.check_equal()
    rows = synced.warehouse.query("SELECT id, note FROM {schema}.t ORDER BY id")
    assert rows == [(1, "n"), (2, "n"), (3, "n"), (20, None), (30, None)]
    synced.change("ALTER TABLE t MODIFY big BIGINT NULL, ADD COLUMN note VARCHAR(9)")
    synced.add(40, 40, day=4)
    assert synced.settle() == 0
    synced.check_equal()


@pytest.mark.enough_on("mysql")
@pytest.mark.follows_hint("; or leave it out with")
@pytest.mark.parametrize("kind", TARGETS)
def test_column_dropped_in_the_target_stops_the_load(new_table: NewTable, kind: str) -> None:
    """To add it again would leave NULL in the rows that were loaded with it."""
    synced = new_table(kind, SOURCE)
    synced.add(1, 3, day=1)
    assert synced.sync().code == 0
    synced.warehouse.query("ALTER TABLE {schema}.t DROP COLUMN big")
    assert synced.sync().code == 0  # nothing new, so that the target is not opened
    synced.add(10, 10, day=2)
    ended = synced.sync()
    assert ended.code == 1
    assert "t has no column big in the target any more" in ended.out, ended
    assert synced.settle() == 1
    synced.check_equal()
    synced.warehouse.query("ALTER TABLE {schema}.t DROP COLUMN big")
    synced.edit("cursor: ", "exclude: [big], cursor: ")
    synced.add(20, 20, day=3)
    assert synced.sync().code == 0
    assert synced.warehouse.query("SELECT count(*) FROM {schema}.t") == [(5,)]


@pytest.mark.enough_on("mysql")
@pytest.mark.follows_hint("run ALTER TABLE … … in the target")
@pytest.mark.follows_hint("without NOT NULL, or with a default")
@pytest.mark.parametrize("kind", TARGETS)
def test_extra_column_that_needs_a_value_stops(new_table: NewTable, kind: str) -> None:
    synced = new_table(kind, SOURCE)
    own_table(synced, kind, "tag VARCHAR(9) NOT NULL, who VARCHAR(9) NOT NULL")
    synced.add(1, 3, day=1)
    ended = synced.sync()
    assert ended.code == 1
    for name in ("tag", "who"):
        assert f"t.{name} is" in ended.out
    assert "NOT NULL without a default in the target" in " ".join(ended.out.split())
    assert synced.warehouse.query("SELECT * FROM {schema}.t") == []
    if kind == "redshift":
        synced.warehouse.query("DROP TABLE {schema}.t")
        own_table(synced, kind, "tag VARCHAR(9), who VARCHAR(9) NOT NULL DEFAULT 'w'")
    else:
        synced.follow(ended)
    assert synced.settle() == 0
    synced.check_equal()


@pytest.mark.enough_on("mysql")
@pytest.mark.follows_hint("or leave it out with 'exclude: […]'")
def test_frozen_table_that_lacks_a_column_at_the_first_sync(new_table: NewTable) -> None:
    settings = "{schema_changes: freeze, exclude: []}"
    synced = new_table(columns=f"{SOURCE}, x INT, KEY (update_at, id)", settings=settings)
    own_table(synced, "duckdb", "tag VARCHAR")
    synced.add(1, 3, day=1)
    ended = synced.sync()
    said = " ".join(ended.err.split())
    assert (ended.code, "or leave it out with 'exclude: [x]'" in said) == (1, True), ended
    synced.edit("exclude: []", "exclude: [x]")
    assert synced.settle() == 0
    assert len(synced.warehouse.query("SELECT * FROM t")) == 3
    assert "x" not in synced.held()
