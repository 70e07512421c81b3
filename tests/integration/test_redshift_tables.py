"""How tables of Redshift are made: distribution, keys, grants, statistics."""

from typing import Any

import pytest
from msgspec import structs

from floodmark.config.models import LakeSettings, RedshiftConnection, TableSettings
from floodmark.errors import SchemaConflict
from floodmark.model.load import TargetTable
from floodmark.model.manifest import Column
from floodmark.model.notice import Notice
from floodmark.warehouse.redshift.keys import key_columns
from floodmark.warehouse.redshift.session import literal
from floodmark.warehouse.redshift.target import RedshiftTarget
from scenarios import BUCKET
from servers.redshift import RedshiftStandIn
from servers.redshift.faults import Fail, first
from warehouses import PEOPLE, Loads, Warehouse

pytestmark = pytest.mark.enough_on("mysql")  # it is about the target

ID = Column("id", "bigint", False, "int64")
SMALL_ID = Column("id", "int", False, "int32")
NAME = Column("name", "varchar(10)", True, "string")
CODE = Column("code", "varchar(10)", False, "string")
SIZE = Column("size", "double", False, "float64")
DAY = Column("day", "date", False, "date32")


def target(
    warehouse: Warehouse, settings: TableSettings | None = None, **changes: Any
) -> RedshiftTarget:
    assert isinstance(warehouse.connection, RedshiftConnection)
    connection = structs.replace(warehouse.connection, **changes)
    lake = LakeSettings(url=f"s3://{BUCKET}/{warehouse.lake.prefix}")
    return RedshiftTarget(connection, warehouse.lake.open(), lake, settings or TableSettings())


def row(number: int | None, name: str = "somebody") -> dict[str, Any]:
    return {"id": number, "name": name}


# Distribution


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({"diststyle": "all"}, "ALL"),
        ({"diststyle": "even"}, "EVEN"),
        ({"diststyle": "auto"}, "AUTO(ALL)"),
        ({}, "AUTO(ALL)"),
        ({"diststyle": "key", "distkey": "id"}, "KEY(id)"),
        ({"distkey": "id"}, "KEY(id)"),
    ],
)
def test_how_a_table_is_distributed(people: Loads, settings: dict[str, Any], shown: str) -> None:
    with target(people.warehouse, TableSettings(**settings)) as opened:
        opened.prepare(PEOPLE)
        schema = literal(opened._schema)
        found = f"SELECT diststyle FROM svv_table_info WHERE schema = {schema}"
        assert opened._query(f"{found} AND \"table\" = 'people'") == [(shown,)]


# Keys


def made(opened: RedshiftTarget, table: TargetTable) -> tuple[tuple[str, ...], set[str]]:
    """The key that a table declares, and its columns that take no NULL."""
    schema = literal(opened._schema)
    rows = opened._query(
        "SELECT attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace"
        f" n ON n.oid = c.relnamespace WHERE nspname = {schema} AND relname = {literal(table.name)}"
        " AND attnotnull AND attnum > 0"
    )
    return opened._declared_key(table.name)[1], {name for (name,) in rows}


@pytest.mark.parametrize(
    ("columns", "key", "declared", "strict"),
    [
        ((ID, NAME), ("id",), ("id",), {"id"}),
        ((SMALL_ID, ID, NAME), (), (), set()),
        ((ID, CODE), ("code", "id"), (), {"code", "id"}),
        ((ID, SIZE), ("size", "id"), (), {"size", "id"}),
        ((ID, DAY), ("day", "id"), (), {"id"}),
        ((Column("a, b", "int", False, "int32"), ID), ("id", "a, b"), ("id", "a, b"), None),
    ],
    ids=["number", "none", "text", "zero and -0.0", "zero dates", "odd name"],
)
def test_a_key_is_declared_where_it_is_surely_true(
    people: Loads,
    columns: tuple[Column, ...],
    key: tuple[str, ...],
    declared: tuple[str, ...],
    strict: set[str] | None,
) -> None:
    names = {column.name: column for column in columns}
    table = structs.replace(PEOPLE, columns=tuple(names.values()), primary_key=key)
    with target(people.warehouse) as opened:
        opened.prepare(table)
        assert made(opened, table) == (declared, set(key) if strict is None else strict)
        assert opened.prepare(table) == []


def test_a_table_without_the_key_is_left_as_it_is(people: Loads) -> None:
    with target(people.warehouse) as opened:
        opened.prepare(structs.replace(PEOPLE, name="ledger_first"))
        opened._execute(f"CREATE TABLE {opened._name('people')} (id BIGINT, name VARCHAR(40))")
        assert opened.prepare(PEOPLE) == []
        assert made(opened, PEOPLE) == ((), set())
    assert people.load(people.chunk([row(1)])) == 1


