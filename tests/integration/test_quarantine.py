"""Rows that a target cannot hold, from MariaDB to where an operator finds them."""

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest

from pipelines import Pipeline, ask, ask_once, numbers, session
from servers.postgres import PrivatePostgres

New = Callable[..., Pipeline]


@pytest.fixture
def days(pipeline: New) -> Pipeline:
    """Five rows, two of which have a zero date in their key."""
    made = pipeline({"t": "{cursor: id}"})
    ask_once(
        made,
        "CREATE TABLE t (day DATE NOT NULL, id INT NOT NULL AUTO_INCREMENT, note VARCHAR(9),"
        " PRIMARY KEY (day, id), KEY by_id (id))",
    )
    ask_once(
        made,
        "INSERT INTO t SELECT IF(seq % 2, '2025-06-01', '0000-00-00'), seq, 'a'"
        f" FROM {numbers(1, 5)}",
        sql_mode="",
    )
    return made


def loaded_ids(pipeline: Pipeline) -> list[int]:
    with duckdb.connect(str(pipeline.folder / "warehouse.duckdb")) as database:
        return [row[0] for row in database.execute("SELECT id FROM t ORDER BY id").fetchall()]


def test_they_are_counted_wherever_rows_are(days: Pipeline) -> None:
    ended = days.call("sync", "-p", "main", "--json")
    assert ended.code == 0, ended
    result = ended.table
    assert (result["rows"], result["loaded_rows"], result["quarantined_rows"]) == (5, 3, 2)
    assert "2 rows went to quarantine" in ended.err
    assert loaded_ids(days) == [1, 3, 5]
    with duckdb.connect(str(days.folder / "warehouse.duckdb")) as database:
        counts = database.execute("SELECT row_count, quarantined_rows FROM floodmark_ledger")
        assert counts.fetchall() == [(3, 2)]
    state = days.watermark().redshift_state
    assert (state.total_rows, state.quarantined_rows, state.status) == (3, 2, "success")
    assert days.watermark().mysql_state.total_rows == 5

    text = days.call("watermark", "get", "-t", str(days.table()), "--show-files").out
    assert "Rows Loaded: 3" in text
    assert "Rows Quarantined: 2" in text
    shown = days.call("watermark", "get", "-t", str(days.table()), "--show-files", "--json")
    (path,) = shown.value["quarantine"]
    assert path in text
    found = duckdb.execute(
        f"SELECT key, \"column\", reason, row.note FROM '{days.lake.folder}/{path}'"
    ).fetchall()
    reason = "the primary key is NULL, or a zero date"
    keys = ['{"day":null,"id":2}', '{"day":null,"id":4}']
    assert found == [(key, "day", reason, "a") for key in keys]

    again = days.call("sync", "-p", "main", "--json").table
    assert (again["loaded_rows"], again["quarantined_rows"]) == (0, 0)
    ask_once(days, "INSERT INTO t VALUES ('2025-06-02', 6, 'b')")
    more = days.call("sync", "-p", "main")
    assert "1 row loaded in" in more.out
    assert "quarantine" not in more.out + more.err
    assert days.watermark().redshift_state.quarantined_rows == 2


def test_validation_knows_of_them(days: Pipeline) -> None:
    assert days.call("sync", "-p", "main").code == 0
    name = str(days.table())
    assert days.call("watermark", "validate", "-t", name).code == 0
    change_ledger(days, "quarantined_rows = 1")
    found = days.call("watermark", "validate", "-t", name)
    assert found.code != 0
    said = found.out + found.err
    assert (
        "rows of manifest 1-1: 3 loaded and 1 quarantined in the ledger, 5 in the manifest" in said
    )
    assert "rows in quarantine: 2 in the watermark, 1 in the ledger" in said
    change_ledger(days, "quarantined_rows = 1, row_count = 4")
    days.call("watermark", "validate", "-t", name, "--repair")
    assert days.watermark().redshift_state.quarantined_rows == 1


