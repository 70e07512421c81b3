"""Loading into Redshift: what the contract of all targets does not cover."""

import gc
import json
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from msgspec import structs

from floodmark.config.models import LakeSettings, RedshiftConnection, TableSettings
from floodmark.config.secret import Secret
from floodmark.embedded.process import free_ports
from floodmark.errors import (
    ConfigError,
    FloodmarkError,
    SchemaConflict,
    TargetTaken,
    Unrepresentable,
)
from floodmark.model.load import LoadBatch, TargetTable
from floodmark.model.manifest import Column
from floodmark.model.notice import Notice
from floodmark.storage.memory import MemoryObjectStore
from floodmark.warehouse.quarantine import load_what_fits
from floodmark.warehouse.redshift.locks import LockingTarget, lock_name
from floodmark.warehouse.redshift.session import literal
from floodmark.warehouse.redshift.target import RedshiftTarget
from floodmark.warehouse.redshift.types import redshift_type, shown_type, widens
from floodmark.warehouse.sql_target import SqlTarget
from pipelines import Pipeline, ask_once, numbers, use_redshift
from scenarios import BUCKET
from servers import S3Server
from servers.postgres import PrivatePostgres
from servers.redshift import RedshiftStandIn
from servers.redshift.faults import Fail, first
from servers.seaweedfs import SeaweedFS
from servers.sshd import PrivateSshd
from warehouses import PEOPLE, AsItIs, Loads, Warehouse, quoted

pytestmark = pytest.mark.enough_on("mysql")  # it is about the target

ID = Column("id", "bigint", False, "int64")
NAME = Column("name", "varchar(10)", True, "string")
JSON = Column("doc", "json", True, "string")


def lake_of(warehouse: Warehouse) -> LakeSettings:
    return LakeSettings(url=f"s3://{BUCKET}/{warehouse.lake.prefix}")


def test_a_load_is_one_copy_behind_the_ledgers_lock(
    redshift: RedshiftStandIn, people: Loads
) -> None:
    chunks = people.chunk([row(1)], [row(2)]), people.chunk([row(3)])
    with people.warehouse.open() as target:
        target.prepare(PEOPLE)
        redshift.forget()
        target.load(people.batch(*chunks))
    kinds = [execution.kind for execution in redshift.executed]
    assert kinds[:2] == ["BEGIN", "LOCK"]
    assert kinds.count("COPY") == 1
    assert kinds[-1] == "COMMIT"
    assert people.rows() == [row(1), row(2), row(3)]


CODES = TargetTable(
    name="codes",
    columns=(Column("code", "varchar(10)", False, "string"), NAME),
    primary_key=("code",),
    version=None,
)
EVENTS = structs.replace(PEOPLE, name="events", primary_key=())
SEEN = Column("seen", "timestamp", True, "timestamp[us, UTC]")


@pytest.mark.parametrize(
    ("table", "first", "second"),
    [
        (PEOPLE, "people", "floodmark_staging"),
        (CODES, "codes", "floodmark_staging"),
        (EVENTS, "events", "events"),
        (structs.replace(PEOPLE, name="seen", columns=(ID, SEEN)), *["floodmark_staging"] * 2),
    ],
    ids=["with a key", "with a text key", "without", "of another type"],
)
def test_rows_without_conflicts_are_copied_directly(
    redshift: RedshiftStandIn, people: Loads, table: TargetTable, first: str, second: str
) -> None:
    loads = Loads(people.warehouse, table)
    rows = [
        {"id": n, "name": "x", "code": "a" + " " * n, "seen": datetime(2025, 8, 1, n, tzinfo=UTC)}
        for n in range(4)
    ]
    rows = [{column.name: values[column.name] for column in table.columns} for values in rows]
    redshift.forget()
    assert loads.load(loads.chunk(rows[:2])) == 2
    assert loads.load(loads.chunk(rows[2:])) == 2
    assert loads.rows() == sorted(rows, key=repr)
    assert copied(redshift) == [first, second]
    assert list(loads.warehouse.query("SELECT COUNT(*) FROM {schema}.floodmark_ledger")) == [(2,)]


def copied(redshift: RedshiftStandIn) -> list[str]:
    """The tables that COPY has filled."""
    found = (e.sql.split(" FROM ")[0] for e in redshift.executed if e.kind == "COPY")
    return [text.removesuffix('"').rpartition('"')[2].rpartition(" ")[2] for text in found]


def test_a_first_load_with_a_key_twice_is_staged(redshift: RedshiftStandIn, people: Loads) -> None:
    redshift.forget()
    people.load(people.chunk([row(1, "x"), row(2)], [row(1, "x")]))
    assert copied(redshift) == ["people", "floodmark_staging"]
    assert people.rows() == [row(1, "x"), row(2)]


