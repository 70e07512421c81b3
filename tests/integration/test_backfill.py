"""`floodmark backfill`: a range of rows is read again, and replaces what the target holds."""

from collections.abc import Callable, Sequence
from typing import Any

import duckdb
import pytest

import floodmark
from floodmark.model.extraction import Receipt, Window
from floodmark.worker.job import ExtractionJob
from hints import commands_in
from pipelines import DirectEngine, Ended, Pipeline, ask_once, numbers

pytestmark = pytest.mark.enough_on("mariadb")  # other tests read windows on both servers

New = Callable[..., Pipeline]

CURSOR = "{cursor: [update_at, id]}"
COLUMNS = "id INT PRIMARY KEY, v INT NOT NULL, update_at DATETIME NOT NULL"
INDEXED = f"{COLUMNS}, KEY by_change (update_at, id)"
SINCE = "default_start: 2025-06-02 00:00:00\n"
SMALL = "extraction: {window_rows: 5, windows_per_chunk: 1}\n"


def fill(it: Pipeline, columns: str = INDEXED) -> None:
    """Sixty rows, an hour apart: 36 of them before the start of most tests."""
    ask_once(it, f"CREATE TABLE t ({columns})")
    ask_once(
        it,
        "INSERT INTO t SELECT seq, seq, '2025-05-31 12:00:00' + INTERVAL seq - 1 HOUR FROM"
        f" {numbers(1, 60)}",
    )


def in_target(it: Pipeline, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(it.folder / "warehouse.duckdb")) as database:
        return database.execute(sql).fetchall()


def change(it: Pipeline, *ids: int) -> None:
    """Change rows so that no cursor sees it."""
    for one in ids:
        ask_once(it, f"UPDATE t SET v = -id, update_at = update_at WHERE id = {one}")


def changed(it: Pipeline) -> list[int]:
    return [row[0] for row in in_target(it, "SELECT id FROM t WHERE v < 0 ORDER BY id")]


def backfill(it: Pipeline, *arguments: str, **options: Any) -> Ended:
    return it.call("backfill", "-t", f"{it.schema}.t", "--json", *arguments, **options)


def said(ended: Ended) -> str:
    return " ".join(ended.err.split())


@pytest.fixture
def synced(pipeline: New) -> Pipeline:
    """24 rows since 2 June, synced; 36 before them."""
    it = pipeline({"t": CURSOR}, settings=SINCE)
    fill(it)
    assert it.call("sync", "-p", "main").code == 0
    assert in_target(it, "SELECT COUNT(*), MIN(id) FROM t") == [(24, 37)]
    return it


def test_only_the_range_is_replaced(synced: Pipeline) -> None:
    before = synced.watermark().position
    change(synced, 39, 40, 41, 42, 43)
    found = in_target(synced, "SELECT update_at FROM t WHERE id IN (40, 42) ORDER BY id")
    first, last = (str(row[0]) for row in found)
    planned = backfill(synced, "--from", first, "--to", last, "--dry-run")
    assert planned.code == 0, planned.err
    assert planned.table["backfill"]["rows"] == 3
    assert changed(synced) == []
    assert len(synced.manifests()) == 1
    ended = backfill(synced, "--from", first, "--to", last)
    assert ended.code == 0, ended.err
    assert (ended.table["rows"], ended.table["loaded_rows"]) == (3, 3)
    assert changed(synced) == [40, 41, 42]
    assert in_target(synced, "SELECT COUNT(*) FROM t") == [(24,)]
    assert synced.watermark().position == before
    assert synced.findings().differences == ()
    history = synced.call("watermark", "history", "-t", f"{synced.schema}.t")
    assert "backfill: rows after" in history.out


def test_rows_before_the_start_stay_after_a_reconciliation(synced: Pipeline) -> None:
    before = synced.watermark().mysql_state.before_start
    assert before is not None
    assert before.rows == 36
    ended = backfill(synced, "--from", "2025-06-01", "--to", "2025-06-02")
    assert ended.code == 0, ended.err
    assert ended.table["rows"] == 25  # the last of them was synced before
    assert in_target(synced, "SELECT COUNT(*), MIN(id) FROM t") == [(48, 13)]
    before = synced.watermark().mysql_state.before_start
    assert before is not None
    assert before.rows == 12
    # It is neither called deleted, nor left out: what is wrong with it is repaired.
    ask_once(synced, "DELETE FROM t WHERE id = 20")
    in_target(synced, "DELETE FROM t WHERE id = 21")
    reconciled = synced.call("reconcile", "-p", "main", "--deletes", "hard", "--json")
    assert reconciled.code == 0, reconciled.err
    found = reconciled.table["reconciliation"]
    assert ([one["key"] for one in found["deleted"]], found["missing"]) == ([[20]], [[21]])
    assert in_target(synced, "SELECT COUNT(*), MIN(id) FROM t") == [(47, 13)]
    assert synced.call("sync", "-p", "main", "--verify-data=all").code == 0


def test_everything_before_the_start(synced: Pipeline) -> None:
    assert backfill(synced, "--to", "2025-06-02").code == 0
    assert in_target(synced, "SELECT COUNT(*), MIN(id) FROM t") == [(60, 1)]
    assert synced.watermark().mysql_state.before_start is None


class Dying(DirectEngine):
    """Dies before its third chunk is read."""

    left = 2

    def extract(
        self, job: ExtractionJob, windows: Sequence[Window], progress: Callable[[int], None]
    ) -> list[Receipt]:
        """Read all windows of a chunk."""
        if type(self).left == 0:
            raise KeyboardInterrupt
        type(self).left -= 1
        return super().extract(job, windows, progress)


