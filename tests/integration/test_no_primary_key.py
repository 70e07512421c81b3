"""Tables without a primary key: a unique key takes its place, or they are read whole."""

from collections.abc import Callable
from typing import Any

import duckdb
import pytest

from floodmark.config.models import MysqlConnection
from floodmark.config.secret import Secret
from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.model.table import TableName
from floodmark.mysql.catalog import read_table
from floodmark.mysql.connection import connect
from pipelines import Ended, Pipeline, ask_once, numbers
from servers.mysql import PrivateMySQL

WALK = "extraction: {walk_from_rows: 1, window_rows: 30, windows_per_chunk: 2}\n"


def target(it: Pipeline, name: str = "t") -> list[tuple[Any, ...]]:
    with duckdb.connect(str(it.folder / "warehouse.duckdb")) as database:
        return sorted(database.execute(f"SELECT a, b, n FROM {name}").fetchall())


def source(it: Pipeline, name: str = "t") -> list[tuple[Any, ...]]:
    return sorted(ask_once(it, f"SELECT a, b, n FROM {name}"))


def sync(it: Pipeline, *arguments: str) -> Ended:
    ended = it.call("sync", "-p", "main", *arguments)
    assert ended.code == 0, ended
    return ended


def make(
    pipeline: Callable[..., Pipeline], keys: str, *, wanted: str = "{}", settings: str = WALK
) -> Pipeline:
    it = pipeline({"t": wanted}, settings=settings + "default_start: 2020-01-01\n")
    ask_once(
        it,
        "CREATE TABLE t (a INT NOT NULL, b VARCHAR(20) NOT NULL, n INT,"
        " updated_at TIMESTAMP(6) NOT NULL DEFAULT '2024-01-01' ON UPDATE CURRENT_TIMESTAMP(6)"
        f"{keys})",
    )
    fill(it, 1, 100)
    return it


def fill(it: Pipeline, first: int, last: int, day: int = 1) -> None:
    rows = f"SELECT seq, CONCAT('b', seq), seq, '2024-01-{day:02}' FROM {numbers(first, last)}"
    ask_once(it, f"INSERT INTO t (a, b, n, updated_at) {rows}")
    ask_once(it, "ANALYZE TABLE t")


def change(it: Pipeline, values: str, where: str, day: int = 2) -> None:
    """Change rows on some day: nothing of the current second would be read."""
    ask_once(it, f"UPDATE t SET {values}, updated_at = '2024-01-{day:02}' WHERE {where}")


def key_of(server: PrivateMariaDB, it: Pipeline) -> tuple[str, tuple[str, ...]]:
    connection = MysqlConnection(
        host=server.host, port=server.port, user=server.user, password=Secret(server.password)
    )
    with connect(connection) as session:
        table = read_table(session, TableName("S", it.schema, "t"))
    return table.key_index, table.primary_key


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (", UNIQUE z (a), UNIQUE y (b)", ("z", ("a",))),
        (", UNIQUE z (b, a), KEY x (a), UNIQUE y (a)", ("z", ("b", "a"))),
        (", UNIQUE z (n), UNIQUE y (a)", ("y", ("a",))),
        (", UNIQUE z (b(4)), UNIQUE y (a)", ("y", ("a",))),
        (", UNIQUE z (b), PRIMARY KEY (a)", ("PRIMARY", ("a",))),
        (", KEY z (a)", ("PRIMARY", ())),
    ],
)
def test_first_unique_key_without_nulls_is_the_key(
    server: PrivateMariaDB,
    pipeline: Callable[..., Pipeline],
    keys: str,
    expected: tuple[str, tuple[str, ...]],
) -> None:
    assert key_of(server, make(pipeline, keys)) == expected


@pytest.mark.only_on("mysql")
def test_expressions_do_not_count(
    server: PrivateMariaDB, pipeline: Callable[..., Pipeline]
) -> None:
    assert key_of(server, make(pipeline, ", UNIQUE z ((a + 0))")) == ("PRIMARY", ())
    assert key_of(server, make(pipeline, ", UNIQUE z (a), UNIQUE ((a + 1))")) == ("z", ("a",))


