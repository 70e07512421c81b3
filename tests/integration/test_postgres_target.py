"""What is PostgreSQL's own: errors by their code, names, keys, and values it cannot hold."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec import structs

from floodmark.config.models import PostgresConnection
from floodmark.config.secret import Secret
from floodmark.errors import FloodmarkError, SchemaConflict
from floodmark.model.load import TargetTable
from floodmark.model.manifest import Column
from floodmark.model.notice import Notice
from floodmark.warehouse.postgres import binary_copy
from floodmark.warehouse.postgres.session import PostgresSession
from floodmark.warehouse.postgres.target import PostgresTarget
from floodmark.warehouse.postgres.types import widens
from floodmark.warehouse.sql_dialect import LEDGER
from pipelines import wait_until
from scenarios import use_test_keys
from servers.postgres import PrivatePostgres
from warehouses import ODD, AsItIs, Loads, Warehouse, new_warehouse

ID = Column("id", "bigint", False, "int64")
NOTE = Column("note", "varchar(50)", True, "string")
JSON = Column("doc", "json", True, "string")
TABLE = TargetTable(name="t", columns=(ID, NOTE, JSON), primary_key=("id",), version=None)


@pytest.fixture
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    return new_warehouse("postgres", request, tmp_path)


@pytest.fixture
def loads(warehouse: Warehouse) -> Loads:
    return Loads(warehouse, TABLE)


def settings_of(warehouse: Warehouse, **changes: Any) -> Warehouse:
    assert isinstance(warehouse.connection, PostgresConnection)
    return Warehouse(structs.replace(warehouse.connection, **changes), warehouse.lake)


def row(number: int, note: str | None = None, doc: Any = None) -> dict[str, Any]:
    return {"id": number, "note": note, "doc": doc}


@pytest.mark.parametrize(
    ("bad", "column"),
    [(row(7, "a\0b"), "note"), (row(7, "ok", {"k\0": 1}), "doc"), (row(7, None, ["\0"]), "doc")],
)
def test_a_zero_character_stops_the_load_and_is_named(
    loads: Loads, bad: dict[str, Any], column: str
) -> None:
    with pytest.raises(FloodmarkError, match=rf"t\.{column} of the row with id = 7 .*U\+0000"):
        loads.load(loads.chunk([row(1, "fine"), bad]))
    assert loads.rows() == []
    assert loads.load(loads.chunk([row(1, "fine", {"k": "\\u0000 in words"})])) == 1
    assert loads.rows() == [row(1, "fine", {"k": "\\u0000 in words"})]


def test_rows_are_sent_in_parts_as_they_are(loads: Loads) -> None:
    """Parts begin within a batch of Arrow, where values and nulls have an offset."""
    rows = [
        row(
            number,
            None if number % 7 == 0 else f"note {number}",
            {"n": number} if number % 3 else None,
        )
        for number in range(1, 2 * binary_copy._ROWS_AT_ONCE + 100)
    ]
    assert loads.load(loads.chunk(rows)) == len(rows)
    assert sorted(loads.rows(), key=lambda found: int(found["id"])) == rows
    late = binary_copy._ROWS_AT_ONCE + 5
    bad = [*rows[:late], row(10**6, "a\0b"), *rows[late:]]
    with pytest.raises(FloodmarkError, match=r"t\.note of the row with id = 1000000 "):
        loads.load(loads.chunk(bad))


# As MariaDB has it: what follows the first is JSON by its own JSON_VALID.
REFUSED_BY_JSONB = [
    "{'a': 1}",
    '["\\u0000"]',
    '{"k\\u0000": 1}',
    '{"a": "\\u0000", "a": 1}',
    '["\\x"]',
    "[1.]",
    "[1e131072]",
    "[1e-16384]",
    '["\\ud800"]',
    "[NaN]",
    '["a\tb"]',
    "",
]
TAKEN_BY_JSONB = [
    ' {"a": [1, 2.5, null], "a": "\\u00e9\\ud83d\\ude00"}\n',
    '["\\\\u0000"]',
    "[1e131071, 1e-16383, 123456789012345678901234567890.5, -0]",
    "[" * 500 + "]" * 500,
    "[" + "9" * 5000 + "]",
]


@pytest.mark.parametrize("doc", REFUSED_BY_JSONB, ids=range(len(REFUSED_BY_JSONB)))
def test_what_is_no_json_is_set_aside(loads: Loads, doc: str) -> None:
    chunk = loads.chunk([row(1, "fine", {}), row(7, "odd", AsItIs(doc))])
    assert loads.load_what_fits(chunk) == 1
    assert loads.rows() == [row(1, "fine", {})]
    (record,) = loads.set_aside()
    assert (record["key"], record["column"]) == ('{"id":7}', "doc")
    assert record["reason"] == "is not JSON that JSONB can hold"
    assert record["row"] == row(7, "odd", doc)


def test_json_that_is_only_odd_is_loaded(loads: Loads) -> None:
    rows = [row(number, None, AsItIs(doc)) for number, doc in enumerate(TAKEN_BY_JSONB)]
    bad = row(99, None, AsItIs("no JSON"))
    assert loads.load_what_fits(loads.chunk([*rows, bad])) == len(rows)
    assert len(loads.set_aside()) == 1


def test_a_zero_character_is_set_aside(loads: Loads) -> None:
    assert loads.load_what_fits(loads.chunk([row(1, "fine"), row(7, "a\0b")])) == 1
    (record,) = loads.set_aside()
    assert (record["column"], record["row"]) == ("note", row(7, "a\0b"))
    assert record["reason"] == "contains the zero character (U+0000), which PostgreSQL cannot hold"


def test_a_key_too_long_for_an_index_is_set_aside(warehouse: Warehouse) -> None:
    code = Column("code", "varchar(3000)", False, "string")
    data = Column("data", "varbinary(200)", False, "binary")
    table = TargetTable(name="k", columns=(code, data), primary_key=("code", "data"), version=None)
    loads, random = Loads(warehouse, table), Random(1)

    def key(size: int) -> dict[str, Any]:
        return {"code": random.randbytes(size // 2).hex(), "data": random.randbytes(100)}

    fits, long = key(2400), key(5600)
    assert loads.load_what_fits(loads.chunk([fits, long])) == 1
    assert loads.rows() == [fits]
    (record,) = loads.set_aside()
    assert record["column"] == "code, data"
    assert "2,600 bytes is too long" in record["reason"]
    assert record["row"] == long


def test_the_lake_may_be_in_s3(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_test_keys(monkeypatch)
    loads = Loads(new_warehouse("postgres-s3", request, tmp_path), TABLE)
    rows = [row(number, f"note {number}", {"n": [number]}) for number in range(5)]
    chunk = loads.chunk(rows[:2], rows[2:])
    assert loads.load(chunk) == 5
    assert loads.rows() == rows
    missing = structs.replace(loads.chunk(), paths=("incremental/no.parquet",), rows=1)
    with pytest.raises(FloodmarkError, match=r"no\.parquet"):
        loads.load(missing)


def test_the_key_is_declared_and_a_change_of_it_refused(loads: Loads) -> None:
    loads.load(loads.chunk([row(1)]))
    with loads.warehouse.open() as target:
        assert target._key_of("t") == ("id",)
        changed = structs.replace(TABLE, primary_key=("id", "note"))
        with pytest.raises(SchemaConflict, match=r"primary key of t is \(id\) .* \(id, note\) in"):
            target.prepare(changed)
        with pytest.raises(SchemaConflict, match=r"primary key of t is \(id\) .* nothing in"):
            target.prepare(structs.replace(TABLE, primary_key=()))


@pytest.mark.parametrize("key", ["", ", PRIMARY KEY (id) DEFERRABLE"], ids=["no", "a deferred"])
def test_a_table_made_by_hand_with_another_or_no_key_is_merged_into(loads: Loads, key: str) -> None:
    with loads.warehouse.open() as target:
        target.prepare(structs.replace(TABLE, name="other"))  # which makes the schema
    loads.warehouse.query(f'CREATE TABLE {{schema}}."t" (id bigint, note text, doc jsonb{key})')
    loads.load(loads.chunk([row(1, "old"), row(2, "stays")]))
    loads.load(loads.chunk([row(1, "new", {"a": 1}), row(3)]))
    assert loads.rows() == [row(1, "new", {"a": 1}), row(2, "stays"), row(3)]


def test_a_key_that_comes_twice_in_a_first_load(loads: Loads) -> None:
    for made_by_hand in (False, True):
        if made_by_hand:
            loads.warehouse.query("DROP TABLE {schema}.t, {schema}.floodmark_ledger")
            loads.warehouse.query("CREATE TABLE {schema}.t (id bigint, note text, doc jsonb)")
        assert loads.load(loads.chunk([row(1, "first")]), loads.chunk([row(1, "second")])) == 2
        assert [found["id"] for found in loads.rows()] == [1]


def test_a_table_of_nothing_but_its_key(warehouse: Warehouse) -> None:
    loads = Loads(warehouse, structs.replace(TABLE, columns=(ID,)))
    for numbers in ([1, 2], [2, 3]):
        loads.load(loads.chunk([{"id": number} for number in numbers]))
    assert loads.rows() == [{"id": 1}, {"id": 2}, {"id": 3}]


@pytest.mark.follows_hint("COLLATE pg_catalog")
def test_a_key_column_whose_collation_merges_keys_is_refused(warehouse: Warehouse) -> None:
    code = Column("code", "varchar(10)", False, "string")
    loads = Loads(warehouse, structs.replace(TABLE, columns=(code, NOTE), primary_key=("code",)))
    with warehouse.open() as target:
        target.prepare(structs.replace(TABLE, name="other"))  # which makes the schema
    warehouse.query(
        "CREATE COLLATION {schema}.any_case"
        " (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
    )
    # A column that is not part of the key may have any collation.
    warehouse.query(
        "CREATE TABLE {schema}.t (code varchar COLLATE {schema}.any_case PRIMARY KEY,"
        " note text COLLATE {schema}.any_case)"
    )
    rows = [{"code": letter, "note": letter} for letter in "Aa"]
    with pytest.raises(SchemaConflict, match=r"t\.code is .* any_case,.* a key in") as caught:
        loads.load(loads.chunk(rows))
    warehouse.query(str(caught.value.hint).removeprefix("run "))
    assert loads.load(loads.chunk(rows[:1])) == 1
    assert loads.load(loads.chunk(rows)) == 2
    assert loads.rows() == rows


def test_a_first_load_writes_the_rows_once(loads: Loads) -> None:
    with loads.warehouse.open() as target:
        staged: list[object] = []
        target._stage = lambda *_: staged.append(_)  # type: ignore[method-assign, assignment]
        target.prepare(TABLE)
        assert target.load(loads.batch(loads.chunk([row(1)], [row(2)]), loads.chunk([row(3)]))) == 3
        assert staged == []
    assert loads.rows() == [row(1), row(2), row(3)]


@pytest.mark.follows_hint("let the user see all rows: ALTER ROLE … BYPASSRLS")
@pytest.mark.parametrize("key", [("id",), ()], ids=["with a key", "without"])
def test_a_user_from_whom_rows_are_hidden_is_refused(
    warehouse: Warehouse, postgres: PrivatePostgres, key: tuple[str, ...]
) -> None:
    user = f"u_{time.monotonic_ns()}"
    postgres.execute(f"CREATE ROLE {user} LOGIN PASSWORD 'secret'")
    table = structs.replace(TABLE, primary_key=key)
    with warehouse.open() as target:
        target.prepare(table)
    for statement in (
        f"GRANT ALL ON SCHEMA {{schema}} TO {user}",
        f"GRANT ALL ON ALL TABLES IN SCHEMA {{schema}} TO {user}",
        "ALTER TABLE {schema}.t ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY half ON {schema}.t USING (false) WITH CHECK (true)",
    ):
        warehouse.query(statement)
    loads = Loads(settings_of(warehouse, user=user, password=Secret("secret")), table)
    chunk = loads.chunk([row(1, "old")], [row(2)])
    with pytest.raises(FloodmarkError, match="row-level security") as refused:
        loads.load(chunk)
    assert refused.value.hint is not None
    postgres.execute(refused.value.hint.partition("rows: ")[2])
    assert loads.load(chunk) == 2
    assert loads.rows() == [row(1, "old"), row(2)]


@pytest.mark.follows_hint("declarative partitions need none")
@pytest.mark.parametrize("key", [("id",), ()], ids=["with a key", "without"])
def test_rows_that_a_trigger_redirects_are_not_counted_as_loaded(
    warehouse: Warehouse, key: tuple[str, ...]
) -> None:
    table = structs.replace(TABLE, primary_key=key)
    loads = Loads(warehouse, table)
    with warehouse.open() as target:
        target.prepare(table)
    warehouse.query(
        "CREATE TABLE {schema}.part () INHERITS ({schema}.t);"
        "CREATE FUNCTION {schema}.redirect() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO {schema}.part VALUES (NEW.*); RETURN NULL; END $$;"
        "CREATE TRIGGER redirect BEFORE INSERT ON {schema}.t"
        " FOR EACH ROW EXECUTE FUNCTION {schema}.redirect()"
    )
    with pytest.raises(FloodmarkError, match="wrote 0 of 2 rows; nothing was loaded") as caught:
        loads.load(loads.chunk([row(1), row(2)]))
    assert "trigger or rule of t in the target may drop rows, or redirect" in str(caught.value.hint)
    assert loads.rows() == []
    # Partitions of PostgreSQL's own.
    primary = ", PRIMARY KEY (id)" if key else ""
    warehouse.query(
        "DROP TABLE {schema}.t CASCADE;"
        f"CREATE TABLE {{schema}}.t (id bigint, note text, doc jsonb{primary})"
        " PARTITION BY RANGE (id);"
        "CREATE TABLE {schema}.low PARTITION OF {schema}.t FOR VALUES FROM (0) TO (2);"
        "CREATE TABLE {schema}.rest PARTITION OF {schema}.t DEFAULT"
    )
    assert loads.load(loads.chunk([row(1), row(2)])) == 2
    assert loads.rows() == [row(1), row(2)]


def test_the_ledger_refuses_a_manifest_twice(loads: Loads) -> None:
    loads.load(loads.chunk([row(1)]))
    with pytest.raises(Exception, match="duplicate key"):
        loads.warehouse.query(f"INSERT INTO {{schema}}.{LEDGER} SELECT * FROM {{schema}}.{LEDGER}")


@pytest.mark.parametrize("what", ["table", "column"])
def test_names_that_would_be_cut_are_refused(warehouse: Warehouse, what: str) -> None:
    long = "é" * 32
    table = (
        structs.replace(TABLE, name=long)
        if what == "table"
        else structs.replace(TABLE, columns=(*TABLE.columns, Column(long, "int", True, "int32")))
    )
    with warehouse.open() as target, pytest.raises(SchemaConflict, match="longer than the 63"):
        target.prepare(table)


def test_a_column_with_a_long_name_is_not_added_later(loads: Loads) -> None:
    loads.load(loads.chunk([row(1)]))
    wider = structs.replace(TABLE, columns=(*TABLE.columns, Column("x" * 64, "int", True, "int32")))
    with loads.warehouse.open() as target:
        with pytest.raises(SchemaConflict, match="longer than the 63"):
            target.prepare(wider)
        assert len(target._columns_of("t")) == 3


def test_a_view_under_the_name_is_not_loaded_into(loads: Loads) -> None:
    other = Loads(loads.warehouse, structs.replace(TABLE, name="other"))
    other.load(other.chunk([row(1)]))
    loads.warehouse.query('CREATE VIEW {schema}."t" AS SELECT * FROM {schema}."other"')
    with pytest.raises(SchemaConflict, match=r"t\.id is nothing in the target"):
        loads.load(loads.chunk([row(2)]))


def test_a_refused_connection_names_the_cause_and_no_secret(warehouse: Warehouse) -> None:
    for changes in ({"password": Secret("wr0ng-secret")}, {"port": 1}, {"database": "nowhere"}):
        with pytest.raises(FloodmarkError, match="cannot connect to PostgreSQL at") as caught:
            settings_of(warehouse, **changes).open()
        assert caught.value.hint
        assert "wr0ng" not in str(caught.value)


def test_missing_privileges_are_named(warehouse: Warehouse, postgres: PrivatePostgres) -> None:
    user = f"u_{time.monotonic_ns()}"
    postgres.execute(f"CREATE ROLE {user} LOGIN PASSWORD 'secret'")
    weak = settings_of(warehouse, user=user, password=Secret("secret"))
    with weak.open() as target, pytest.raises(FloodmarkError, match="permission denied") as caught:
        target.prepare(TABLE)
    assert caught.value.hint is not None
    assert "grant" in caught.value.hint


def test_a_deadlock_is_tried_again(loads: Loads, postgres: PrivatePostgres) -> None:
    """Somebody holds the target's table and asks for the ledger, which the load holds."""
    loads.load(loads.chunk([row(1, "before")]))
    chunk = loads.chunk([row(1, "after")])
    postgres.execute(f"ALTER DATABASE {ODD} SET deadlock_timeout = '10s'")
    assert isinstance(loads.warehouse.connection, PostgresConnection)
    schema = loads.warehouse.connection.schema.replace('"', '""')
    try:
        with postgres.connect(ODD) as other, loads.warehouse.open() as target:
            target._execute("SET deadlock_timeout = '100ms'")  # so that ours is the victim
            other.execute("BEGIN")
            other.execute(f'LOCK TABLE "{schema}"."t" IN ACCESS EXCLUSIVE MODE')
            locked: list[str] = []

            def ask_for_the_ledger() -> None:
                other.execute(f'LOCK TABLE "{schema}".{LEDGER} IN ACCESS EXCLUSIVE MODE')
                other.execute("COMMIT")

            begin = target._begin

            def noted() -> None:
                locked.append("begin")
                begin()

            target._begin = noted  # type: ignore[method-assign]
            insert: Callable[..., int | None] = target._insert_at_once

            def inserted(*arguments: Any) -> int | None:
                if len(locked) == 1:
                    threading.Thread(target=ask_for_the_ledger, daemon=True).start()
                    time.sleep(0.3)
                return insert(*arguments)

            target._insert_at_once = inserted  # type: ignore[method-assign, assignment]
            assert target.load(loads.batch(chunk)) == 1
            assert len(locked) == 2, "there was no deadlock"
    finally:
        postgres.execute(f"ALTER DATABASE {ODD} RESET deadlock_timeout")
    assert loads.rows() == [row(1, "after")]