def change_ledger(pipeline: Pipeline, values: str) -> None:
    with duckdb.connect(str(pipeline.folder / "warehouse.duckdb")) as database:
        database.execute(f"UPDATE floodmark_ledger SET {values}")


@pytest.mark.follows_hint("'loading: {quarantine_limit: …}'")
def test_the_limit_is_a_setting(days: Pipeline) -> None:
    days.write_config("loading: {quarantine_limit: 1}")
    ended = days.call("sync", "-p", "main")
    assert ended.code == 1
    assert "more than the limit of 1 rows have values that the target cannot hold" in ended.out
    assert 'the row with key {"day":null,"id":2}: day: the primary key is NULL' in ended.out
    assert "hint: fix them in the source" in ended.err
    assert loaded_ids(days) == []
    state = days.watermark().redshift_state
    assert (state.status, state.total_rows, state.quarantined_rows) == ("failed", 0, 0)
    shown = days.call("watermark", "get", "-t", str(days.table()), "--show-files", "--json")
    assert shown.value["quarantine"] == []
    days.write_config("loading: {quarantine_limit: 2}")
    done = days.call("sync", "-p", "main")
    assert done.code == 0
    assert "; 2 rows quarantined" in done.out
    assert loaded_ids(days) == [1, 3, 5]


def test_cleaning_the_lake_leaves_them(days: Pipeline) -> None:
    assert days.call("sync", "-p", "main").code == 0
    (kept,) = days.lake.open().list_objects("quarantine/")
    cleaned = days.call("s3clean", "clean", "-t", str(days.table()), "--json")
    assert cleaned.code == 0, cleaned
    assert len(cleaned.value["removed"]) == 1
    assert days.files() == set()
    assert list(days.lake.open().list_objects("quarantine/")) == [kept]


def test_a_saved_watermark_with_its_files_can_be_restored(days: Pipeline, tmp_path: Path) -> None:
    assert days.call("sync", "-p", "main").code == 0
    name = str(days.table())
    saved = tmp_path / "saved.json"
    saved.write_text(days.call("watermark", "get", "-t", name, "--show-files", "--json").out)
    assert days.call("watermark", "reset", "-t", name, "--force").code == 0
    assert days.watermark().redshift_state.quarantined_rows == 0
    restored = days.call("watermark", "restore", "-t", name, "--file", str(saved), "--force")
    assert restored.code == 0, restored
    assert days.watermark().redshift_state.quarantined_rows == 2


def test_a_lost_target_is_filled_again(days: Pipeline) -> None:
    assert days.call("sync", "-p", "main").code == 0
    (days.folder / "warehouse.duckdb").unlink()
    again = days.call("sync", "-p", "main", "--json").table
    assert (again["loaded_rows"], again["quarantined_rows"]) == (3, 2)
    assert days.watermark().redshift_state.quarantined_rows == 2


