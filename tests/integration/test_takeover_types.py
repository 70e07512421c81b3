"""Types that another tool has chosen, which do not fit: both are named, and the cure works."""

import re

import pytest

from synced_table import STAMP, NewTable

pytestmark = pytest.mark.enough_on("mysql")

SOURCE = (
    "id INT PRIMARY KEY, flag TINYINT(1), price DOUBLE, cost DECIMAL(10,2), moment DATETIME,"
    f" seen TIMESTAMP NULL, {STAMP}, KEY by_change (update_at, id)"
)
OTHERS = {
    "flag": ("boolean", r"tinyint(\(1\))?"),
    "price": ("numeric(12,3)", "double"),
    "cost": ("double precision", r"decimal\(10,2\)"),
    "moment": ("timestamptz", "datetime"),
    "seen": ("timestamp", "timestamp"),
    "update_at": ("timestamptz", "datetime"),
}
ROW = (
    "1, true, 1.5, 0.25, '2025-06-01 10:00:00+00', '2025-06-01 10:00:00', '2025-06-01 00:00:00+00'"
)
FOLLOWED = ["AT TIME ZONE 'UTC'", "'booleans: […]' for the table"]


def values(number: int) -> str:
    moment = "'2025-06-01 10:00:00'"
    return f"({number}, 1, 1.5, 0.25, {moment}, {moment}, '2025-06-0{number} 00:00:00')"


@pytest.mark.follows_hint(*FOLLOWED)
@pytest.mark.parametrize("kind", ["duckdb", "postgres"])
def test_both_types_and_what_to_do(new_table: NewTable, kind: str) -> None:
    synced = new_table(kind, SOURCE)
    if kind == "postgres":
        synced.warehouse.query("CREATE SCHEMA {schema}")
    columns = ", ".join(f"{name} {held}" for name, (held, _) in OTHERS.items())
    synced.warehouse.query(f"CREATE TABLE {{schema}}.t (id INT, {columns})")
    synced.warehouse.query(f"INSERT INTO {{schema}}.t VALUES ({ROW})")
    synced.change(f"INSERT INTO t VALUES {values(1)}, {values(2)}")

    refused = synced.it.call("takeover", "-p", "main", "--json")
    assert refused.code == 1, refused
    for name, (_, source) in OTHERS.items():
        sides = rf"t\.{name} is [\w ]+(\([\d,]+\))? in the target, but {source} in the source"
        assert re.search(sides, refused.table["error"], re.IGNORECASE), refused.table["error"]
    checks = {c["finding"].split()[0]: c for c in synced.it.call("doctor", "--json").value}
    for name in OTHERS:
        assert checks[name]["hint"] in refused.table["hint"], (name, checks[name])

    for statement in re.findall(r"run (ALTER TABLE .*?) in the target", refused.table["hint"]):
        synced.warehouse.query(statement)
    (flags,) = re.findall(r"'(booleans: \[flag\])' for the table", refused.table["hint"])
    synced.edit("{cursor", f"{{{flags}, cursor")
    assert synced.it.call("takeover", "-p", "main").code == 0
    assert synced.sync("--verify-data=all").code == 0
    synced.check_equal()
    assert synced.warehouse.query("SELECT bool_and(flag), count(*) FROM {schema}.t") == [(True, 2)]
