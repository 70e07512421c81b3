"""History is never left out in silence: rows before the start, rows in the future, and `all`."""

from collections.abc import Callable
from typing import Any

import pytest

from pipelines import SCOPE, Pipeline, ask_once, numbers

Make = Callable[..., Pipeline]

COLUMNS = "id INT PRIMARY KEY, update_at {} NOT NULL"
START = "2025-01-01 00:00:00"


def make_table(it: Pipeline, kind: str = "DATETIME", extra: str = "", name: str = "t") -> None:
    ask_once(it, f"CREATE TABLE {name} ({COLUMNS.format(kind)}{extra})")


def insert(it: Pipeline, first: int, last: int, moment: str, name: str = "t") -> None:
    ask_once(it, f"INSERT INTO {name} SELECT seq, {moment} FROM {numbers(first, last)}")


@pytest.mark.parametrize("kind", ["DATETIME", "TIMESTAMP", "DATETIME(6)"])
def test_all_reads_every_row(pipeline: Make, kind: str) -> None:
    it = pipeline({"t": "{}"}, settings="default_start: all\n")
    make_table(it, kind, ", KEY (update_at)")
    old = "1970-01-01 00:00:01" if kind == "TIMESTAMP" else "1000-01-01 00:00:00"
    insert(it, 1, 3, f"'{old}'")
    insert(it, 4, 6, "'1970-01-02 00:00:00'")
    insert(it, 7, 9, "'2025-02-01 00:00:00'")
    assert "not read" not in it.call("sync", "-p", "main", "--dry-run").out
    synced = it.synced()
    assert (synced["rows"], synced["before_start"]) == (9, None)
    assert set(it.ids()) == set(range(1, 10))


@pytest.mark.parametrize("start", ["0001-01-01", "0001-01-02", "0999-12-31", "1969-12-31"])
@pytest.mark.parametrize("kind", ["DATETIME", "TIMESTAMP"])
def test_extreme_dates_work(pipeline: Make, start: str, kind: str) -> None:
    it = pipeline({"t": "{}"}, settings=f"default_start: {start}\n")
    make_table(it, kind)
    insert(it, 1, 3, "'1970-01-01 00:00:01'")
    assert it.call("doctor").code == 0
    assert it.call("sync", "-p", "main", "--dry-run").code == 0
    assert it.synced()["rows"] == 3
    assert it.call("watermark", "get", "-t", f"{it.schema}.t").code == 0


def test_start_is_reported_before_the_first_sync(pipeline: Make) -> None:
    it = pipeline({"t": "{}"})
    get = ("watermark", "get", "-t", f"{it.schema}.t")
    assert it.call(*get).out == f"No watermark found, will start from default: {START}\n"
    it.write_config("default_start: all\n")
    assert it.call(*get).out == "No watermark found, will start from default: all rows\n"
    assert it.call(*get, "--json").value["next_start"] == "all"
    assert it.call("watermark", "get").out.endswith("will start from default: all rows\n")
    assert it.call("watermark", "set", "aug4", "--force").code == 0
    expected = "No watermark found, will start from system watermark: 2025-08-04 00:00:00\n"
    assert it.call(*get).out == expected


