"""A row has the same checksum in the source and in a target if, and only if, it is equal there."""

import random
import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from checked_rows import Source, Target, window_of
from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.errors import AnotherServer
from floodmark.model.extraction import ColumnChoices, Window
from floodmark.model.position import START, KeyScan, Position
from floodmark.model.row_checksums import CheckedColumn, TextForm
from floodmark.model.schema import PRIMARY
from floodmark.model.verification import NO_ROWS, Checksum
from floodmark.mysql import row_checksums
from floodmark.mysql.connection import connect
from floodmark.mysql.row_checksums import SourceChecksums
from floodmark.mysql.servers import read_server
from floodmark.planning.row_checksums import checked_columns
from scenarios import use_test_keys
from servers.mysql import PrivateMySQL
from warehouses import new_warehouse

TARGETS = ["duckdb", "postgres", "redshift"]
ROWS = 36

# A type, and values that look alike, are at its limits, or have gone wrong somewhere.
WORDS = [
    "''",
    "' '",
    "'a'",
    "'a '",
    "'A'",
    "'á'",
    "'日本'",
    "'😀'",
    "','",
    "'1:a'",
    r"'\\'",
    r"'\'\n'",
]
NUMBERS = ["0", "1", "-1", "10", "100"]
DAYS = ["'1000-01-01'", "'9999-12-31'", "'2024-02-29'", "'1970-01-01'", "'2025-10-26'"]
TIMES = [f"{day[:-1]} 00:00:00'" for day in DAYS] + ["'2025-10-26 01:30:00'"]
FINE = [*TIMES, "'2025-10-26 01:30:00.5'", "'2025-10-26 01:30:00.500001'", "'2025-01-01 00:00:10'"]
REALS = ["0e0", "-0e0", "0.1e0", "1e0", "1.5e0", "-1.5e0", "1e22", "1e-30", "0.33333334e0"]
LONG = [("é", 2000), ("x", 254), ("x", 255), ("x", 256), ("y", 256)]
TYPES: dict[str, tuple[str, list[str]]] = {
    "tiny": ("TINYINT(1)", [*NUMBERS, "2"]),
    "small_u": ("SMALLINT UNSIGNED", ["0", "65535"]),
    "int_": ("INT", [*NUMBERS, "-2147483648", "2147483647"]),
    "int_z": ("INT(8) ZEROFILL", ["0", "42", "4294967295"]),
    "big": ("BIGINT", [*NUMBERS, "-9223372036854775808", "9223372036854775807"]),
    "big_u": ("BIGINT UNSIGNED", ["0", "18446744073709551615"]),
    "year_": ("YEAR", ["0", "1901", "2155"]),
    "dec": ("DECIMAL(12,4)", [*NUMBERS, "0.0001", "-0.0001", "-99999999.9999", "1.5"]),
    "dec_z": ("DECIMAL(9,2) ZEROFILL", ["0", "1.5", "15"]),
    "dec_0": ("DECIMAL(30,0)", [*NUMBERS, "9" * 30]),
    "dec_all": ("DECIMAL(5,5)", ["0", "0.5", "-0.5", "0.00001"]),
    "dec_38": ("DECIMAL(38,30)", [*NUMBERS, f"{'9' * 8}.{'9' * 30}", "1e-30"]),
    "dec_65": ("DECIMAL(65,30)", [*NUMBERS, f"-{'9' * 35}.{'9' * 30}", "-1e-30"]),
    "float_": ("FLOAT", [*REALS, "3.4e38", "16777217"]),
    "double_": ("DOUBLE", [*REALS, "1.7976931348623157e308", "5e-324", "0.1e0 + 1e-17"]),
    "bit_1": ("BIT(1)", ["0", "1"]),
    "bit_9": ("BIT(9)", ["0", "1", "511"]),
    "bit_64": ("BIT(64)", ["0", "18446744073709551615"]),
    "date_": ("DATE", DAYS),
    "datetime_": ("DATETIME", TIMES),
    "datetime_3": ("DATETIME(3)", FINE),
    "datetime_6": ("DATETIME(6)", [*FINE, "'9999-12-31 23:59:59.999999'"]),
    "stamp": ("TIMESTAMP NULL", ["'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'"]),
    "stamp_6": ("TIMESTAMP(6) NULL", [*FINE[5:], "'2038-01-19 03:14:07.999999'"]),
    "time_": ("TIME(3)", ["'-838:59:59'", "'838:59:59'", "'00:00:00.1'", "'-00:00:00.1'"]),
    "char_": ("CHAR(10)", WORDS),
    "varchar_": ("VARCHAR(100)", [*WORDS, "'a\\0b'"]),
    "wide": (
        "VARCHAR(2000)",
        [*WORDS, "REPEAT('é', 2000)", "REPEAT('x', 255)", "REPEAT('x', 256)"],
    ),
    "latin": ("VARCHAR(9) CHARACTER SET latin1", ["'é€'", "'a'", "''"]),
    "utf16_": ("VARCHAR(9) CHARACTER SET utf16", ["'é€'", "'😀'", "''"]),
    "bin_": ("VARCHAR(9) COLLATE utf8mb4_bin", WORDS),
    "text_": ("TEXT", [*WORDS, "REPEAT('x', 60000)", "REPEAT('é', 20000)"]),
    "longtext_": ("LONGTEXT CHARACTER SET latin1", ["'é'", "REPEAT('é', 9000)"]),
    "enum_": ("ENUM('a','b''c','','é')", ["'a'", "'b''c'", "''", "0", "'é'"]),
    "set_": ("SET('x','y','z')", ["'x,z'", "''", "'x'"]),
    "json_": ("JSON", ['\'{"a": [1, "é"], "b": 1.0}\'', "'null'", "'[]'"]),
    "binary_": ("BINARY(4)", ["x'00'", "x'FF00FF00'"]),
    "varbinary_": ("VARBINARY(9)", ["x''", "x'00'", "x'0000'", "x'00FF00'"]),
    "blob_": ("BLOB", ["x''", "x'00'", "REPEAT(x'FF', 60000)"]),
    "point_": ("POINT", ["ST_GeomFromText('POINT(1 -2.5)')", "ST_GeomFromText('POINT(1 2)')"]),
    "secret": ("VARCHAR(20)", WORDS),
    "yes": ("TINYINT(1)", ["0", "1"]),
    "a `\"b' 日": ("INT", NUMBERS),
}
MARIADB_TYPES: dict[str, tuple[str, list[str]]] = {
    "uuid_": ("UUID", ["'123E4567-e89b-12d3-a456-426655440000'"]),
    "inet6_": ("INET6", ["'2001:DB8::ff00:42:8329'", "'::ffff:1.2.3.4'"]),
}
# What a target cannot express in the same way, so that it is read.
READ = {
    "duckdb": set[str](),
    "postgres": set[str](),
    "redshift": {"float_", "double_", "blob_", "point_"},
}