@pytest.mark.parametrize("change", ["more columns", "another order", "a wider column"])
def test_a_table_that_differs_from_the_files_is_filled_by_staging(
    redshift: RedshiftStandIn, people: Loads, change: str
) -> None:
    columns = {
        "more columns": "id BIGINT, name VARCHAR(40), city VARCHAR(4)",
        "another order": "name VARCHAR(40), id BIGINT",
        "a wider column": "id BIGINT, name VARCHAR(41)",
    }
    with people.warehouse.open() as target:
        target._create(f"CREATE TABLE {target._name('people')} ({columns[change]})")
    redshift.forget()
    people.load(people.chunk([row(1), row(2)]))
    assert copied(redshift) == ["floodmark_staging"]
    assert people.rows() == [row(1), row(2)]


def test_a_decimal_of_another_width_is_cast(redshift: RedshiftStandIn, people: Loads) -> None:
    narrow = Column("amount", "decimal(10,2)", True, "decimal128(10, 2)")
    wide = Column("amount", "decimal(20,4)", True, "decimal128(20, 4)")
    prices = Loads(people.warehouse, structs.replace(PEOPLE, name="prices", columns=(ID, wide)))
    early = structs.replace(prices.table, columns=(ID, narrow))
    prices.load(prices.chunk([{"id": 1, "amount": Decimal("1.2345")}]))
    late = prices.chunk([{"id": 2, "amount": Decimal("99999999.99")}], table=early)
    redshift.forget()
    with people.warehouse.open() as target:
        assert target.load(prices.batch(late, table=early)) == 1
    (insert,) = (e.sql for e in redshift.executed if "SELECT" in e.sql and e.kind == "INSERT")
    assert 'CAST("amount" AS DECIMAL(20,4))' in insert
    found = [values["amount"] for values in prices.rows()]
    assert found == [Decimal("1.2345"), Decimal("99999999.99")]


def test_who_reads_the_ledger_keeps_no_load_out(redshift: RedshiftStandIn, people: Loads) -> None:
    people.load(people.chunk([row(1)]))
    with people.warehouse.open() as reader:
        reader._begin()
        ledger = f"SELECT COUNT(*) FROM {reader._name('floodmark_ledger')}"
        assert reader._query(ledger) == [(1,)]
        assert people.load(people.chunk([row(2)])) == 1
        assert reader._query(ledger) == [(1,)]
        reader._rollback()
        assert reader._query(ledger) == [(2,)]


