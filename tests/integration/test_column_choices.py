"""Columns that are left out, hashed, or read as booleans, from MySQL to the warehouse."""

import re
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256

import duckdb
import pytest

from pipelines import Pipeline, ask_once

New = Callable[..., Pipeline]


def create(pipeline: Pipeline) -> None:
    ask_once(
        pipeline,
        "CREATE TABLE t (id INT PRIMARY KEY, Email VARCHAR(20) CHARACTER SET latin1, card BLOB,"
        " born DATE, active TINYINT(1) NOT NULL, secret TEXT, shape INT,"
        " update_at DATETIME NOT NULL, KEY by_change (update_at, id), UNIQUE KEY (shape))",
    )
    ask_once(
        pipeline,
        "INSERT INTO t VALUES (1, 'é@b', x'00FF', '2001-02-03', 1, 'a', 7, '2025-06-01'),"
        " (2, NULL, NULL, NULL, 0, 'b', 8, '2025-06-02')",
    )


def hashed(data: bytes) -> str:
    return sha256(data).hexdigest()


@pytest.mark.parametrize("cursor", ["[update_at, id]", "none"])
def test_columns_change_on_the_way(pipeline: New, cursor: str) -> None:
    it = pipeline(
        {
            "t": f"{{cursor: {cursor}, exclude: [SECRET, shape], hash: [email, card, born],"
            " booleans: [active]}"
        }
    )
    create(it)
    ended = it.call("sync", "-p", "main", "--verify-data", "--json")
    assert ended.code == 0, ended
    assert ended.table["verification"]["rows"] == 2
    first, second = it.rows()
    assert list(first) == ["id", "Email", "card", "born", "active", "update_at"]
    assert first["Email"] == hashed("é@b".encode())
    assert first["card"] == hashed(b"\x00\xff")
    assert first["born"] == hashed(b"2001-02-03")
    assert first["active"] is True
    assert (second["Email"], second["card"], second["active"]) == (None, None, False)
    it.check_tracking()
    with duckdb.connect(str(it.folder / "warehouse.duckdb")) as warehouse:
        found = warehouse.execute("SELECT id, Email, active FROM t ORDER BY id").fetchall()
    assert found == [(1, hashed("é@b".encode()), True), (2, None, False)]


def test_what_is_no_boolean_stops_the_table(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: [update_at, id], booleans: [active]}"})
    create(it)
    ask_once(it, "UPDATE t SET active = 2 WHERE id = 2")
    ended = it.sync("--json")
    assert ended.code == 1
    assert "column 'active' has a value that is not bool" in ended.table["error"]
    assert it.chunks() == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("exclude: [secrte]", "has no column 'secrte', which is in its 'exclude'"),
        ("hash: [id]", "id is part of the primary key"),
        ("exclude: [update_at]", "update_at is part of the cursor"),
        ("exclude: [email], hash: [Email]", "Email is listed twice"),
        ("booleans: [shape]", "shape of .* is int"),
    ],
)
def test_what_is_refused(pipeline: New, settings: str, message: str) -> None:
    it = pipeline({"t": f"{{cursor: [update_at, id], {settings}}}"})
    create(it)
    ended = it.sync("--json")
    assert ended.code == 2, ended
    assert re.search(message, ended.table["error"])
    if "secrte" in settings:
        assert ended.table["hint"] == "did you mean 'secret'?"
    doctor = it.call("doctor", "--json")
    assert any(re.search(message, check["finding"]) for check in doctor.value), doctor


def test_a_hash_is_of_all_that_a_float_holds(pipeline: New) -> None:
    """Servers show six digits of it, and so one text for many numbers."""
    it = hashing(pipeline({"t": ""}), "f", cursor="none")
    ask_once(it, "CREATE TABLE t (id INT PRIMARY KEY, f FLOAT)")
    ask_once(it, "INSERT INTO t VALUES (1, 16777215), (2, 16777216), (3, 0.5), (4, NULL)")
    it.synced()
    assert {key: row["f"] for key, row in it.newest().items()} == {
        1: hashed(b"16777215"),
        2: hashed(b"16777216"),
        3: hashed(b"0.5"),
        4: None,
    }


def hashing(pipeline: Pipeline, columns: str, cursor: str = "[update_at, id]") -> Pipeline:
    """The same pipeline, with columns to hash."""
    tables = {"t": f"{{cursor: {cursor}, hash: [{columns}]}}"}
    return replace(pipeline, tables=tables).write_config()


def test_a_column_that_begins_to_be_hashed_is_reported_once(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    create(it)
    assert it.sync().code == 0

    def told(columns: str, row: int) -> str:
        day = f"2025-07-{row:02d}"
        ask_once(it, f"INSERT INTO t VALUES ({row}, 'x', NULL, NULL, 1, '', NULL, '{day}')")
        ended = hashing(it, columns).sync()
        assert ended.code == 0, ended
        return ended.err

    said = told("email", 3)
    assert f"warning: {it.table()}: Email will be hashed from now on; rows read before" in said
    assert f"hint: 'floodmark watermark reset -t {it.table()}'" in said
    assert "hashed" not in told("email", 4)
    # Also where an operator's change lies between the chunks; and only of what is new.
    assert (
        it.call(
            "watermark", "set", "-t", str(it.table()), "--timestamp", "2025-07-03", "--force"
        ).code
        == 0
    )
    said = told("email, secret", 5)
    assert "secret will be hashed" in said
    assert "Email" not in said
    # What is read again has nothing in clear.
    assert it.call("watermark", "reset", "-t", str(it.table()), "--mysql-only", "--force").code == 0
    assert "hashed" not in told("email, secret, card", 6)


def test_a_table_that_is_replaced_has_nothing_left_in_clear(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: none}"})
    create(it)
    assert it.sync().code == 0
    assert "hashed" not in hashing(it, "email", cursor="none").sync().err