def test_rows_with_zero_dates_if_asked_for(pipeline: New) -> None:
    """They are set aside by stage 1, as the server wrote them; the manifest names their file."""
    made = pipeline({"t": "{cursor: [update_at, id]}"})
    made.write_config("extraction: {zero_dates: quarantine}")
    ask_once(
        made,
        "CREATE TABLE t (id INT PRIMARY KEY, day DATE, moment DATETIME(3), amount DECIMAL(9,2),"
        " update_at DATETIME NOT NULL, KEY (update_at, id))",
    )
    with session(made) as connection:
        ask(connection, "SET sql_mode = 'ALLOW_INVALID_DATES'")
        ask(
            connection,
            "INSERT INTO t VALUES (1, '2024-02-29', NULL, 1.5, '2025-06-01'),"
            " (2, '2024-00-15', '2024-01-01 10:00:00', 2.5, '2025-06-02'),"
            " (3, NULL, '0000-00-00', NULL, '2025-06-03'),"
            " (4, '2024-02-31', '0000-00-00', 4, '2025-06-04'),"
            " (5, NULL, '2024-02-29 23:59:59.999', 5, '2025-06-05')",
        )
    ended = made.call("sync", "-p", "main", "--json")
    assert ended.code == 0, ended
    result = ended.table
    assert (result["rows"], result["loaded_rows"], result["quarantined_rows"]) == (2, 2, 3)
    assert result["zero_dates"] == {"day": 2, "moment": 2}
    assert loaded_ids(made) == [1, 5]
    state = made.watermark().mysql_state
    assert (state.total_rows, state.quarantined_rows) == (2, 3)
    assert str(made.watermark().position).startswith("2025-06-05")
    made.check_tracking()
    name = str(made.table())
    assert made.call("watermark", "validate", "-t", name).code == 0
    assert made.call("sync", "-p", "main", "--verify-data").code == 0
    assert "Rows Quarantined: 3" in made.call("watermark", "get", "-t", name).out
    shown = made.call("watermark", "get", "-t", name, "--show-files", "--json")
    (path,) = shown.value["quarantine"]
    assert path == made.chunks()[0].quarantine[0].path
    found = duckdb.execute(
        'SELECT key, "column", reason, row.day, row.moment, row.amount'
        f" FROM '{made.lake.folder}/{path}' ORDER BY key"
    ).fetchall()
    reason = "a zero or partial date"
    assert found == [
        ('{"id":2}', "day", reason, "2024-00-15", "2024-01-01 10:00:00.000", Decimal("2.50")),
        ('{"id":3}', "moment", reason, None, "0000-00-00 00:00:00.000", None),
        ('{"id":4}', "day", reason, "2024-02-31", "0000-00-00 00:00:00.000", Decimal("4.00")),
    ]
    ask_once(made, "UPDATE t SET day = NULL, update_at = '2025-06-06' WHERE id = 2")
    repaired = made.call("sync", "-p", "main", "--json").table
    assert (repaired["rows"], repaired["quarantined_rows"]) == (1, 0)
    assert loaded_ids(made) == [1, 2, 5]
    saved = made.call("watermark", "history", "-t", name, "--json").value[-1]["id"]
    assert made.call("watermark", "restore", "-t", name, "--from", saved, "--force").code == 0
    assert made.watermark().mysql_state.quarantined_rows == 3
    made.check_tracking()


def test_a_window_of_nothing_but_zero_dates(pipeline: New) -> None:
    made = pipeline({"t": "{cursor: id}"})
    made.write_config("extraction: {zero_dates: quarantine}")
    ask_once(made, "CREATE TABLE t (id INT PRIMARY KEY, day DATE)")
    ask_once(made, f"INSERT INTO t SELECT seq, '0000-00-00' FROM {numbers(1, 7)}", sql_mode="")
    ended = made.call("sync", "-p", "main", "--json")
    assert ended.code == 0, ended
    assert (ended.table["rows"], ended.table["quarantined_rows"]) == (0, 7)
    assert made.watermark().position.id == 7
    assert made.call("sync", "-p", "main", "--json").table["quarantined_rows"] == 0


def test_a_zero_character_on_the_way_to_postgresql(
    pipeline: New, postgres: PrivatePostgres
) -> None:
    made = pipeline({"t": "{cursor: id}"})
    path = Path(made.config)
    target = {
        "type": "postgres",
        "host": postgres.host,
        "port": postgres.port,
        "database": "postgres",
        "user": postgres.user,
        "password": postgres.password,
        "schema": made.schema,
    }
    old = "{type: duckdb, path: ./warehouse.duckdb}"
    path.write_text(path.read_text().replace(old, json.dumps(target)))
    ask_once(made, "CREATE TABLE t (id INT PRIMARY KEY, note TEXT)")
    ask_once(made, "INSERT INTO t VALUES (1, 'fine'), (2, CONCAT('a', CHAR(0), 'b')), (3, '')")
    ended = made.call("sync", "-p", "main", "--json")
    assert ended.code == 0, ended
    assert (ended.table["loaded_rows"], ended.table["quarantined_rows"]) == (2, 1)
    with postgres.connect("postgres") as connection:
        found = connection.execute(f'SELECT id FROM "{made.schema}".t ORDER BY id').fetchall()
    assert found == [(1,), (3,)]