@pytest.mark.follows_hint("'floodmark watermark get -t TABLE' shows how to read them")
@pytest.mark.follows_hint("'floodmark watermark reset -t ……'")
@pytest.mark.parametrize("extra", [", KEY (update_at, id)", ""])
def test_rows_before_the_start_are_counted_and_read_when_asked_for(
    pipeline: Make, extra: str
) -> None:
    it = pipeline({"t": "{}"})
    make_table(it, extra=extra)
    insert(it, 1, 2316, "'2024-05-06 07:08:09'")
    insert(it, 2317, 3000, f"'{START}'")
    name = f"{SCOPE}:{it.schema}.t"
    before = f"2,316 rows before {START}"

    doctor = it.call("doctor")
    assert f"{name}: {before} are not read" in doctor.out
    assert "hint: set 'default_start: all' in the configuration\n" in doctor.out
    planned = it.call("sync", "-p", "main", "--dry-run")
    assert "read 684 rows" in planned.out
    assert f"note: {before} are not read; to read them, set 'default_start: all'" in planned.out
    read = it.call("sync", "-p", "main", "--dry-run", "--json").value[0]["read"]
    assert (read["before_start"]["rows"], read["before_start"]["exact"]) == (2316, True)

    synced = it.call("sync", "-p", "main")
    assert synced.code == 0
    assert f"{before} left out" in synced.out
    command = f"floodmark watermark reset -t {name} --extract-only"
    how = f"set 'default_start: all' in the configuration, then run '{command}' and sync"
    assert f"warning: {name}: {before} are not read; to read them, {how}" in synced.err
    assert "before" not in it.call("sync", "-p", "main").err  # said once, and then shown

    listed = it.call("watermark", "list")
    assert "in step, 2,316 rows left out" in listed.out
    assert "shows how to read them" in listed.out
    assert it.call("watermark", "list", "--json").value[0]["mysql_state"]["before_start"]["rows"]
    shown = it.call("watermark", "get", "-t", name).out
    assert f"      Rows Left Out: {before}, counted " in shown
    assert f"      To Read Them: {how}\n" in shown
    assert f"{before} are not read\n    hint: {how}" in it.call("doctor").out

    it.write_config("default_start: all\n")
    assert it.call(*command.split()[1:], "--force").code == 0
    assert it.call("sync", "-p", "main").code == 0
    assert len(it.newest()) == 3000
    for show in (("watermark", "list"), ("watermark", "get", "-t", name), ("doctor",)):
        said = it.call(*show).out.lower()
        assert "left out" not in said
        assert "not read" not in said


def test_a_table_of_old_rows_alone_is_not_in_step(pipeline: Make) -> None:
    """As in Sakila, where all tables are of 2006."""
    it = pipeline({"t": "{}"})
    make_table(it)
    insert(it, 1, 200, "'2006-02-15 04:34:33'")
    for _ in range(2):
        synced = it.call("sync", "-p", "main")
        assert f"nothing to read since {START}; 200 rows before {START} left out" in synced.out
        assert "nothing new" not in synced.out
        assert "to read them, set 'default_start: all' in the configuration\n" in synced.err
    revision = it.watermark().revision
    assert it.sync().code == 0
    assert it.watermark().revision == revision  # the same count is nothing new
    assert "nothing read, 200 rows left out" in it.call("watermark", "list").out
    (document,) = it.call("watermark", "list", "--json").value
    assert (
        document["mysql_state"]["before_start"]["up_to"]["timestamp"]
        == "2024-12-31T23:59:59.999999Z"
    )
    it.write_config("default_start: all\n")
    assert it.synced()["rows"] == 200
    assert it.watermark().mysql_state.before_start is None


def test_the_count_is_in_the_manifests_and_survives_a_lost_watermark(pipeline: Make) -> None:
    it = pipeline({"t": "{}"})
    make_table(it)
    insert(it, 1, 5, "'2006-02-15 04:34:33'")
    insert(it, 6, 9, "'2025-02-15 04:34:33'")
    it.synced()
    before = it.watermark().mysql_state.before_start
    assert before is not None
    assert before.rows == 5
    objects = it.lake.open()
    for info in list(objects.list_objects("watermarks/")):
        if info.key.endswith(".json"):
            objects.delete(info.key)
    assert it.watermark().mysql_state.before_start == before