def test_a_declared_column_can_still_be_widened(people: Loads) -> None:
    small = structs.replace(PEOPLE, columns=(SMALL_ID, NAME))
    said: list[Notice] = []
    with target(people.warehouse) as opened:
        opened.report = said.append
        opened.prepare(small)
        opened.load(people.batch(people.chunk([row(1)], table=small), table=small))
        assert opened.prepare(PEOPLE) == ["widened people.id to BIGINT"]
        assert made(opened, PEOPLE) == ((), set())
    (message,) = [notice.message for notice in said]
    assert message.startswith("people.id becomes BIGINT: this rewrites every row of the table")
    assert message.endswith("and its PRIMARY KEY is no longer declared")
    assert people.load(people.chunk([row(2)])) == 1
    assert people.rows() == [row(1), row(2)]


def test_a_key_by_which_rows_are_not_loaded_is_dropped(people: Loads) -> None:
    """It would duplicate rows, and Redshift would not check."""
    other = structs.replace(PEOPLE, primary_key=())
    said: list[Notice] = []
    with target(people.warehouse) as opened:
        opened.report = said.append
        opened.prepare(PEOPLE)
        assert opened.prepare(other) == ["dropped the primary key of people"]
        assert made(opened, PEOPLE)[0] == ()
    assert [notice.level for notice in said] == ["warning"]
    surely = structs.replace(NAME, nullable=False)
    more = structs.replace(PEOPLE, name="pairs", columns=(ID, surely))
    with target(people.warehouse) as opened:
        place = opened._name("pairs")
        opened._execute(
            f"CREATE TABLE {place} (id BIGINT, name VARCHAR(40), PRIMARY KEY (id, name))"
        )
        # What is unique by a part of it is unique by all of it.
        assert opened.prepare(more) == []
        assert made(opened, more)[0] == ("id", "name")


@pytest.mark.parametrize("sortkey", [None, "id"])
def test_a_key_that_may_become_null(people: Loads, sortkey: str | None) -> None:
    open_id = structs.replace(ID, nullable=True)
    keyless = structs.replace(PEOPLE, columns=(open_id, NAME), primary_key=())
    with target(people.warehouse, TableSettings(sortkey=sortkey)) as opened:
        opened.prepare(PEOPLE)
        opened.load(people.batch(people.chunk([row(1)])))
        if sortkey:
            with pytest.raises(SchemaConflict, match="cannot become BIGINT NULL") as caught:
                opened.prepare(keyless)
            assert "ALTER SORTKEY NONE" in str(caught.value.hint)
            return
        assert opened.prepare(keyless) == [
            "dropped the primary key of people",
            "dropped NOT NULL of people.id",
        ]
        assert opened.prepare(keyless) == []
        place = opened._name("people")
        opened._execute(f"INSERT INTO {place} VALUES ('x', NULL)")
        assert opened._query(f"SELECT id, name FROM {place} ORDER BY 1") == [
            (1, "somebody"),
            (None, "x"),
        ]


# Names


def test_names_as_long_as_redshift_keeps_them(people: Loads) -> None:
    name = Column("ü" * 63 + "n", "varchar(10)", True, "string")
    long = structs.replace(PEOPLE, name="t" * 127, columns=(ID, name))
    wide = structs.replace(long, columns=(ID, structs.replace(name, type="varchar(20)")))
    other = structs.replace(long, name="t" * 126 + "u")
    with target(people.warehouse) as opened:
        assert opened.prepare(long)[-1] == f"created {long.name}"
        assert opened.prepare(other)[-1] == f"created {other.name}"
        chunk = people.chunk([{"id": 1, name.name: "x"}], table=long)
        assert opened.load(people.batch(chunk, table=long)) == 1
        assert opened.prepare(wide) == [f"widened {long.name}.{name.name} to VARCHAR(80)"]
        (batch,) = opened.read(wide, [])
        assert batch.to_pylist() == [{"c0": 1, "c1": "x"}]
        assert opened.count(other) == 0


# Statistics


def test_a_load_is_analyzed_if_asked_for(redshift: RedshiftStandIn, people: Loads) -> None:
    said: list[Notice] = []
    with target(people.warehouse, analyze=True) as opened:
        opened.report = said.append
        opened.prepare(PEOPLE)
        redshift.forget()
        opened.load(people.batch(people.chunk([row(1)])))
        assert [execution.kind for execution in redshift.executed][-2:] == ["COMMIT", "ANALYZE"]
        assert redshift.executed[-1].sql == f"ANALYZE {opened._name('people')}"
        assert said == []
        redshift.plan = first(1, "ANALYZE", Fail("only the owner can", "42501"))
        assert opened.load(people.batch(people.chunk([row(2)]))) == 1
    assert len(said) == 1
    assert "people is loaded, but ANALYZE failed" in said[0].message
    assert people.rows() == [row(1), row(2)]
    redshift.forget()
    people.load(people.chunk([row(3)]))
    assert "ANALYZE" not in {execution.kind for execution in redshift.executed}


def test_the_columns_of_a_declared_key() -> None:
    assert key_columns('PRIMARY KEY (id, "a, b", "say ""x""")') == ("id", "a, b", 'say "x"')