class EarlierTarget(RedshiftTarget):
    """Locks as the version before did: one table for all loads, from beginning to end."""

    def _lock_table(self, batch: LoadBatch) -> None:
        self._lock_ledger()

    def _lock_entries(self, batch: LoadBatch) -> None:
        pass

    def _look(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return self._query(statement, values)


@pytest.mark.parametrize("same", [True, False], ids=["the same manifest", "another"])
def test_a_load_of_the_version_before_loads_nothing_twice(
    people: Loads, monkeypatch: pytest.MonkeyPatch, same: bool
) -> None:
    """It loads while one of this version has just begun with the same table."""
    unkeyed = structs.replace(PEOPLE, primary_key=())
    loads = Loads(people.warehouse, unkeyed)
    loads.load(loads.chunk([row(1)]))
    chunk = loads.chunk([row(2)])
    theirs = chunk if same else loads.chunk([row(3)])
    settings = people.warehouse.connection
    assert isinstance(settings, RedshiftConnection)
    with (
        people.warehouse.open() as target,
        EarlierTarget(settings, people.warehouse.lake.open(), lake_of(people.warehouse)) as earlier,
    ):
        entries, pending = LockingTarget._entries, [loads.batch(theirs)]

        def load_first(self: LockingTarget, batch: LoadBatch) -> Any:
            found = entries(self, batch)
            while pending:
                assert earlier.load(pending.pop()) == 1
            return found

        monkeypatch.setattr(LockingTarget, "_entries", load_first)
        assert target.load(loads.batch(chunk)) == (0 if same else 1)
    assert loads.rows(unkeyed) == ([row(1), row(2)] if same else [row(1), row(2), row(3)])


def test_a_table_that_is_renamed_during_a_load_is_not_loaded(
    people: Loads, monkeypatch: pytest.MonkeyPatch
) -> None:
    people.load(people.chunk([row(1)]))
    chunk = people.chunk([row(2)])
    with people.warehouse.open() as target, people.warehouse.open() as other:
        lock, pending = LockingTarget._lock_entries, [people.source]

        def rename_first(self: LockingTarget, batch: LoadBatch) -> None:
            while pending:
                other.rename_source(pending.pop(), "A:b.renamed", [])
            lock(self, batch)

        monkeypatch.setattr(LockingTarget, "_lock_entries", rename_first)
        with pytest.raises(TargetTaken, match=r"belongs to A:b\.renamed"):
            target.load(people.batch(chunk))
    assert people.rows() == [row(1)]


def test_a_lock_that_is_gone_is_made_again(people: Loads) -> None:
    people.load(people.chunk([row(1)]))
    for name in ("floodmark_lock", lock_name("people")):
        people.warehouse.query(f"DROP TABLE {{schema}}.{name}")
        assert people.load(people.chunk([row(2)])) == 1


def test_a_batch_is_noted_by_one_statement(redshift: RedshiftStandIn, people: Loads) -> None:
    chunks = [people.chunk([row(number)]) for number in range(3)]
    people.load(people.chunk([row(9)]))
    redshift.forget()
    people.load(*chunks)
    noted = [e for e in redshift.executed if e.kind == "INSERT" and "floodmark_ledger" in e.sql]
    assert len(noted) == 1


def test_the_copys_manifest_is_gone_after_it_and_stays_if_it_fails(people: Loads) -> None:
    lake = people.warehouse.lake.open()
    people.load(people.chunk([row(1)]))
    assert list(lake.list_objects("loads/")) == []
    with pytest.raises(FloodmarkError):
        people.load(people.chunk([row(2, "x" * 41)]))
    (left,) = lake.list_objects("loads/")
    entry = json.loads(lake.get(left.key).data)["entries"][0]
    assert entry["mandatory"] is True
    assert entry["meta"]["content_length"] > 0


def test_a_failed_copy_names_the_column(people: Loads) -> None:
    with pytest.raises(FloodmarkError) as caught:
        people.load(people.chunk([row(1, "ok")], [row(2, "é" * 21)]))
    lines = caught.value.message.splitlines()
    assert lines[0].startswith("COPY failed: Redshift at 127.0.0.1")
    assert "column name" in lines[1]
    assert "Table: 40, Data: 42" in lines[1]
    assert "loads/" in str(caught.value.hint)
    assert people.rows() == []


def test_text_longer_than_the_longest_fails_and_says_where(people: Loads) -> None:
    story = Column("story", "longtext", True, "string")
    table = structs.replace(PEOPLE, name="stories", columns=(ID, story))
    loads = Loads(people.warehouse, table)
    loads.load(loads.chunk([{"id": 1, "story": "x" * 65_535}]))
    with pytest.raises(FloodmarkError, match=r"column story .*Table: 65535, Data: 65536"):
        loads.load(loads.chunk([{"id": 2, "story": "x" * 65_536}]))
    assert len(loads.rows()) == 1


STORY = Column("story", "longtext", True, "string")
PICTURE = Column("picture", "longblob", True, "binary")
STORIES = TargetTable(
    name="Stories", columns=(ID, STORY, NAME, PICTURE), primary_key=("id",), version=None
)
UNSUPPORTED: dict[str, tuple[dict[str, Any], str, str]] = {
    "text": ({"story": "é" * 32_768}, "story", "longer than VARCHAR(65535)"),
    "short text": ({"name": "é" * 21}, "name", "longer than VARCHAR(40)"),
    "bytes": ({"picture": b"x" * 16_777_217}, "picture", "longer than VARBYTE(16777216)"),
    "row": ({"picture": b"x" * 4_194_300}, "story, name, picture", "a row of more than 4 MB"),
    "zero": ({"name": "a\0b"}, "name", "contains the zero character (U+0000), which Redshift"),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_redshift_cannot_hold_is_set_aside(people: Loads, name: str) -> None:
    values, column, reason = UNSUPPORTED[name]
    loads = Loads(people.warehouse, STORIES)

    def story(number: int, **changes: Any) -> dict[str, Any]:
        return {"id": number, "story": "x" * 65_535, "name": "é" * 20, "picture": b"", **changes}

    chunk = loads.chunk([story(1), story(2, **values), story(3)], [story(4)])
    with pytest.raises(Unrepresentable, match="COPY failed"):
        loads.load(chunk)
    assert loads.load_what_fits(chunk) == 3
    small = structs.replace(STORIES, name="stories")
    assert loads.rows(small) == [story(1), story(3), story(4)]
    (record,) = loads.set_aside()
    assert (record["column"], record["row"]) == (column, story(2, **values))
    assert record["reason"].startswith(reason)


def code(text: str, name: str = "") -> dict[str, Any]:
    return {"code": text, "name": name}


def test_keys_that_differ_by_trailing_blanks_stay_apart(people: Loads) -> None:
    codes = Loads(people.warehouse, CODES)
    first = [code("a"), code("a "), code("a  "), code(" a"), code(""), code(" ")]
    assert codes.load(codes.chunk(first)) == 6
    assert codes.rows() == sorted(first, key=repr)
    codes.load(codes.chunk([code("a ", "new"), code("", "new")]))
    kept = [code("a"), code("a  "), code(" a"), code(" ")]
    assert codes.rows() == sorted([*kept, code("a ", "new"), code("", "new")], key=repr)


def test_keys_that_pass_for_one_are_counted(people: Loads, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = Loads(people.warehouse, CODES)
    codes.load(codes.chunk([code("b")]))
    monkeypatch.setattr(RedshiftTarget, "_key_parts", SqlTarget._key_parts)
    with pytest.raises(FloodmarkError, match="only 1 of 2 keys as distinct; nothing was loaded"):
        codes.load(codes.chunk([code("a"), code("a ")]))
    assert codes.rows() == [code("b")]


def test_text_grows_in_place(redshift: RedshiftStandIn, people: Loads) -> None:
    people.load(people.chunk([row(1, "x" * 10)]))
    longer = structs.replace(PEOPLE, columns=(ID, Column("name", "varchar(20)", True, "string")))
    redshift.forget()
    people.load(people.chunk([row(2, "x" * 20)], table=longer), table=longer)
    altered = [e.sql for e in redshift.executed if e.kind == "ALTER"]
    assert len(altered) == 1
    assert altered[0].endswith('ALTER COLUMN "name" TYPE VARCHAR(80)')
    assert people.rows(longer) == [row(1, "x" * 10), row(2, "x" * 20)]


WIDE = structs.replace(PEOPLE, columns=(ID, Column("name", "varchar(20)", True, "string")))
DIGITS = structs.replace(PEOPLE, columns=(Column("id", "int", False, "int32"), NAME))


@pytest.mark.parametrize("encoding", ["bytedict", "text255"])
def test_a_column_with_a_fixed_encoding_is_rewritten(people: Loads, encoding: Any) -> None:
    people.load(people.chunk([row(1)]))  # the ledger
    settings = TableSettings(encode={"name": encoding})
    loads = Loads(people.warehouse, structs.replace(PEOPLE, name="encoded"))
    wide = structs.replace(WIDE, name="encoded")
    said: list[Notice] = []
    with target(people.warehouse, settings) as opened:
        opened.report = said.append
        opened.prepare(loads.table)
        opened.load(loads.batch(loads.chunk([row(1, "x" * 10)])))
        assert said == []
        assert opened.prepare(wide) == ["widened encoded.name to VARCHAR(80)"]
        assert [notice.message for notice in said] == [
            "encoded.name becomes VARCHAR(80): this rewrites every row of the table"
        ]
        opened.load(loads.batch(loads.chunk([row(2, "x" * 20)], table=wide), table=wide))
    assert loads.rows(wide) == [row(1, "x" * 10), row(2, "x" * 20)]
    shown = "SELECT encoding FROM svv_redshift_columns WHERE table_name = 'encoded' AND"
    with target(people.warehouse, settings) as opened:
        schema = literal(opened._schema)
        rows = opened._query(f"{shown} column_name = 'name' AND schema_name = {schema}")
    assert rows == [(encoding,)]


@pytest.mark.parametrize(
    "settings",
    [{"distkey": "id"}, {"sortkey": ["name", "id"]}, {"distkey": "id", "sortkey": "id"}],
    ids=["distkey", "sortkey", "both"],
)
def test_a_key_of_the_table_is_widened_after_the_hint(
    redshift: RedshiftStandIn, people: Loads, settings: dict[str, Any]
) -> None:
    """The statements that the hint names are what helps, and put back what was there."""
    with target(people.warehouse, TableSettings(**settings)) as opened:
        opened.prepare(DIGITS)
        redshift.forget()
        with pytest.raises(SchemaConflict) as caught:
            opened.prepare(PEOPLE)
        assert not [e for e in redshift.executed if e.kind in ("ALTER", "UPDATE")]
        keys = " and ".join(key.upper() for key in settings)
        assert f"it is in its {keys}" in caught.value.message
        undo, redo = re.findall(r"run '(.*?)'", str(caught.value.hint))
        for statement in undo.split("; "):
            opened._execute(statement)
        assert opened.prepare(PEOPLE) == ["widened people.id to BIGINT"]
        for statement in redo.split("; "):
            opened._execute(statement)
        role = opened._role("people", "id")
        sortkey = TableSettings(**settings).sort_columns
        assert (role.distkey, role.sortkey) == ("distkey" in settings, tuple(sortkey))


def test_text_that_is_a_key_grows_in_place(people: Loads) -> None:
    with target(people.warehouse, TableSettings(distkey="name", sortkey="name")) as opened:
        opened.prepare(PEOPLE)
        assert opened.prepare(WIDE) == ["widened people.name to VARCHAR(80)"]


def test_a_column_that_a_view_uses(redshift: RedshiftStandIn, people: Loads) -> None:
    with target(people.warehouse, TableSettings()) as opened:
        opened.prepare(PEOPLE)
        view = opened._name("names")
        opened._execute(f"CREATE VIEW {view} AS SELECT name FROM {opened._name('people')}")
        with pytest.raises(SchemaConflict, match="it is used by names"):
            opened.prepare(WIDE)
        opened._execute(f"DROP VIEW {view}")
        opened.prepare(WIDE)


def test_names_in_capitals_become_small(redshift: RedshiftStandIn, people: Loads) -> None:
    table = TargetTable(
        name="PrePaid",
        columns=(Column("ID", "bigint", False, "int64"), Column("updateAt", "int", True, "int32")),
        primary_key=("ID",),
        version="updateAt",
    )
    loads = Loads(people.warehouse, table)
    assert loads.load(loads.chunk([{"ID": 1, "updateAt": 2}])) == 1
    assert loads.load(loads.chunk([{"ID": 1, "updateAt": 1}])) == 1
    assert people.warehouse.query("SELECT id, updateat FROM {schema}.prepaid") == [(1, 2)]


def test_distribution_and_sort_keys(redshift: RedshiftStandIn, people: Loads) -> None:
    settings = TableSettings(distkey="ID", sortkey=["name", "id"])
    with target(people.warehouse, settings) as opened:
        redshift.forget()
        opened.prepare(PEOPLE)
    made = [e.sql for e in redshift.executed if e.kind == "CREATE" and "people" in e.sql]
    assert made[-1].endswith('DISTKEY ("id") SORTKEY ("name", "id")')
    wrong = TableSettings(sortkey="nmae")
    with target(people.warehouse, wrong) as opened, pytest.raises(ConfigError, match="'nmae'"):
        opened.prepare(structs.replace(PEOPLE, name="others"))


def test_redshift_distributes_by_no_bytes(people: Loads) -> None:
    table = structs.replace(STORIES, name="pictures")
    with (
        target(people.warehouse, TableSettings(distkey="picture")) as opened,
        pytest.raises(ConfigError, match="'picture', which is binary"),
    ):
        opened.prepare(table)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (structs.replace(PEOPLE, name="é" * 64), "longer than the 127 bytes"),
        (
            structs.replace(PEOPLE, columns=(ID, Column("é" * 64, "int", True, "int32"))),
            "127 bytes",
        ),
        (
            structs.replace(
                PEOPLE, columns=(ID, Column("n", "decimal(38,38)", True, "decimal128(38, 38)"))
            ),
            "at most 37 digits after the point",
        ),
    ],
)
def test_what_redshift_has_no_column_for_is_refused_first(
    redshift: RedshiftStandIn, people: Loads, table: TargetTable, message: str
) -> None:
    with people.warehouse.open() as opened:
        redshift.forget()
        with pytest.raises(SchemaConflict, match=message):
            opened.prepare(table)
    assert redshift.executed == []


def test_encodings(redshift: RedshiftStandIn, people: Loads) -> None:
    settings = TableSettings(encode={"NAME": "zstd"})
    with target(people.warehouse, settings) as opened:
        redshift.forget()
        opened.prepare(PEOPLE)
    made = [e.sql for e in redshift.executed if e.kind == "CREATE" and "people" in e.sql]
    assert '"name" VARCHAR(40) ENCODE ZSTD,' in made[-1]
    wrong = TableSettings(encode={"nmae": "raw"})
    with target(people.warehouse, wrong) as opened, pytest.raises(ConfigError, match="'nmae'"):
        opened.prepare(structs.replace(PEOPLE, name="others"))


def test_json_becomes_super_if_asked_for(redshift: RedshiftStandIn, people: Loads) -> None:
    table = structs.replace(PEOPLE, name="docs", columns=(ID, JSON))
    docs = Loads(people.warehouse, table)
    values = [{"a": [1, "é"]}, [], "text", 12.5, None]
    rows = [{"id": number, "doc": value} for number, value in enumerate(values)]
    chunk = docs.chunk(rows)
    with target(people.warehouse, TableSettings(), json="super") as opened:
        opened.prepare(table)
        assert opened.load(docs.batch(chunk)) == len(rows)
        assert opened.prepare(table) == []
    assert isinstance(people.warehouse.connection, RedshiftConnection)
    place = quoted(people.warehouse.connection.schema)
    kinds = f"SELECT jsonb_typeof(doc), doc #>> '{{a,1}}' FROM {place}.docs ORDER BY id"
    assert redshift.look(kinds) == [
        ("object", "é"), ("array", None), ("string", None), ("number", None), (None, None)
    ]  # fmt: skip
    with target(people.warehouse, TableSettings()) as opened, pytest.raises(SchemaConflict) as no:
        opened.prepare(table)
    assert "SUPER in the target, but VARCHAR(65535)" in no.value.message


@pytest.mark.parametrize(
    "text",
    ['["\\x"]', '{"a": 1, "a": 2}', '[{"b": {"a": 1, "a": 1}}]', f'["{"é" * 32_768}"]'],
    ids=["no JSON", "twice", "twice within", "long"],
)
def test_json_that_super_cannot_hold_is_set_aside(people: Loads, text: str) -> None:
    docs = Loads(people.warehouse, structs.replace(PEOPLE, name="docs", columns=(ID, JSON)))
    fits = '{"a": {"a": 1}, "b": [{"a": 1}, {"a": 2}]}'
    chunk = docs.chunk([{"id": 8, "doc": AsItIs(fits)}, {"id": 9, "doc": AsItIs(text)}])
    with target(people.warehouse, TableSettings(), json="super") as opened:
        opened.prepare(docs.table)
        assert load_what_fits(opened, docs.batch(chunk), docs.quarantine()) == 1
    (record,) = docs.set_aside()
    assert (record["column"], record["row"]["id"]) == ("doc", 9)


# What doctor looks at


def test_a_probe_copies_a_file_and_leaves_nothing(redshift: RedshiftStandIn, people: Loads) -> None:
    with people.warehouse.open() as opened:
        redshift.forget()
        opened.probe()
        assert [execution.kind for execution in redshift.executed].count("COPY") == 1
        opened.probe()  # what was made is gone
    assert list(people.warehouse.lake.open().list_objects("loads/")) == []


def test_a_probe_finds_what_keeps_redshift_from_the_lake(
    redshift: RedshiftStandIn, people: Loads
) -> None:
    stranger = "arn:aws:iam::999999999999:role/stranger"
    with (
        target(people.warehouse, TableSettings(), iam_role=stranger) as opened,
        pytest.raises(FloodmarkError, match="not authorized to assume IAM Role") as caught,
    ):
        opened.probe()
    assert "attach the role" in str(caught.value.hint)
    redshift.buckets_elsewhere.add(BUCKET)
    try:
        with people.warehouse.open() as opened, pytest.raises(FloodmarkError) as caught:
            opened.probe()
    finally:
        redshift.forget()
    assert "in the region of the cluster" in str(caught.value.hint)


def test_a_probe_finds_a_codec_that_is_not_read(people: Loads) -> None:
    assert isinstance(people.warehouse.connection, RedshiftConnection)
    lake = structs.replace(lake_of(people.warehouse), codec="zstd")
    with (
        RedshiftTarget(people.warehouse.connection, people.warehouse.lake.open(), lake) as opened,
        pytest.raises(FloodmarkError, match="Unsupported compression ZSTD"),
    ):
        opened.probe()


def target(warehouse: Warehouse, settings: TableSettings, **changes: Any) -> RedshiftTarget:
    assert isinstance(warehouse.connection, RedshiftConnection)
    connection = structs.replace(warehouse.connection, **changes)
    return RedshiftTarget(connection, warehouse.lake.open(), lake_of(warehouse), settings)


# Authorization


def test_keys_may_be_given_instead_of_a_role_and_are_not_logged(
    redshift: RedshiftStandIn, people: Loads, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    right = with_keys(redshift, people, S3Server.secret_key)
    assert right.load(right.chunk([row(1)])) == 1
    assert right.rows() == [row(1)]
    logged = [record.getMessage() for record in caplog.records]
    assert logged, "the driver logs much at this level"
    assert not any(S3Server.secret_key in message for message in logged)


def test_keys_that_redshift_repeats_in_an_error_are_not_shown(
    redshift: RedshiftStandIn, people: Loads
) -> None:
    secret = "hidden0123456789"
    wrong = with_keys(redshift, people, secret)
    redshift.plan = first(1, "COPY", Fail(f'syntax error at or near "{secret}"', "42601"))
    with pytest.raises(FloodmarkError, match=r'near "\*\*\*"') as caught:
        wrong.load(wrong.chunk([row(1)]))
    assert secret not in f"{caught.value!r} {caught.value.hint}"
    assert secret not in repr(wrong.warehouse.connection)


def with_keys(redshift: RedshiftStandIn, people: Loads, secret: str) -> Loads:
    connection = redshift.connection(
        iam_role=None,
        access_key_id=Secret(S3Server.access_key),
        secret_access_key=Secret(secret),
        schema=f"s_{uuid.uuid4().hex[:8]}",
    )
    return Loads(Warehouse(connection, people.warehouse.lake), PEOPLE)


@pytest.mark.parametrize(
    "changes",
    [
        {"iam_role": None},
        {"iam_role": None, "access_key_id": Secret("k")},
        {"access_key_id": Secret("k"), "secret_access_key": Secret("s")},
    ],
)
def test_the_way_to_read_the_lake_must_be_clear(changes: dict[str, Any]) -> None:
    settings = {"host": "nowhere", "database": "d", "user": "u", "iam_role": "default", **changes}
    with pytest.raises(ConfigError, match="no authorization to read the lake"):
        RedshiftTarget(
            RedshiftConnection(**settings), MemoryObjectStore(), LakeSettings(url="s3://b")
        )


def test_the_lake_must_be_in_s3() -> None:
    connection = RedshiftConnection(host="nowhere", database="d", user="u", iam_role="default")
    with pytest.raises(ConfigError, match="cannot read the lake in '/tmp/lake'"):
        RedshiftTarget(connection, MemoryObjectStore(), LakeSettings(url="/tmp/lake"))


def test_a_server_that_does_not_answer() -> None:
    connection = RedshiftConnection(
        host="127.0.0.1", port=1, database="d", user="u", iam_role="default", ssl=False
    )
    with pytest.raises(FloodmarkError, match=r"cannot connect to Redshift at 127\.0\.0\.1:1"):
        RedshiftTarget(connection, MemoryObjectStore(), LakeSettings(url="s3://b"))


# Types

TYPES = {
    ("tinyint(1)", "int16"): "SMALLINT",
    ("bigint unsigned", "decimal128(20, 0)"): "DECIMAL(20,0)",
    ("bit(1)", "bool"): "BOOLEAN",
    ("float", "float32"): "REAL",
    ("datetime(6)", "timestamp[us]"): "TIMESTAMP",
    ("timestamp", "timestamp[us, UTC]"): "TIMESTAMPTZ",
    ("varchar(100)", "string"): "VARCHAR(400)",
    ("varchar(20000)", "string"): "VARCHAR(65535)",
    ("char(0)", "string"): "VARCHAR(4)",
    ("enum('a','it''s','日本')", "string"): "VARCHAR(16)",
    ("set('a','bc')", "string"): "VARCHAR(20)",
    ("tinytext", "string"): "VARCHAR(1020)",
    ("text", "string"): "VARCHAR(65535)",
    ("json", "string"): "VARCHAR(65535)",
    ("time(6)", "string"): "VARCHAR(17)",
    ("uuid", "string"): "VARCHAR(36)",
    ("inet4", "string"): "VARCHAR(15)",
    ("inet6", "string"): "VARCHAR(45)",
    ("decimal(65,30)", "string"): "VARCHAR(68)",
    ("varbinary(300)", "binary"): "VARBYTE(300)",
    ("blob", "binary"): "VARBYTE(65535)",
    ("longblob", "binary"): "VARBYTE(16777216)",
    ("point", "binary"): "VARBYTE(16777216)",
}


@pytest.mark.parametrize(("source", "arrow"), TYPES)
def test_the_type_of_a_column(source: str, arrow: str) -> None:
    assert redshift_type(Column("c", source, True, arrow)) == TYPES[source, arrow]


@pytest.mark.parametrize(
    ("old", "new", "fits"),
    [
        ("VARCHAR(40)", "VARCHAR(80)", True),
        ("VARCHAR(80)", "VARCHAR(40)", False),
        ("VARBYTE(1)", "VARBYTE(2)", True),
        ("SMALLINT", "BIGINT", True),
        ("BIGINT", "INTEGER", False),
        ("BIGINT", "DECIMAL(20,0)", True),
        ("BIGINT", "DECIMAL(20,2)", False),
        ("DECIMAL(10,2)", "DECIMAL(12,4)", True),
        ("DECIMAL(10,2)", "DECIMAL(11,4)", False),
        ("INTEGER", "VARCHAR(40)", False),
        ("TIMESTAMP", "TIMESTAMPTZ", False),
    ],
)
def test_which_type_is_wider(old: str, new: str, fits: bool) -> None:
    assert widens(old, new) is fits


def test_types_as_the_catalog_shows_them() -> None:
    shown = ["character varying(40)", "numeric(20,0)", "binary varying(9)", "double precision"]
    assert [shown_type(text) for text in shown] == [
        "VARCHAR(40)",
        "DECIMAL(20,0)",
        "VARBYTE(9)",
        "DOUBLE PRECISION",
    ]


# From MySQL on


@pytest.fixture
def on_seaweedfs(postgres: PrivatePostgres, seaweedfs: SeaweedFS) -> Iterator[RedshiftStandIn]:
    with RedshiftStandIn(postgres, seaweedfs) as server:
        yield server


def test_mysql_to_redshift(
    on_seaweedfs: RedshiftStandIn, pipeline: Callable[..., Pipeline]
) -> None:
    """The whole way, with a lake that checks signatures: every value as MySQL has it."""
    synced = pipeline({"t": "{cursor: [update_at, id], sortkey: update_at}"}, lake="seaweedfs")
    use_redshift(synced, on_seaweedfs)
    ask_once(
        synced,
        "CREATE TABLE t (id BIGINT UNSIGNED PRIMARY KEY, name VARCHAR(20), kind ENUM('a','b'),"
        " amount DECIMAL(38,20), moment TIMESTAMP(6) NULL, data BLOB, doc JSON, flag BIT(1),"
        " spent TIME(3), update_at DATETIME(6), KEY (update_at, id))",
    )
    ask_once(
        synced,
        "INSERT INTO t SELECT 18446744073709551615 - seq, CONCAT('é', seq), 'b', seq / 7,"
        " '2025-03-30 01:30:00.000001', CHAR(seq, 0, 255), '{\"a\": [1]}', seq % 2, '-25:00:00.5',"
        f" '2025-02-01 00:00:00' + INTERVAL seq SECOND FROM {numbers(1, 500)}",
    )
    first = synced.call("sync", "-p", "main", "--json")
    assert first.code == 0, first
    assert first.table["loaded_rows"] == 500
    ask_once(synced, "UPDATE t SET name = 'new', update_at = '2025-03-01' WHERE id % 5 = 0")
    assert synced.call("sync", "-p", "main", "--json").table["loaded_rows"] == 100
    names = "id, name, kind, amount, data, doc, flag + 0, update_at"
    expected = ask_once(synced, f"SELECT {names} FROM t ORDER BY id")
    found = on_seaweedfs.look(
        f"SELECT {names.replace('flag + 0', 'flag::int')} FROM public.t ORDER BY id"
    )
    assert [tuple(map(_plain, line)) for line in found] == [
        tuple(map(_plain, line)) for line in expected
    ]
    moments = on_seaweedfs.look("SELECT DISTINCT moment AT TIME ZONE 'UTC', spent FROM public.t")
    (utc,) = ask_once(
        synced, "SELECT DISTINCT CONVERT_TZ(moment, @@session.time_zone, '+00:00') FROM t"
    )
    assert moments == [(utc[0], "-25:00:00.500")]
    assert synced.call("sync", "-p", "main", "--json").table["loaded_rows"] == 0


@pytest.fixture
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateSshd]:
    with PrivateSshd(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_redshift_through_an_ssh_tunnel(
    on_seaweedfs: RedshiftStandIn, sshd: PrivateSshd, pipeline: Callable[..., Pipeline]
) -> None:
    synced = pipeline({"t": "{cursor: id}"}, lake="seaweedfs")
    tunnel = structs.asdict(sshd.settings)
    use_redshift(synced, on_seaweedfs, tunnel=tunnel)
    ask_once(
        synced, f"CREATE TABLE t (id INT PRIMARY KEY) AS SELECT seq AS id FROM {numbers(1, 9)}"
    )
    assert synced.call("sync", "-p", "main", "--json").table["loaded_rows"] == 9
    assert on_seaweedfs.look("SELECT COUNT(*) FROM public.t") == [(9,)]
    on_seaweedfs.look("DROP TABLE public.t, public.floodmark_ledger")
    use_redshift(synced, on_seaweedfs, tunnel=tunnel, port=free_ports(1)[0])
    ask_once(synced, "INSERT INTO t VALUES (10)")
    failed = synced.call("sync", "-p", "main", "--json")
    assert failed.code == 1
    assert f"SSH server {sshd.settings.host}:{sshd.port} cannot reach" in failed.table["error"]
    gc.collect()  # the driver leaves a socket open when it is hung up on at once


def _plain(value: Any) -> Any:
    if isinstance(value, memoryview | bytes):
        return bytes(value)
    return value


def row(number: int, name: str = "somebody") -> dict[str, Any]:
    return {"id": number, "name": name}
