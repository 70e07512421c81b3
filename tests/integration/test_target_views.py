"""A name of the target that belongs to a view, or to something else that is no table."""

from pathlib import Path
from typing import Any

import pytest

from synced_table import STAMP, NewTable, Synced

pytestmark = pytest.mark.enough_on("mysql")

SOURCE = f"id INT PRIMARY KEY, big INT NOT NULL, {STAMP}"
COLUMNS = "id BIGINT, big BIGINT, update_at TIMESTAMP"
ROWS = "SELECT 1 AS id, 1 AS big, CAST('2025-06-01' AS TIMESTAMP) AS update_at"
OTHERS = {
    "a view": "CREATE VIEW {schema}.t AS SELECT * FROM {schema}.base",
    "a materialized view": "CREATE MATERIALIZED VIEW {schema}.t AS SELECT * FROM {schema}.base",
    "a foreign table": "CREATE FOREIGN TABLE {schema}.t (id bigint, big bigint) SERVER nowhere",
    "a sequence": "CREATE SEQUENCE {schema}.t",
}
CASES = [("duckdb", "a view"), ("redshift", "a view"), *(("postgres", what) for what in OTHERS)]


def run(synced: Synced, *arguments: str) -> Any:
    return synced.it.call(*arguments, "--json")


@pytest.mark.follows_hint("let 'target_name' name a table")
@pytest.mark.parametrize(("kind", "what"), CASES)
def test_it_is_named_before_anything_is_read(new_table: NewTable, kind: str, what: str) -> None:
    """It may show the rows of the table that another tool fills: its name is the way out."""
    synced = new_table(kind, SOURCE)
    if kind != "duckdb":
        synced.warehouse.query("CREATE SCHEMA {schema}")
    synced.warehouse.query(f"CREATE TABLE {{schema}}.base ({COLUMNS})")
    synced.warehouse.query(f"INSERT INTO {{schema}}.base {ROWS}")
    if "foreign" in what:
        synced.warehouse.query("CREATE FOREIGN DATA WRAPPER nothing")
        synced.warehouse.query("CREATE SERVER nowhere FOREIGN DATA WRAPPER nothing")
    synced.warehouse.query(OTHERS[what])
    synced.add(1, 3, day=1)

    refused = f"t is {what} in the target, and rows can only be loaded into a table"
    for arguments in (("takeover", "-p", "main"), ("sync", "-p", "main")):
        ended = run(synced, *arguments)
        assert (ended.code, ended.table["status"]) == (1, "failed"), ended
        assert ended.table["error"] == refused
        assert "let 'target_name' name a table" in ended.table["hint"]
    assert (synced.it.manifests(), synced.it.files()) == ([], set())
    seen = f"is a table in the source, {what} in the target: the table stops"
    checks = run(synced, "doctor").value
    assert [check["state"] for check in checks if seen in check["finding"]] == ["failed"], checks
    (planned,) = run(synced, "sync", "-p", "main", "--dry-run").value
    (difference,) = planned["schema"]
    assert (difference["target"], difference["stops"]) == (what, True)

    config = Path(synced.it.config)
    config.write_text(config.read_text().replace("{cursor", "{target_name: base, cursor"))
    assert run(synced, "takeover", "-p", "main").code == 0
    assert run(synced, "sync", "-p", "main").code == 0
    held = synced.warehouse.query("SELECT id, big FROM {schema}.base ORDER BY id")
    assert held == [(1, 1), (2, 2), (3, 3)]


@pytest.mark.follows_hint("rename it in the target")
@pytest.mark.parametrize("kind", ["duckdb", "postgres"])
def test_a_table_that_became_a_view_takes_no_load(new_table: NewTable, kind: str) -> None:
    synced = new_table(kind, SOURCE)
    synced.add(1, 3, day=1)
    assert synced.sync().code == 0
    synced.warehouse.query("ALTER TABLE {schema}.t RENAME TO base")
    synced.warehouse.query(OTHERS["a view"])
    synced.add(4, 6, day=2)
    ended = run(synced, "sync", "-p", "main")
    assert ended.code == 1
    assert "t is a view in the target" in ended.table["error"], ended
    validated = synced.it.call("watermark", "validate", "-t", f"{synced.it.schema}.t")
    assert (validated.code, "t is a view in the target" in validated.out) == (5, True), validated
    assert "rename it in the target" in validated.out + validated.err
    synced.warehouse.query("ALTER VIEW {schema}.t RENAME TO shown")
    synced.warehouse.query("ALTER TABLE {schema}.base RENAME TO t")
    assert synced.settle() == 0
    synced.check_equal()