def test_the_same_command_continues_after_a_crash(
    synced: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("floodmark.planning.windows._FEWEST_ROWS", 1)
    monkeypatch.setattr(Dying, "left", 2)
    one_by_one = ["--from", "2025-05-31", "--to", "2025-06-02"]
    synced.write_config(SINCE + SMALL)
    died = backfill(synced, *one_by_one, engine=Dying)
    assert died.code == 130
    part = synced.watermark().mysql_state.backfill
    assert part is not None
    # Another range is another backfill.
    text = synced.call("backfill", "-t", f"{synced.schema}.t", *one_by_one, "--dry-run").out
    assert "read by an interrupted run, were not read again; '--restart' reads all" in text
    other = backfill(synced, "--from", "2025-06-01", "--dry-run")
    assert other.table["backfill"]["continued"] is None
    ended = backfill(synced, *one_by_one)
    assert ended.code == 0, ended.err
    done = ended.table["backfill"]
    assert done["continued"] is not None
    assert (0 < done["rows"] < 37, done["rows"] + done["earlier_rows"]) == (True, 37)
    assert in_target(synced, "SELECT COUNT(*), MIN(id) FROM t") == [(60, 1)]
    assert synced.watermark().mysql_state.backfill is None
    again = backfill(synced, *one_by_one)
    assert (again.table["rows"], again.table["backfill"]["continued"]) == (37, None)


@pytest.mark.parametrize("columns", [COLUMNS, INDEXED])
def test_an_id_cursor_and_no_index(pipeline: New, columns: str) -> None:
    cursor = "{cursor: id}" if columns == INDEXED else CURSOR
    it = pipeline({"t": cursor}, settings="default_start: all\n")
    fill(it, columns)
    assert it.call("sync", "-p", "main").code == 0
    change(it, 4, 5, 6, 7)
    values = ["5", "6"] if columns == INDEXED else ["2025-05-31 16:00:00", "2025-05-31 17:00:00"]
    ended = backfill(it, "--from", values[0], "--to", values[1])
    assert ended.code == 0, ended.err
    assert ended.table["rows"] == 2
    assert changed(it) == [5, 6]


@pytest.mark.follows_hint("or end the backfill earlier", "or start the backfill earlier")
def test_what_is_not_synced_yet_is_left_to_a_sync(synced: Pipeline) -> None:
    ask_once(synced, "INSERT INTO t VALUES (61, 61, '2025-06-05')")
    for arguments, why in (
        (["--from", "2025-06-02", "--to", "2025-06-04"], "the range ends after that"),
        (["--from", "2025-06-04"], "nothing to read again"),
    ):
        refused = backfill(synced, *arguments)
        assert (refused.code, why in refused.table["error"]) == (2, True), refused.table
    assert f"'floodmark sync -t PROD:{synced.schema}.t' reads what is new" in said(refused)
    assert synced.call("sync", "-t", f"PROD:{synced.schema}.t").code == 0
    assert backfill(synced, "--from", "2025-06-04").code == 0


@pytest.mark.follows_hint("' reads it")
def test_a_table_that_was_never_synced(pipeline: New) -> None:
    it = pipeline({"t": CURSOR})
    fill(it)
    refused = backfill(it, "--from", "2025-06-01")
    assert (refused.code, "nothing of it is synced yet" in refused.table["error"]) == (2, True)
    assert f"'floodmark sync -t PROD:{it.schema}.t' reads it" in said(refused)
    assert it.call("sync", "-t", f"PROD:{it.schema}.t").code == 0
    assert backfill(it, "--from", "2025-06-01").code == 0


@pytest.mark.follows_hint("and sync load all of it again; or add a primary key")
def test_a_table_without_a_key(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: update_at}"})
    fill(it, "id INT NOT NULL, v INT NOT NULL, update_at DATETIME NOT NULL, KEY (update_at)")
    assert it.call("sync", "-p", "main").code == 0
    change(it, 5)
    refused = backfill(it, "--from", "2025-06-01")
    assert (refused.code, "has no primary key" in refused.table["error"]) == (2, True)
    command, *_ = commands_in(refused.err)
    assert it.call(*command).code == 0
    assert it.call("sync", "-p", "main").code == 0
    assert changed(it) == [5]


@pytest.mark.follows_hint("' reads all of it again")
def test_a_table_that_every_sync_reads_in_full(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: none}"})
    fill(it)
    assert it.call("sync", "-p", "main").code == 0
    change(it, 5)
    refused = backfill(it, "--from", "2025-06-01")
    assert refused.code == 2
    assert f"'floodmark sync -t PROD:{it.schema}.t' reads all of it again" in said(refused)
    assert it.call("sync", "-t", f"PROD:{it.schema}.t").code == 0
    assert changed(it) == [5]


def test_from_python(synced: Pipeline) -> None:
    with floodmark.open_project(synced.config) as project:
        with pytest.raises(floodmark.UsageError, match="no range"):
            project.backfill(f"{synced.schema}.t")
        with pytest.raises(floodmark.UsageError, match="start must be"):
            project.backfill(f"{synced.schema}.t", start=1.5)  # type: ignore[arg-type]
        result = project.backfill(f"{synced.schema}.t", start="2025-06-02 12:00:00", dry_run=True)
    assert result.tables[0].backfill is not None
    assert result.tables[0].backfill.rows == 12