@pytest.fixture
def source(server: PrivateMariaDB) -> Iterator[Source]:
    made = Source(server)
    yield made
    server.execute(f"DROP DATABASE {made.schema}")


def exact(value: Any) -> Any:
    """A value of which only an equal one is equal: a number by its bits."""
    return struct.pack("d", value) if isinstance(value, float) else value


def every_type(server: PrivateMariaDB) -> dict[str, tuple[str, list[str]]]:
    return TYPES if isinstance(server, PrivateMySQL) else {**TYPES, **MARIADB_TYPES}


def test_checksums_are_equal_exactly_where_values_are(
    server: PrivateMariaDB,
    source: Source,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of each type, every value is held against every other one."""
    use_test_keys(monkeypatch)
    types = every_type(server)
    chosen = random.Random(17)
    draws = [
        [chosen.choice([*values, "NULL"]) for _, values in types.values()] for _ in range(ROWS // 2)
    ]
    each = [
        [(*values, "NULL")[row % (len(values) + 1)] for _, values in types.values()]
        for row in range(ROWS // 2)
    ]
    source.create({name: kind for name, (kind, _) in types.items()}, [*each, *draws])
    source.describe()
    rows = source.read()
    every = {column.name for column in source.columns}
    known: dict[CheckedColumn, list[Checksum | None]] = {}
    for kind in TARGETS:
        folder = tmp_path / kind
        folder.mkdir()
        with Target(new_warehouse(kind, request, folder), source, rows) as target:
            assert len(target.rows) >= ROWS - 6
            checkable = target.checkable()
            assert every - {c.name for c in checkable} == READ[kind]
            assert (checkable[-1] == CheckedColumn("json_", "last")) == (kind != "redshift")
            assert source.checksums(target.ids, checkable) == target.checksums(checkable)
            for column in checkable:
                if column not in known:
                    known[column] = source.checksums(rows["id"].to_pylist(), [column])
                ours = [known[column][number - 1] for number in target.ids]
                hold_against_each_other(kind, target, column, ours)


def hold_against_each_other(
    kind: str, target: Target, column: CheckedColumn, ours: Sequence[Checksum | None]
) -> None:
    values = [exact(row[column.name]) for row in target.rows]
    assert any(value is not None for value in values)
    for (one, mine), (other, its) in product(
        zip(values, ours, strict=True), zip(values, target.checksums([column]), strict=True)
    ):
        assert (one == other) == (mine == its), (kind, column.name, one, other)


@pytest.mark.parametrize("null", ["NULL", "NOT NULL"])
def test_no_text_runs_into_its_neighbour(
    null: str,
    source: Source,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_test_keys(monkeypatch)
    texts = ["''", "','", "',,'", "'1,'", "'a'", "'a,'", "'1,a'", "'1,a,'", "',1,a'", "'1,a,1,a'"]
    texts += ["NULL"] if null == "NULL" else []
    kind = f"VARCHAR(20) {null}"
    source.create({"a": kind, "b": kind}, list(product(texts, texts)))
    source.describe(ColumnChoices())
    rows = source.read()
    forms: list[tuple[TextForm, TextForm]] = [
        ("framed", "framed"),
        ("shortened", "shortened"),
        ("framed", "last"),
    ]
    for kind in TARGETS:
        folder = tmp_path / kind
        folder.mkdir()
        with Target(new_warehouse(kind, request, folder), source, rows) as target:
            for form, other in forms:
                both = [CheckedColumn("a", form), CheckedColumn("b", other)]
                sums = target.checksums(both)
                assert sums == source.checksums(target.ids, both)
                assert len(set(sums)) == len(texts) ** 2


@pytest.mark.enough_on("mariadb")
def test_a_zero_date_is_the_null_that_the_target_holds(source: Source, tmp_path: Path) -> None:
    kinds = {"d": "DATE", "t": "DATETIME", "f": "DATETIME(6)", "s": "TIMESTAMP(3) NULL"}
    zero = ["'0000-00-00'", "'0000-00-00'", "'0000-00-00'", "'0000-00-00'"]
    partial = ["'2024-00-15'", "'2024-01-00 10:00:00'", "'2024-02-31'", "NULL"]
    source.create(kinds, [zero, ["NULL"] * 4, partial])
    source.describe(ColumnChoices())
    checked = checked_columns(source.columns[1:]) or ()
    zeros, nulls, partials = source.checksums([1, 2, 3], checked)
    assert zeros == nulls != partials  # what is on no day is left to the comparison of rows
    for policy in ("quarantine", "error"):
        zeros, nulls, _ = source.checksums([1, 2, 3], checked, policy)
        assert zeros != nulls


@pytest.mark.only_on("mariadb")
def test_text_too_long_for_the_server_has_no_checksum(
    server: PrivateMariaDB, source: Source
) -> None:
    source.create({f"v{n}": "VARCHAR(250)" for n in range(5)}, [["REPEAT('x', 250)"] * 5])
    source.describe(ColumnChoices())
    checked = checked_columns(source.columns) or ()
    assert source.checksums([1], checked) != [None]
    before = server.execute("SELECT @@GLOBAL.max_allowed_packet")[0][0]
    server.execute("SET GLOBAL max_allowed_packet = 1024")
    try:
        assert source.checksums([1], checked[1:2]) != [None]
        assert source.checksums([1], checked) == [None]  # CONCAT returns NULL
    finally:
        server.execute(f"SET GLOBAL max_allowed_packet = {before}")


@pytest.mark.enough_on("mysql")
def test_no_other_server_answers(server: PrivateMariaDB, source: Source) -> None:
    source.create({"v": "INT"}, [["1"]])
    source.describe(ColumnChoices())
    checked = checked_columns(source.columns) or ()
    with connect(source.connection) as session:
        found = read_server(session)
    assert source.checksums([1], checked, guard=found.guard) != [None]
    assert found.identity is not None
    other = structs.replace(found, identity=f"other-{found.identity}")
    with pytest.raises(AnotherServer):
        source.checksums([1], checked, guard=other.guard)


def test_a_window_has_one_checksum_whatever_index_is_read(
    server: PrivateMariaDB, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of other windows lie between the keys of one; a sparse window is not read by key."""
    moments = [f"'2025-01-{1 + number % 2:02}'" for number in range(30)]
    source.create({"t": "DATETIME NOT NULL"}, [[moment] for moment in moments])
    server.execute(f"ALTER TABLE {source.place} ADD KEY by_time (t)")
    server.execute(f"INSERT INTO {source.place} VALUES (500, '2025-01-05'), (900, '2025-01-05')")
    source.describe(ColumnChoices())
    checked = checked_columns(source.columns) or ()

    def asked(index: str | None) -> SourceChecksums:
        return SourceChecksums(
            source.table, source.plans, checked, index=index, guard="TRUE", zero_dates="null"
        )

    days = {f"t = '2025-01-{day:02}'": day < 5 for day in (1, 2, 3, 4, 5)}
    wider = {"t >= '2025-01-01' AND t < '2025-01-03'": True, "t > '2025-01-01'": False}
    with connect(source.connection) as session:

        def read(sums: SourceChecksums, window: Window) -> Checksum:
            parts = [sums.read(session, one) for one in sums.statements(session, window)]
            return sum(filter(None, parts), NO_ROWS)

        for numbers in (1, 7, 25_000):
            monkeypatch.setattr(row_checksums, "_PART_NUMBERS", numbers)
            for predicate, dense in (days | wider).items():
                window = window_of(predicate)
                expected = read(asked(None), window)
                assert read(asked("by_time"), window) == expected
                parts = asked("by_time").statements(session, window)
                by_key = dense and expected != NO_ROWS
                assert all(("FORCE INDEX (`PRIMARY`)" in part) == by_key for part in parts)
                assert (len(parts) > 1) == (by_key and numbers < expected.rows)


def test_windows_along_the_key_are_read_in_parts(
    server: PrivateMariaDB, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first and the last window are open: rows beyond the keys of now belong to them.

    However wide the gaps between keys are, the parts are few.
    """
    source.create({"t": "DATETIME NOT NULL"}, [["'2025-01-01'"]] * 30)
    for key in (-(2**31), 2**31 - 1):
        server.execute(f"INSERT INTO {source.place} VALUES ({key}, '2025-01-01')")
    source.describe(ColumnChoices())
    checked = checked_columns(source.columns) or ()
    sums = SourceChecksums(
        source.table, source.plans, checked, index=PRIMARY, guard="TRUE", zero_dates="null"
    )
    ends = [START, *(Position(walk=KeyScan(key, START)) for key in (8, 9, 24, 40)), START]
    limits = [
        "id <= 8 OR FALSE",
        "id > 8 AND id <= 9",
        "id > 9 AND id <= 24",
        "id > 24 AND id <= 40",
    ]
    with connect(source.connection) as session:
        whole = sums.read(session, sums.statement("TRUE", PRIMARY))
        for numbers in (1, 5, 25_000):
            monkeypatch.setattr(row_checksums, "_PART_NUMBERS", numbers)
            found = []
            for predicate, (start, end) in zip([*limits, "id > 40"], pairwise(ends), strict=True):
                window = window_of(predicate, start, end)
                statements = sums.statements(session, window)
                assert len(statements) <= 8
                parts = [sums.read(session, statement) for statement in statements]
                whole_window = sums.read(session, sums.statement(predicate, PRIMARY))
                assert sum(filter(None, parts), NO_ROWS) == whole_window
                found += parts
            assert sum(filter(None, found), NO_ROWS) == whole
            assert len(found) > len(ends) - 1