def test_a_wait_for_the_ledger_is_reported_once(loads: Loads, postgres: PrivatePostgres) -> None:
    notices: list[Notice] = []
    loads.load(loads.chunk([row(1, "before")]))
    assert isinstance(loads.warehouse.connection, PostgresConnection)
    schema = loads.warehouse.connection.schema.replace('"', '""')
    with postgres.connect(ODD) as other, loads.warehouse.open() as target:
        target.report = notices.append
        assert target.load(loads.batch(loads.chunk([row(2, "nobody else is there")]))) == 1
        assert notices == []
        target.silent_seconds = 0.05
        other.execute("BEGIN")  # and the lock that loads of the version before held
        other.execute(f'LOCK TABLE "{schema}".{LEDGER} IN EXCLUSIVE MODE')
        with ThreadPoolExecutor() as pool:
            load = pool.submit(target.load, loads.batch(loads.chunk([row(3, "after")])))
            wait_until(lambda: notices)
            assert not load.done()
            other.execute("COMMIT")
            assert load.result() == 1
    (notice,) = notices
    assert f"or for a session that has locked {LEDGER} in the target" in notice.message


@pytest.mark.parametrize(
    ("old", "new", "wider"),
    [
        ("smallint", "bigint", True),
        ("bigint", "integer", False),
        ("integer", "numeric(10,0)", True),
        ("integer", "numeric(10,1)", False),
        ("bigint", "numeric(20,0)", True),
        ("numeric(10,2)", "numeric(12,2)", True),
        ("numeric(10,2)", "numeric(65,30)", True),
        ("numeric(10,2)", "numeric(12,5)", False),
        ("numeric(10,0)", "bigint", False),
        ("real", "double precision", True),
        ("double precision", "real", False),
        ("character varying(10)", "character varying(20)", True),
        ("character varying(20)", "character varying(10)", False),
        ("character varying(20)", "text", True),
        ("text", "jsonb", False),
        ("date", "timestamp without time zone", True),
        ("timestamp without time zone", "timestamp with time zone", False),
    ],
)
def test_what_is_wider(old: str, new: str, wider: bool) -> None:
    assert widens(old, new) is wider


@pytest.mark.parametrize("fence", [PostgresTarget.fence, PostgresTarget.hash_fence])
def test_workers_add_up_what_a_fenced_query_computes_once(warehouse: Warehouse, fence: str) -> None:
    assert isinstance(warehouse.connection, PostgresConnection)
    session = PostgresSession(warehouse.connection)
    try:
        session.run(
            "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;"
            " SET min_parallel_table_scan_size = 0; SET max_parallel_workers_per_gather = 2"
        )
        inner = f"SELECT objsubid % 3 AS g, sqrt(objid::bigint) AS h FROM pg_depend{fence}"
        found = session.query(
            f"EXPLAIN (VERBOSE) SELECT g, SUM(h), MAX(h) FROM ({inner}) AS s GROUP BY g"
        )
    finally:
        session.close()
    lines = [line for (line,) in found]
    assert any("Partial" in line for line in lines)
    assert "sqrt" in lines[-1]  # the scan computes it, not each of the aggregates