@pytest.mark.follows_hint("'floodmark watermark set -t … --timestamp 0001-01-01 --force'")
def test_a_system_watermark_leaves_rows_out_too(pipeline: Make) -> None:
    it = pipeline({"t": "{}", "bag": "{cursor: update_at}"}, settings="default_start: all\n")
    make_table(it)
    ask_once(it, "CREATE TABLE bag (id INT, update_at DATETIME)")
    for name in ("t", "bag"):
        insert(it, 1, 5, "'2025-08-03 00:00:00'", name)
        insert(it, 6, 9, "'2025-08-04 00:00:00'", name)
    assert it.call("watermark", "set", "aug4", "--force").code == 0
    assert it.call("sync", "-p", "main").code == 0
    for name in ("t", "bag"):
        assert len(it.newest(name)) == 4
        full = f"{SCOPE}:{it.schema}.{name}"
        shown = it.call("watermark", "get", "-t", full).out
        assert "Rows Left Out: 5 rows before 2025-08-04 00:00:00, counted" in shown
        (how,) = (line for line in shown.splitlines() if "To Read Them: run " in line)
        commands = [part.split()[1:] for part in how.split("'")[1::2]]
        assert len(commands) == (1 if name == "t" else 2)  # without a key, rows are not read twice
        for command in commands:
            assert it.call(*command, *(["--force"] if "--force" not in command else [])).code == 0
    assert it.call("sync", "-p", "main").code == 0
    for name in ("t", "bag"):
        validated = it.call("watermark", "validate", "-t", f"{it.schema}.{name}", "--data")
        assert validated.code == 0, validated
        assert "9 rows compared" in validated.out
        assert it.watermark(name).mysql_state.before_start is None


def test_a_position_set_by_hand_leaves_rows_out_too(pipeline: Make) -> None:
    it = pipeline({"t": "{cursor: id}"})
    make_table(it)
    insert(it, 1, 9, f"'{START}'")
    name = f"{SCOPE}:{it.schema}.t"
    assert it.call("watermark", "set", "-t", name, "--id", "4", "--force").code == 0
    synced = it.call("sync", "-p", "main", "--backup-only")
    assert "4 rows up to id 4 left out" in synced.out
    command = f"floodmark watermark reset -t {name} --extract-only"
    assert f"to read them, run '{command}' and sync" in synced.err
    assert it.call(*command.split()[1:], "--force").code == 0
    assert it.synced()["rows"] == 9
    assert it.watermark().mysql_state.before_start is None


@pytest.mark.parametrize("kind", ["DATETIME", "TIMESTAMP"])
@pytest.mark.parametrize("extra", [", KEY (update_at)", ""])
def test_rows_in_the_future_are_counted(pipeline: Make, kind: str, extra: str) -> None:
    it = pipeline({"t": "{}"}, settings="extraction: {cursor_time_zone: Asia/Tokyo}\n")
    make_table(it, kind, extra)
    now = "UTC_TIMESTAMP() + INTERVAL 9 HOUR" if kind == "DATETIME" else "NOW()"
    insert(it, 1, 4, f"{now} - INTERVAL 1 MINUTE")
    insert(it, 5, 7, f"{now} + INTERVAL 1 HOUR")
    told = "3 rows have a time in update_at that is in the future, and are not read until then"
    assert told in it.call("doctor").out
    assert f"note: {told}" in it.call("sync", "-p", "main", "--dry-run").out
    for rows in (4, 0):
        synced = it.call("sync", "-p", "main", "--json")
        assert (synced.table["rows"], synced.table["future_rows"]["rows"]) == (rows, 3)
        assert told in synced.err


def test_a_look_at_a_large_table_is_bounded(pipeline: Make, monkeypatch: Any) -> None:
    """What was not counted to the end is never shown as an exact number."""
    it = pipeline({"t": "{}", "u": "{}"})
    make_table(it, extra=", KEY (update_at)")
    make_table(it, name="u")
    for name in ("t", "u"):
        insert(it, 1, 300, "'2024-01-01'", name)
        insert(it, 301, 400, "'2025-02-01'", name)
    monkeypatch.setattr("floodmark.sync.history._MOST_LOOKED_AT", 100)
    doctor = it.call("doctor")
    assert f"at least 100 rows before {START} are not read" in doctor.out
    assert f"at least 101 rows before {START} are not read" in doctor.out
    monkeypatch.setattr("floodmark.sync.history._MOST_COUNTED", 100)
    assert it.sync().code == 0
    counted = {name: it.watermark(name).mysql_state.before_start for name in ("t", "u")}
    assert {n: (c.rows, c.exact) for n, c in counted.items() if c} == {
        "t": (100, False),
        "u": (300, True),  # without an index, all rows are looked at anyway
    }