@pytest.mark.only_on("mariadb")
def test_ignored_key_does_not_count(
    server: PrivateMariaDB, pipeline: Callable[..., Pipeline]
) -> None:
    assert key_of(server, make(pipeline, ", UNIQUE z (a), UNIQUE y (b) IGNORED")) == ("z", ("a",))


@pytest.mark.parametrize("wanted", ["{}", "{cursor: updated_at}", "{cursor: none}"])
@pytest.mark.parametrize("key", ["(a)", "(b)", "(b, a)"])
def test_unique_key_serves_as_primary_key(
    pipeline: Callable[..., Pipeline], wanted: str, key: str
) -> None:
    """Rows are walked over, split, replaced and verified by it."""
    it = make(pipeline, f", UNIQUE `the key` {key}, KEY (updated_at)", wanted=wanted)
    sync(it, "--verify-data")
    assert target(it) == source(it)
    change(it, "n = -n", "a % 3 = 0")
    fill(it, 101, 110, day=2)
    sync(it, "--verify-data=all")
    assert target(it) == source(it)
    assert set(it.chunks()[-1].primary_key) == set(key.strip("()").split(", "))


@pytest.mark.enough_on("mysql")
def test_walk_is_continued_along_unique_key(pipeline: Callable[..., Pipeline]) -> None:
    it = make(pipeline, ", UNIQUE k (a), KEY (updated_at)")
    sync(it, "--limit", "40")
    assert it.watermark().position.walk
    sync(it)
    assert target(it) == source(it)


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize(
    "alteration",
    [
        "ADD UNIQUE a_earlier (b)",
        "DROP INDEX k, ADD UNIQUE earlier (b), ADD UNIQUE k2 (a)",
        "ADD PRIMARY KEY (b)",
    ],
)
def test_key_stays_as_long_as_it_is_one(pipeline: Callable[..., Pipeline], alteration: str) -> None:
    it = make(pipeline, ", UNIQUE k (a)")
    sync(it)
    ask_once(it, f"ALTER TABLE t {alteration}")
    assert "unique key a" in it.call("doctor").out
    change(it, "b = CONCAT('new', b), n = 0", "a < 10")
    sync(it, "--verify-data=all")
    assert target(it) == source(it)
    assert it.chunks()[-1].primary_key == ("a",)


@pytest.mark.follows_hint("'floodmark watermark reset -t …', then sync, reads it again")
@pytest.mark.enough_on("mysql")
def test_key_that_changed_within_a_walk_is_refused(pipeline: Callable[..., Pipeline]) -> None:
    it = make(pipeline, ", PRIMARY KEY (a, b), KEY (updated_at)")
    sync(it, "--limit", "40")
    ask_once(it, "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (b, a)")
    ended = it.call("sync", "-p", "main")
    assert ended.code == 1
    assert "a first load along its key (a, b) is in progress" in ended.out + ended.err
    assert it.call("watermark", "reset", "-t", f"PROD:{it.schema}.t", "--force").code == 0
    sync(it)
    assert target(it) == source(it)


@pytest.mark.enough_on("mysql")
def test_column_of_unique_key_may_be_left_out(pipeline: Callable[..., Pipeline]) -> None:
    it = make(pipeline, "", wanted="{hash: [B]}")
    ask_once(it, "ALTER TABLE t ADD UNIQUE k (b)")
    sync(it)
    assert it.chunks()[-1].primary_key == ()
    assert it.chunks()[-1].reload


@pytest.mark.follows_hint("loaded without a key so far, and this continues")
@pytest.mark.enough_on("mysql")
def test_rows_appended_before_stay_so_until_reset(pipeline: Callable[..., Pipeline]) -> None:
    """As an older version left them, which knew no unique keys."""
    it = make(pipeline, "", wanted="{cursor: updated_at}")
    sync(it)
    ask_once(it, "ALTER TABLE t ADD UNIQUE k (a)")
    change(it, "n = 0", "a = 1")
    said = " ".join(sync(it).err.split())
    assert "loaded without a key so far" in said
    assert len(target(it)) == 101
    command = said.split("'floodmark ")[1].split("'")[0].split()
    assert it.call(*command, "--force").code == 0
    assert "loaded without a key" not in sync(it, "--verify-data=all").err
    assert target(it) == source(it)
    change(it, "n = 7", "a = 1", day=3)
    sync(it)
    assert target(it) == source(it)


