"""Manual positions on real tables: messages, questions, and what the next sync does."""

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

import pytest

from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.embedded.process import free_ports
from floodmark.model.timestamps import plain, utc_now
from pipelines import Ended, Pipeline, ask_once
from scenarios import snapshot

pytestmark = pytest.mark.enough_on("mysql")

New = Callable[..., Pipeline]
HOUR = timedelta(hours=1)


@pytest.fixture
def zone(server: PrivateMariaDB) -> Iterator[Callable[[str], None]]:
    """Gives the server another time zone, and its own again afterwards."""
    ((before,),) = server.execute("SELECT @@GLOBAL.time_zone")

    def change(name: str) -> None:
        server.execute(f"SET GLOBAL time_zone = '{name}'")

    yield change
    server.execute(f"SET GLOBAL time_zone = '{before}'")


def days(it: Pipeline, kind: str = "DATETIME") -> None:
    """Six rows: two a day, from the first to the third of June."""
    ask_once(
        it,
        f"CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, update_at {kind} NOT NULL,"
        " KEY (update_at, id))",
    )
    moments = [f"('2025-06-0{day}')" for day in (1, 1, 2, 2, 3, 3)]
    ask_once(it, f"INSERT INTO t (update_at) VALUES {', '.join(moments)}")


def watermark(it: Pipeline, verb: str, *arguments: str) -> Ended:
    return it.call("watermark", verb, "-t", f"{it.schema}.t", *arguments)


def refused(it: Pipeline, verb: str, *arguments: str) -> str:
    """Run a command that must be refused before anything is touched, and return what it says."""
    before = snapshot(it.lake.open())
    ended = watermark(it, verb, *arguments)
    assert ended.code == 2, ended
    assert snapshot(it.lake.open()) == before
    return ended.err


def test_timestamp_is_exclusive_and_shown_in_the_columns_time_zone(
    pipeline: New, zone: Callable[[str], None]
) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    zone("+08:00")
    days(it)
    ended = watermark(it, "set", "--timestamp", "2025-06-02", "--force")
    assert (
        "the next sync reads rows after 2025-06-02 00:00:00 by the clock of update_at"
        " (DATETIME, server zone +08:00); rows with exactly that timestamp count as read"
    ) in ended.out
    assert "Will start from: rows after 2025-06-02 00:00:00\n" in watermark(it, "get").out
    assert it.synced()["rows"] == 2
    assert it.ids().keys() == {5, 6}
    ended = watermark(it, "set", "--timestamp", "2025-06-02", "--id", "3")
    assert "the next sync reads rows after 2025-06-02 00:00:00, id 3 by the clock of" in ended.out
    assert "with exactly that timestamp" not in ended.out
    assert "Will start from: rows after 2025-06-02 00:00:00, id 3\n" in watermark(it, "get").out
    assert it.synced()["rows"] == 3
    assert it.ids().keys() == {4, 5, 6}


def test_a_timestamp_column_goes_by_utc(pipeline: New, zone: Callable[[str], None]) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    zone("+08:00")
    days(it, "TIMESTAMP")
    ended = watermark(it, "set", "--timestamp", "2025-06-01 16:00:00", "--force")
    assert "by the clock of update_at (TIMESTAMP, UTC)" in ended.out
    assert it.synced()["rows"] == 2


@pytest.mark.parametrize(
    ("name", "ahead"), [("+08:00", 8 * HOUR), ("-08:00", -8 * HOUR), ("+00:00", 0 * HOUR)]
)
@pytest.mark.parametrize("known_by", ["source", "last chunk"])
def test_the_future_is_that_of_the_column(
    pipeline: New, zone: Callable[[str], None], name: str, ahead: timedelta, known_by: str
) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    zone(name)
    days(it)
    if known_by == "last chunk":
        assert it.synced()["rows"] == 6
        it = unreachable(it)
    wall = (utc_now() + ahead).replace(microsecond=0)
    said = refused(it, "set", "--timestamp", plain(wall + HOUR), "--force")
    assert "is in the future" in said
    ended = watermark(it, "set", "--timestamp", plain(wall - HOUR), "--force")
    assert ended.code == 0, ended
    assert f"zone {name}" in ended.out


def unreachable(it: Pipeline) -> Pipeline:
    """The same, with a source that nobody answers for."""
    text = Path(it.config).read_text()
    port = it.source["port"]
    Path(it.config).write_text(text.replace(f'"port": {port}', f'"port": {free_ports(1)[0]}'))
    return it


@pytest.mark.parametrize(
    ("cursor", "forward", "began"),
    [
        ("[update_at, id]", ["--timestamp", "2025-06-02"], "the start at 2025-01-01 00:00:00"),
        ("id", ["--id", "4"], "the start"),
    ],
)
def test_a_jump_forward_is_counted_and_asked_about(
    pipeline: New, cursor: str, forward: list[str], began: str
) -> None:
    it = pipeline({"t": f"{{cursor: {cursor}}}"})
    days(it)
    said = refused(it, "set", *forward)
    assert f"would jump from {began} to" in said
    assert ": 4 rows in between will be skipped\n" in said
    assert "hint: add --force" in said
    with patch("floodmark.sync.cursor_facts.COUNT_AT_MOST", 2):
        assert re.search(r"about \d+ rows in between will be skipped", refused(it, "set", *forward))
    assert it.synced("--limit", "2")["rows"] == 2
    assert ": 2 rows in between will be skipped\n" in refused(it, "set", *forward)
    assert watermark(it, "set", *forward, "--force").code == 0
    assert it.synced()["rows"] == 2
    back = ["--timestamp", "2025-06-01"] if "--timestamp" in forward else ["--id", "2"]
    assert watermark(it, "set", *back).code == 0, (
        "to read rows again is safe, and is not asked about"
    )
    assert it.synced()["rows"] == 4