# What a comparison leaves out


def compare_all(it: Pipeline, *arguments: str) -> tuple[str, list[tuple[str, int]]]:
    """Compare everything; what is said of it, and what was not compared."""
    said = it.call("sync", "-p", "main", "--verify-data=all", *arguments)
    ended = it.call("watermark", "validate", "--data", "--json")
    assert (said.code, ended.code) == (0, 0), (said, ended)
    left = ended.value[0]["verification"]["not_compared"]
    return said.out, [(one["kind"], one["rows"]) for one in left]


def test_verification_says_what_lies_before_the_start(pipeline: Make) -> None:
    it = pipeline({"t": "{}"})
    ask_once(it, "CREATE TABLE t (id INT PRIMARY KEY, update_at DATETIME)")
    insert(it, 1, 5, "'2024-05-06 07:08:09'")
    said, left = compare_all(it)
    assert "nothing compared; not compared: 5 rows not loaded\n" in said
    assert left == [("not_loaded", 5)]
    insert(it, 6, 9, "'2025-05-06 07:08:09'")
    insert(it, 10, 12, "NULL")
    insert(it, 13, 13, "NOW() + INTERVAL 1 DAY")
    said, left = compare_all(it)
    before = f"not compared: 5 rows before {START}"
    rest = "1 row not loaded (after 2025-05-06 07:08:09, id 9), 3 rows without a cursor value"
    assert f"source and target are equal; {before}, {rest}\n" in said
    assert left == [("before_start", 5), ("not_loaded", 1), ("no_cursor", 3)]
    insert(it, 14, 14, "'2025-05-07'")
    new = it.call("sync", "-p", "main", "--verify-data")
    assert f"source and target are equal; {before}\n" in new.out
    shown = it.call("watermark", "get", "-t", f"{it.schema}.t").out
    assert "Equal Up To: 2025-05-07 00:00:00, id 14, except for the rows left out\n" in shown
    it.write_config("default_start: all\n")
    reset = ("watermark", "reset", "-t", f"{it.schema}.t", "--extract-only", "--force")
    assert it.call(*reset).code == 0
    said, left = compare_all(it)
    assert "10 rows compared" in said
    assert left == [("not_loaded", 1), ("no_cursor", 3)]


def test_verification_says_what_an_operator_skipped(pipeline: Make) -> None:
    it = pipeline({"t": "{cursor: id}"})
    make_table(it)
    name = f"{it.schema}.t"
    insert(it, 1, 4, "NOW()")
    assert it.call("sync", "-p", "main").code == 0
    insert(it, 5, 9, "NOW()")
    assert it.call("watermark", "set", "-t", name, "--id", "7", "--force").code == 0
    said, left = compare_all(it)
    assert "6 rows compared" in said
    assert "not compared: 3 rows skipped (between id 4 and id 7)\n" in said
    assert left == [("skipped", 3)]
    assert it.call("watermark", "set", "-t", name, "--id", "2", "--force").code == 0
    said, left = compare_all(it, "--load-only")
    assert left == [("not_loaded", 7), ("outside", 4)]
    assert it.call("watermark", "reset", "-t", name, "--force").code == 0
    assert it.call("watermark", "set", "-t", name, "--id", "6", "--force").code == 0
    said, left = compare_all(it)
    assert "3 rows compared" in said
    assert "not compared: 6 rows up to id 6, 4 rows of the target outside of" in said
    assert left == [("before_start", 6), ("outside", 4)]


def test_verification_says_what_is_in_quarantine(pipeline: Make) -> None:
    it = pipeline({"t": "{cursor: id}"}, settings="extraction: {zero_dates: quarantine}\n")
    ask_once(it, "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, d DATE)")
    ask_once(it, "INSERT INTO t VALUES (1, '2025-01-01'), (2, '0000-00-00')", sql_mode="")
    said, left = compare_all(it)
    assert "1 row compared" in said
    assert "source and target are equal; not compared: 1 row in quarantine" in said
    assert left == [("quarantined", 1)]
