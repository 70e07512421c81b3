"""A first load by workers: into a new table, which takes the place of the empty one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec import structs

from floodmark.errors import FloodmarkError, Unrepresentable
from floodmark.model.load import TargetTable
from floodmark.model.manifest import Column
from floodmark.warehouse.parallel import ParallelRun
from floodmark.warehouse.postgres.parallel_copy import parts_of
from floodmark.warehouse.sql_dialect import STAGING
from parallel_loads import ALWAYS, race
from servers.postgres import PrivatePostgres
from warehouses import Loads, Row, Warehouse, connect_postgres, new_warehouse

COLUMNS = (
    Column("id", "bigint", False, "int64"),
    Column("note", "varchar(50)", True, "string"),
    Column("price", "decimal(12,2)", True, "decimal128(12, 2)"),
    Column("version", "int", True, "int32"),
)
TABLE = TargetTable(name="t", columns=COLUMNS, primary_key=("id",), version="version")
KEYLESS = structs.replace(TABLE, primary_key=())
OTHER = "floodmark_reader"


@pytest.fixture
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    return new_warehouse("postgres", request, tmp_path)


@pytest.fixture
def loads(warehouse: Warehouse) -> Loads:
    """An empty table."""
    loads = Loads(warehouse, TABLE)
    loads.load()
    return loads


@pytest.fixture
def other(postgres: PrivatePostgres) -> str:
    """Another role."""
    if not postgres.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (OTHER,)):
        postgres.execute(f"CREATE ROLE {OTHER}")
    return OTHER


def row(number: int, note: str | None = None, version: int = 0) -> Row:
    return {"id": number, "note": note, "price": None, "version": version}


def rows(first: int, last: int) -> list[Row]:
    return [row(number) for number in range(first, last)]


def load(loads: Loads, *chunks: Any, spread: ParallelRun = ALWAYS, **options: Any) -> int:
    with loads.warehouse.open(spread=spread) as target:
        return target.load(loads.batch(*chunks, **options))


def identity(loads: Loads) -> int:
    """What tells a table from one that replaced it."""
    ((found,),) = loads.warehouse.query("SELECT '{schema}.t'::regclass::oid")
    return int(found)


def leftovers(loads: Loads) -> list[Any]:
    return loads.warehouse.query(
        "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        f" WHERE c.relname LIKE '{STAGING}%' AND quote_ident(n.nspname) = $${{schema}}$$"
    )


def key_of(loads: Loads) -> list[Any]:
    return loads.warehouse.query(
        "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE contype = 'p' AND conrelid = '{schema}.t'::regclass"
    )


def test_workers_fill_a_new_table_that_replaces_the_empty_one(loads: Loads) -> None:
    before, key = identity(loads), key_of(loads)
    assert load(loads, loads.chunk(rows(1, 20), rows(20, 30)), loads.chunk(rows(30, 50))) == 49
    assert loads.rows() == sorted(rows(1, 50), key=repr)
    assert identity(loads) != before
    assert key_of(loads) == key
    assert leftovers(loads) == []
    assert load(loads, loads.chunk([row(1, "later", 2)], [row(50)])) == 2
    assert len(loads.rows()) == 50


def test_of_the_rows_of_a_key_the_newest_stays(loads: Loads) -> None:
    first = loads.chunk([row(1, "old", 1), row(2, "only", 1)], [row(3, "new", 5)])
    second = loads.chunk([row(1, "new", 2)], [row(3, "old", 4)])
    assert load(loads, first, second) == 5
    assert [found["note"] for found in loads.rows()] == ["new", "only", "new"]
    assert key_of(loads) == [("t_pkey", "PRIMARY KEY (id)")]


def test_without_a_key_all_rows_stay(warehouse: Warehouse) -> None:
    loads = Loads(warehouse, KEYLESS)
    loads.load()
    before = identity(loads)
    assert load(loads, loads.chunk([row(1), row(1)], [row(1)])) == 3
    assert loads.rows() == [row(1)] * 3
    assert identity(loads) != before


@pytest.mark.parametrize("table", [TABLE, KEYLESS], ids=["with a key", "without"])
def test_a_full_reload_replaces_the_table(warehouse: Warehouse, table: TargetTable) -> None:
    loads = Loads(warehouse, table)
    loads.load(loads.chunk(rows(1, 10)))
    before = identity(loads)
    assert load(loads, loads.chunk([row(2)], [row(3)]), reload=True) == 2
    assert loads.rows() == [row(2), row(3)]
    assert identity(loads) != before


def test_foreign_row_is_not_replaced(loads: Loads) -> None:
    """It was there before, or it comes while workers copy."""
    loads.warehouse.query("INSERT INTO {schema}.t VALUES (7, 'mine', NULL, 0)")
    before = identity(loads)
    assert load(loads, loads.chunk([row(1)], [row(2)])) == 2
    assert identity(loads) == before
    assert loads.rows() == [row(1), row(2), row(7, "mine")]


def test_a_row_that_comes_while_workers_copy_stays(loads: Loads) -> None:
    def meanwhile(name: str, work: Callable[[int], bytes], parts: int, _most: int) -> list[bytes]:
        answers = race(name, work, parts)
        loads.warehouse.query("INSERT INTO {schema}.t VALUES (7, 'mine', NULL, 0)")
        return answers

    before = identity(loads)
    spread = ParallelRun(run=meanwhile, least_bytes=1)
    assert load(loads, loads.chunk([row(1)], [row(2)]), spread=spread) == 2
    assert identity(loads) == before
    assert loads.rows() == [row(1), row(2), row(7, "mine")]
    assert leftovers(loads) == []


ATTACHED = {
    "a view": (
        "CREATE VIEW {schema}.v AS SELECT id FROM {schema}.t",
        "SELECT count(*) FROM {schema}.v",
    ),
    "a foreign key": (
        "CREATE TABLE {schema}.f (id bigint REFERENCES {schema}.t)",
        "INSERT INTO {schema}.f SELECT id FROM {schema}.t",
    ),
    "a trigger": (
        (
            "CREATE TRIGGER unchanged BEFORE UPDATE ON {schema}.t FOR EACH ROW"
            " EXECUTE FUNCTION suppress_redundant_updates_trigger()"
        ),
        "DROP TRIGGER unchanged ON {schema}.t",
    ),
    "a comment": (
        "COMMENT ON TABLE {schema}.t IS 'ours'",
        "SELECT 1 / length(obj_description('{schema}.t'::regclass))",
    ),
    "a comment on a column": (
        "COMMENT ON COLUMN {schema}.t.note IS 'ours'",
        "SELECT 1 / length(col_description('{schema}.t'::regclass, 2))",
    ),
    "an index": ("CREATE INDEX by_note ON {schema}.t (note)", "DROP INDEX {schema}.by_note"),
    "statistics": (
        "CREATE STATISTICS {schema}.both_of_t ON note, price FROM {schema}.t",
        "DROP STATISTICS {schema}.both_of_t",
    ),
    "a policy": (
        "CREATE POLICY all_rows ON {schema}.t USING (true)",
        "DROP POLICY all_rows ON {schema}.t",
    ),
    "a rule": (
        "CREATE RULE no_truth AS ON DELETE TO {schema}.t WHERE id = -1 DO INSTEAD NOTHING",
        "DROP RULE no_truth ON {schema}.t",
    ),
    "a check": (
        "ALTER TABLE {schema}.t ADD CONSTRAINT positive CHECK (id > 0)",
        "ALTER TABLE {schema}.t DROP CONSTRAINT positive",
    ),
    "a default": (
        "ALTER TABLE {schema}.t ADD COLUMN loaded timestamp DEFAULT now()",
        "SELECT 1 / count(loaded) FROM {schema}.t",
    ),
    "an owned sequence": (
        "CREATE SEQUENCE {schema}.s OWNED BY {schema}.t.id",
        "DROP SEQUENCE {schema}.s",
    ),
    "a column of its type": (
        "CREATE TABLE {schema}.u (whole {schema}.t[])",
        "SELECT whole FROM {schema}.u",
    ),
    "a child": (
        "CREATE TABLE {schema}.child () INHERITS ({schema}.t)",
        "ALTER TABLE {schema}.child NO INHERIT {schema}.t",
    ),
    "a storage parameter": (
        "ALTER TABLE {schema}.t SET (fillfactor = 70)",
        "SELECT 1 / cardinality(reloptions) FROM pg_class WHERE oid = '{schema}.t'::regclass",
    ),
    "a statistics target": (
        "ALTER TABLE {schema}.t ALTER COLUMN note SET STATISTICS 500",
        (
            "SELECT 1 / attstattarget FROM pg_attribute WHERE attrelid = '{schema}.t'::regclass"
            " AND attname = 'note'"
        ),
    ),
    "a replica identity": (
        "ALTER TABLE {schema}.t REPLICA IDENTITY FULL",
        "SELECT 1 / (relreplident = 'f')::int FROM pg_class WHERE oid = '{schema}.t'::regclass",
    ),
    "a publication": (
        "CREATE PUBLICATION of_t FOR TABLE {schema}.t",
        "DROP PUBLICATION of_t",
    ),
}


@pytest.mark.parametrize("moment", ["before", "meanwhile"])
@pytest.mark.parametrize("what", ATTACHED)
def test_what_is_attached_to_the_empty_table_stays(loads: Loads, what: str, moment: str) -> None:
    attach, use = ATTACHED[what]
    before = identity(loads)

    def meanwhile(name: str, work: Callable[[int], bytes], parts: int, _most: int) -> list[bytes]:
        assert moment == "meanwhile"
        answers = race(name, work, parts)
        loads.warehouse.query(attach)
        return answers

    if moment == "before":
        loads.warehouse.query(attach)
    spread = ParallelRun(run=meanwhile, least_bytes=1)
    assert load(loads, loads.chunk([row(1)], [row(2)]), spread=spread) == 2
    assert identity(loads) == before
    assert loads.rows() == [row(1), row(2)]
    loads.warehouse.query(use)
    assert leftovers(loads) == []


def test_a_table_of_a_publication_of_all_tables_stays(
    loads: Loads, postgres: PrivatePostgres
) -> None:
    """Subscribers would receive rows of a table that they do not have."""
    loads.warehouse.query("CREATE PUBLICATION of_all FOR ALL TABLES")
    try:
        before = identity(loads)
        spread = ParallelRun(run=nobody, least_bytes=1)
        assert load(loads, loads.chunk([row(1)], [row(2)]), spread=spread) == 2
        assert identity(loads) == before
    finally:
        loads.warehouse.query("DROP PUBLICATION of_all")


def nobody(_name: str, _work: Callable[[int], bytes], _parts: int, _most: int) -> list[bytes]:
    raise AssertionError("nobody should copy")


def test_privileges_are_the_same_afterwards(loads: Loads, other: str) -> None:
    for privilege in ("SELECT ON {schema}.t TO PUBLIC", f"INSERT ON {{schema}}.t TO {other}"):
        loads.warehouse.query(f"GRANT {privilege}")
    loads.warehouse.query(f"GRANT SELECT ON {{schema}}.t TO {other} WITH GRANT OPTION")
    loads.warehouse.query(
        f"ALTER DEFAULT PRIVILEGES IN SCHEMA {{schema}} GRANT SELECT, UPDATE ON TABLES TO {other}"
    )
    held, before = privileges(loads), identity(loads)
    assert load(loads, loads.chunk([row(1)], [row(2)])) == 2
    assert identity(loads) != before
    assert privileges(loads) == held


def privileges(loads: Loads) -> set[Any]:
    return set(
        loads.warehouse.query(
            "SELECT grantee, privilege_type, is_grantable FROM pg_class,"
            " aclexplode(relacl) WHERE oid = '{schema}.t'::regclass"
        )
    )


def test_a_table_of_another_owner_stays(loads: Loads, other: str) -> None:
    loads.warehouse.query(f"ALTER TABLE {{schema}}.t OWNER TO {other}")
    before = identity(loads)
    assert load(loads, loads.chunk([row(1)], [row(2)])) == 2
    assert identity(loads) == before


def test_a_table_that_is_being_read_is_filled_instead(loads: Loads) -> None:
    before = identity(loads)
    with loads.warehouse.open() as reader:
        reader._begin()
        reader._query(f"SELECT count(*) FROM {reader._name('t')}")
        assert load(loads, loads.chunk([row(1)], [row(2)])) == 2
        reader._rollback()
    assert identity(loads) == before
    assert loads.rows() == [row(1), row(2)]
    assert leftovers(loads) == []


def test_a_value_that_does_not_fit_is_set_aside(loads: Loads) -> None:
    before = identity(loads)
    chunk = loads.chunk([row(1), row(2, "a\0b")], [row(3)])
    with loads.warehouse.open(spread=ALWAYS) as target:
        from floodmark.warehouse.quarantine import load_what_fits

        assert load_what_fits(target, loads.batch(chunk), loads.quarantine()) == 2
    assert loads.rows() == [row(1), row(3)]
    assert identity(loads) != before
    assert [found["key"] for found in loads.set_aside()] == ['{"id":2}']


def test_a_null_where_the_table_has_none_is_refused(loads: Loads) -> None:
    loads.warehouse.query("ALTER TABLE {schema}.t ALTER COLUMN note SET NOT NULL")
    with pytest.raises(Unrepresentable, match="null value in column"):
        load(loads, loads.chunk([row(1, "a")], [row(2)]))
    assert loads.rows() == []
    assert leftovers(loads) == []


def test_rows_loaded_concurrently_are_not_loaded_again(loads: Loads) -> None:
    first, second = loads.chunk([row(1)], [row(2)]), loads.chunk([row(3)])

    def overtaken(name: str, work: Callable[[int], bytes], parts: int, _most: int) -> list[bytes]:
        answers = race(name, work, parts)
        assert loads.load(first) == 2
        return answers

    spread = ParallelRun(run=overtaken, least_bytes=1)
    assert load(loads, first, second, spread=spread) == 1
    assert loads.rows() == [row(1), row(2), row(3)]
    assert leftovers(loads) == []


def test_a_late_task_of_a_file_that_another_has_copied_is_ended(loads: Loads) -> None:
    """Its session holds a lock that would keep the load waiting."""
    late: list[psycopg.Connection[Any]] = []

    def racing(name: str, work: Callable[[int], bytes], parts: int, _most: int) -> list[bytes]:
        answers = race(name, work, parts)
        ((table,),) = [
            found for found in leftovers(loads) if not found[0].endswith(("_parts", "key"))
        ]
        connection = connect_postgres(loads.warehouse.connection)  # type: ignore[arg-type]
        connection.execute(f"SET application_name = '{table}'".encode())
        connection.autocommit = False
        schema = loads.warehouse.connection.schema  # type: ignore[union-attr]
        place = f'"{schema}"'.replace('"lake"', '""lake""')
        connection.execute(f"INSERT INTO {place}.{table} VALUES (9)".encode())
        late.append(connection)
        return answers

    spread = ParallelRun(run=racing, least_bytes=1)
    assert load(loads, loads.chunk([row(1)], [row(2)]), spread=spread) == 2
    with pytest.raises(psycopg.OperationalError):
        late[0].execute("COMMIT")
    late[0].close()
    assert loads.rows() == [row(1), row(2)]
    assert leftovers(loads) == []


def test_uncopied_file_stops_the_load(loads: Loads) -> None:
    def forgetful(name: str, work: Callable[[int], bytes], parts: int, _most: int) -> list[bytes]:
        answers = race(name, work, parts)
        for (table,) in leftovers(loads):
            if table.endswith("_parts"):
                loads.warehouse.query(f'DELETE FROM {{schema}}."{table}" WHERE part = 0')
        return answers

    spread = ParallelRun(run=forgetful, least_bytes=1)
    with pytest.raises(FloodmarkError, match="only 1 of 2 files"):
        load(loads, loads.chunk([row(1)], [row(2)]), spread=spread)
    assert loads.rows() == []
    assert leftovers(loads) == []


def test_a_first_load_is_one_transaction_if_the_table_is_swapped(loads: Loads) -> None:
    with loads.warehouse.open(spread=ALWAYS) as target:
        assert target.takes_any_size(TABLE)
        loads.warehouse.query("CREATE VIEW {schema}.v AS SELECT id FROM {schema}.t")
        assert not target.takes_any_size(TABLE)
        loads.warehouse.query("DROP VIEW {schema}.v")
        target.load(loads.batch(loads.chunk([row(1)], [row(2)])))
        assert not target.takes_any_size(TABLE)


def test_small_files_share_a_task() -> None:
    mega = 1024 * 1024
    assert parts_of([]) == ()
    assert parts_of([8 * mega] * 5) == ((0, 1, 2, 3), (4,))
    assert parts_of([40 * mega, mega, 33 * mega]) == ((0,), (1,), (2,))