@pytest.mark.enough_on("mysql")
def test_keyless_table_is_read_whole_unless_a_cursor_is_named(
    pipeline: Callable[..., Pipeline],
) -> None:
    it = make(pipeline, "")
    sync(it)
    for turn in range(3):
        change(it, f"n = -{turn}", "a = 1", day=2 + turn)
        sync(it)
        assert target(it) == source(it)


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize("command", [("doctor",), ("sync", "-p", "main", "--dry-run"), ("sync",)])
def test_cursor_of_keyless_table_says_what_it_means(
    pipeline: Callable[..., Pipeline], command: tuple[str, ...]
) -> None:
    it = make(pipeline, "", wanted="{cursor: updated_at}")
    ended = it.call(*command, *(("-p", "main") if command == ("sync",) else ()))
    assert "a changed row is added again" in " ".join((ended.out + ended.err).split())


COLLATIONS = {
    "utf8mb4_general_ci": ["upper and lower case", "accents", "trailing blanks"],
    "utf8mb4_bin": ["trailing blanks"],
    "latin1_general_cs": ["trailing blanks"],
}
MYSQL_COLLATIONS = {
    "utf8mb4_0900_ai_ci": ["upper and lower case", "accents"],
    "utf8mb4_0900_as_ci": ["upper and lower case"],
    "utf8mb4_0900_as_cs": [],
    "utf8mb4_0900_bin": [],
}
MARIADB_COLLATIONS = {"utf8mb4_nopad_bin": [], "uca1400_as_cs": ["trailing blanks"]}


@pytest.mark.parametrize("collation", [*COLLATIONS, *MYSQL_COLLATIONS, *MARIADB_COLLATIONS])
def test_doctor_names_keys_that_a_collation_treats_as_equal(
    server: PrivateMariaDB, pipeline: Callable[..., Pipeline], collation: str
) -> None:
    own, others = MARIADB_COLLATIONS, MYSQL_COLLATIONS
    if isinstance(server, PrivateMySQL):
        own, others = others, own
    if collation in others:
        pytest.skip("another server's")
    same = (COLLATIONS | own)[collation]
    it = pipeline({"t": "{cursor: updated_at}"})
    charset = "latin1" if collation.startswith("latin1") else "utf8mb4"
    ask_once(
        it,
        f"CREATE TABLE t (k VARCHAR(20) CHARACTER SET {charset} COLLATE {collation} PRIMARY KEY,"
        " updated_at DATETIME NOT NULL)",
    )
    said = " ".join(it.call("doctor").out.split())
    assert ("two in the target" in said) == bool(same)
    assert f"does not distinguish {', '.join(same)}:" in said or not same


@pytest.mark.enough_on("mysql")
@pytest.mark.follows_hint("if applications change keys like that, use 'cursor: none'")
@pytest.mark.parametrize(("wanted", "rows"), [("{cursor: updated_at}", 2), ("{cursor: none}", 1)])
def test_key_that_changes_its_case(
    pipeline: Callable[..., Pipeline], wanted: str, rows: int
) -> None:
    """One row in MySQL and two in the target, as `doctor` says; not with its hint."""
    it = pipeline({"t": wanted}, settings="default_start: 2020-01-01\n")
    ask_once(it, "CREATE TABLE t (k CHAR(9) PRIMARY KEY, updated_at DATETIME NOT NULL)")
    ask_once(it, "INSERT INTO t VALUES ('a', '2024-01-01')")
    sync(it)
    ask_once(it, "UPDATE t SET k = 'A', updated_at = '2024-01-02'")
    sync(it)
    with duckdb.connect(str(it.folder / "warehouse.duckdb")) as database:
        assert len(database.execute("SELECT k FROM t").fetchall()) == rows
    assert ("two in the target" in " ".join(it.call("doctor").out.split())) == (rows == 2)