def test_what_lies_before_the_default_start_is_no_jump(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"}, settings="default_start: 2025-06-02")
    days(it)
    assert "4 rows in between" in refused(it, "set", "--timestamp", "2025-06-03")
    assert watermark(it, "set", "--timestamp", "2025-05-31").code == 0
    assert it.synced()["rows"] == 6


def test_a_table_without_an_index_is_not_counted_if_it_is_large(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    days(it)
    ask_once(it, "ALTER TABLE t DROP KEY update_at")
    ask_once(it, "ANALYZE TABLE t")
    with patch("floodmark.sync.cursor_facts.COUNT_AT_MOST", 2):
        said = refused(it, "set", "--timestamp", "2025-06-02")
    assert "of about 6 rows those in between will be skipped" in said


BY_ID = "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT)"
BY_TIME = "CREATE TABLE t (id INT PRIMARY KEY, update_at DATETIME NOT NULL, KEY (update_at))"
BY_CODE = "CREATE TABLE t (code CHAR(5) PRIMARY KEY, update_at DATETIME NOT NULL, KEY (update_at))"
KEYLESS = "CREATE TABLE t (v INT, update_at DATETIME NOT NULL, KEY (update_at))"
WHOLE = "CREATE TABLE t (code CHAR(5) PRIMARY KEY)"
TIME, ID, BOTH = (
    ["--timestamp", "2025-06-02"],
    ["--id", "2"],
    ["--timestamp", "2025-06-02", "--id", "2"],
)
NO_EFFECT = [
    (BY_ID, "{cursor: id}", TIME, "a timestamp alone is not a position", "add --id"),
    (BY_ID, "{}", TIME, "a timestamp alone is not a position", "add --id"),
    (BY_TIME, "{cursor: [update_at, id]}", ID, "an id alone is not a position", "add --timestamp"),
    (BY_TIME, "{cursor: update_at}", ID, "an id alone is not a position", "add --timestamp"),
    (BY_TIME, "{}", ID, "an id alone is not a position", "add --timestamp"),
    (BY_CODE, "{}", BOTH, "code is char(5), not an integer", "remove --id"),
    (KEYLESS, "{cursor: update_at}", BOTH, "(update_at) has no id", "remove --id"),
    (WHOLE, "{}", ID, "the whole table is read every time", "set a 'cursor'"),
    (BY_TIME, "{cursor: none}", TIME, "the whole table is read every time", "set a 'cursor'"),
]


@pytest.mark.parametrize(
    ("create", "settings", "wanted", "named", "hint"),
    NO_EFFECT,
    ids=[f"{case[1]} {case[2][0]}" for case in NO_EFFECT],
)
@pytest.mark.parametrize("synced", [False, True])
def test_what_has_no_effect_is_refused(
    pipeline: New,
    create: str,
    settings: str,
    wanted: list[str],
    named: str,
    hint: str,
    synced: bool,
) -> None:
    it = pipeline({"t": settings})
    ask_once(it, create)
    if synced:
        columns = ", ".join(re.findall(r"(\w+) (?:INT|CHAR|DATETIME)", create))
        values = ", ".join("'2025-06-01'" if c == "update_at" else "1" for c in columns.split(", "))
        ask_once(it, f"INSERT INTO t ({columns}) VALUES ({values})")
        assert it.synced()["rows"] == 1
        if wanted is not BOTH:  # which column it is, and of what type, only the source can tell
            it = unreachable(it)
    said = refused(it, "set", *wanted, "--force")
    assert named in said
    assert f"hint: {hint}" in said


@pytest.mark.parametrize("wanted", [TIME, ID, BOTH])
def test_unchecked_facts_are_reported(pipeline: New, wanted: list[str]) -> None:
    it = unreachable(pipeline({"t": "{}"}))
    said = refused(it, "set", *wanted)
    assert "rows in between will be skipped; they could not be counted: MySQL at" in said
    ended = watermark(it, "set", *wanted, "--force")
    assert ended.code == 0
    assert "cursor and clock could not be checked: MySQL at" in ended.out


def test_a_reset_says_what_it_does_and_waits_for_force(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"}, settings="default_start: 2025-06-02")
    days(it)
    assert it.call("sync", "-p", "main").code == 0
    said = refused(it, "reset")
    for part in (
        "would be read again from 2025-06-02 00:00:00 (default); earlier rows are not read",
        "; 4 rows were read so far;",
        "rows in the target stay until they are replaced",
        "hint: add --force",
    ):
        assert part in said
    assert "4 rows in the lake would be loaded again" in refused(it, "reset", "--load-only")
    assert watermark(it, "reset", "--force").code == 0
    assert it.call("sync", "-p", "main", "--json").table["loaded_rows"] == 4
    said = refused(it, "restore", "--from", "1-1")
    assert "the next sync reads the rows after that position again" in said
    assert watermark(it, "restore", "--from", "1-1", "--force").code == 0
    assert it.call("sync", "-p", "main").code == 0
    assert it.call("watermark", "validate", "-t", f"{it.schema}.t").code == 0


def test_a_reset_of_a_table_without_a_key_says_that_it_is_emptied(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: update_at}"})
    ask_once(it, KEYLESS)
    ask_once(it, "INSERT INTO t VALUES (1, '2025-06-01'), (2, '2025-06-02')")
    assert it.call("sync", "-p", "main").code == 0
    assert "the next load empties the target table" in refused(it, "reset")
    assert "is emptied first" in refused(it, "reset", "--load-only")
    for back in (["reset", "--mysql-only"], ["set", *TIME[:1], "2025-06-01"]):
        assert "would be read again and loaded twice" in refused(it, *back)
