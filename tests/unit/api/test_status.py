"""The state of every table, judged from the lake alone."""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

import floodmark
from floodmark.api.status import STATES, TableStatus
from floodmark.api.status_metrics import measure_status
from floodmark.cli.main import run
from floodmark.errors import UsageError
from floodmark.model import lake_layout
from floodmark.model.checksummed_json import seal
from floodmark.model.failure import Failure
from floodmark.model.load_transitions import loaded
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Reset, Set
from floodmark.model.position import START, Position
from floodmark.model.table import TableName
from floodmark.model.timestamps import utc_now
from floodmark.model.transitions import extract_failed, extract_started
from floodmark.model.verification_transitions import differs, verified
from floodmark.state.lease import LeaseDocument, read_lease, record_failure
from floodmark.state.watermark_store import WatermarkStore
from scenarios import TABLE, Lake, chunk_after, open_store, snapshot, write_config

OTHER = TableName("US_PROD", "shop", "payments")
HOUR = timedelta(hours=1)
NOW = utc_now()

Step = Callable[[WatermarkStore], object]


class Table:
    """A table of a lake, and what runs do with it."""

    def __init__(self, folder: Path) -> None:
        self.lake = Lake(folder=str(folder / "lake"))
        self.config = write_config(folder, self.lake)
        self.folder = folder

    @property
    def store(self) -> WatermarkStore:
        return open_store(self.lake.open())

    def configure(self, behind_hours: float) -> None:
        path = Path(self.config)
        text = path.read_text().replace(
            "    target: warehouse\n", f"    target: warehouse\n    behind_hours: {behind_hours}\n"
        )
        path.write_text(text)

    def extract(self, rows: int = 10, *, fresh: datetime | None = None, every: float = 0) -> None:
        """A run that reads rows, and everything up to now."""
        store = self.store
        with store.lease(TABLE, "extract") as lease:
            if rows:
                store.commit(TABLE, lambda now: chunk_after(now, rows, "file"))
            lease.note_in_step(fresh)
            lease.note_held(None)
            lease.note_interval(every or None)

    def load(self) -> None:
        """A run that loads everything."""
        store = self.store
        with store.lease(TABLE, "load") as lease:
            store.update(
                TABLE,
                lambda w: loaded(
                    w,
                    through=w.head,
                    total_rows=w.mysql_state.total_rows,
                    session_rows=0,
                    now=store.now(),
                ),
            )
            lease.note_loaded()

    def fail(self, error: str = "no route to host") -> None:
        """A run that fails before it has the lease."""
        now = utc_now()
        failure = Failure(stage="extract", error=error, since=now, at=now, session_id="failed")
        record_failure(self.lake.open(), TABLE, failure, owner="me@here", began=now)

    def status(self, table: TableName = TABLE) -> TableStatus:
        """Its status, which reading must not change."""
        before = snapshot(self.lake.open())
        with floodmark.open_project(self.config, environment={}) as project:
            found = {status.table: status for status in project.status()}
        assert snapshot(self.lake.open()) == before
        return found[table]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


def test_a_table_that_no_run_has_seen_was_never_synced(table: Table) -> None:
    found = table.status()
    assert (found.state, found.fresh, found.since, found.error) == ("never synced",) + (None,) * 3
    assert found.older_than(HOUR, utc_now())
    table.extract(rows=0)  # it is empty
    assert table.status().state == "in step"


def test_in_step_is_what_is_loaded_and_fresh(table: Table) -> None:
    table.extract()
    read = table.status()
    assert (read.state, read.fresh) == ("behind", None)
    assert read.read_fresh
    assert read.reason == "rows in the lake are not loaded yet"
    table.load()
    found = table.status()
    assert (found.state, found.reason, found.rows_today) == ("in step", None, 10)
    assert found.fresh == read.read_fresh
    assert not found.older_than(HOUR, utc_now())
    assert found.older_than(timedelta(0), utc_now())
    # What is read and not loaded does not count as fresh in the warehouse.
    table.extract()
    later = table.status()
    assert (later.state, later.fresh, later.rows_today) == ("behind", found.fresh, 20)
    assert later.read_fresh
    assert later.read_fresh > found.fresh


def test_behind_is_older_than_the_interval_or_the_setting_allows(table: Table) -> None:
    table.extract(fresh=utc_now() - 23 * HOUR)
    table.load()
    assert table.status().state == "in step"
    table.extract(rows=0, fresh=utc_now() - HOUR, every=600)
    found = table.status()
    assert (found.state, found.reason) == ("behind", "no complete run for 1 hour")
    assert found.behind_after == timedelta(minutes=30)
    assert found.fresh
    assert found.since == found.fresh + found.behind_after
    table.configure(behind_hours=2)
    assert table.status().state == "in step"
    table.extract(rows=0, fresh=utc_now() - 3 * HOUR)
    assert table.status().behind_after == 2 * HOUR
    assert table.status().state == "behind"


def test_a_time_in_the_future_says_nothing_about_freshness(table: Table) -> None:
    """A run on a machine whose clock was wrong must not keep a table in step for years."""
    table.extract()
    table.load()
    wrong = open_store(table.lake.open(), clock=lambda: utc_now() + 48 * HOUR)
    with wrong.lease(TABLE, "extract") as lease:
        lease.note_in_step()
    found = table.status()
    assert found.state == "behind"
    assert "in the future: a clock is or was wrong" in str(found.reason)
    assert found.older_than(HOUR, utc_now())
    table.extract(rows=0)
    assert table.status().state == "in step"


def test_a_failure_is_worse_than_anything_until_success(table: Table) -> None:
    table.extract()
    table.load()
    table.store.update(TABLE, lambda w: differs(w, START, "1 row", since=w.head, now=utc_now()))
    assert (table.status().state, table.status().error) == ("differs", "1 row")
    table.fail()
    found = table.status()
    assert (found.state, found.error) == ("failing", "no route to host")
    assert found.reason == "extract failed: no route to host"
    assert found.since == found.failures[0].since
    assert found.watermark
    assert found.watermark.position.id == 10
    table.extract(rows=0)
    assert table.status().state == "differs"
    table.store.update(TABLE, lambda w: verified(w, START, through=w.head, now=utc_now()))
    assert table.status().state == "in step"
    assert table.status().verified


def test_a_table_that_fails_before_its_first_sync_is_failing(table: Table) -> None:
    table.fail("access denied")
    assert (table.status().state, table.status().error) == ("failing", "access denied")
    assert table.store.get(TABLE) is None


@pytest.mark.parametrize(
    ("step", "state", "reason"),
    [
        (lambda s: s.commit(TABLE, lambda _: Reset(stages=("extract", "load"))), "behind", "moved"),
        (lambda s: s.commit(TABLE, lambda _: Set(position=Position(id=3))), "behind", "moved"),
        (lambda s: s.commit(TABLE, lambda _: Reset(stages=("load",))), "behind", "not loaded"),
        (lambda s: s.update(TABLE, extract_started), "behind", "did not finish"),
    ],
)
def test_what_an_operator_or_a_crash_leaves_is_behind(
    table: Table, step: Step, state: str, reason: str
) -> None:
    table.extract()
    table.load()
    step(table.store)
    found = table.status()
    assert found.state == state
    assert reason in str(found.reason)
    if found.watermark and found.watermark.mysql_state.chunk_count == 0:
        assert found.fresh is None


def test_held_back_and_running_are_seen(table: Table) -> None:
    table.extract()
    table.load()
    store = table.store
    with store.lease(TABLE, "extract") as lease:
        lease.note_held("an open transaction")
        running = table.status()
        assert running.state == "in step"
        assert running.running
    found = table.status()
    assert (found.state, found.reason, found.running) == ("held back", "an open transaction", None)
    assert found.since


def test_failures_that_an_older_version_recorded_are_seen(table: Table) -> None:
    table.extract()
    table.load()
    table.store.update(TABLE, lambda w: extract_failed(w, "gone"))
    objects = table.lake.open()
    lease = read_lease(objects, TABLE)
    assert lease
    old = structs.replace(lease, succeeded_at=None, loaded_fresh=None)
    objects.put(lake_layout.lease(TABLE), seal(old))
    assert (table.status().state, table.status().error) == ("failing", "extract failed: gone")


def test_state_that_cannot_be_read_is_failing(table: Table) -> None:
    table.extract()
    objects = table.lake.open()
    for info in list(objects.list_objects("watermarks/")):
        objects.put(info.key, b"junk")
    objects.delete(lake_layout.manifest(TABLE, ManifestId(1, 1)))
    found = table.status()
    assert found.state == "failing"
    assert "no usable copy" in str(found.error)


def test_the_worst_comes_first_and_unconfigured_tables_last(table: Table) -> None:
    gone = TableName("US_PROD", "shop", "gone")
    table.store.commit(gone, lambda now: chunk_after(now, 5, "file"))
    table.extract()
    table.load()
    now = utc_now()
    failure = Failure(stage="load", error="broken", since=now, at=now, session_id="s")
    record_failure(table.lake.open(), OTHER, failure, owner="me@here", began=now)
    with floodmark.open_project(table.config, environment={}) as project:
        found = project.status()
        assert [(s.table, s.pipeline is None) for s in found] == [
            (OTHER, False),
            (TABLE, False),
            (gone, True),
        ]
        assert not found[-1].older_than(timedelta(0), utc_now())
        assert [s.table for s in project.status("shop.orders")] == [TABLE]
        assert len(project.status(pipelines="shop_pipeline")) == 2
        with pytest.raises(UsageError, match="unknown pipeline 'nosuch'"):
            project.status(pipelines="nosuch")
    assert STATES[0] == "failing"
    assert STATES[-1] == "in step"


def test_alerts_of_a_table_end_when_it_is_no_longer_configured(
    table: Table, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = TableName("US_PROD", "shop", "gone")
    table.extract()
    table.load()
    table.store.commit(gone, lambda now: chunk_after(now, 5, "file"))
    table.store.update(gone, lambda w: differs(w, START, "", since=ManifestId(1, 0), now=NOW))
    failure = Failure(stage="load", error="broken", since=NOW, at=NOW, session_id="s")
    record_failure(table.lake.open(), gone, failure, owner="me@here", began=NOW)
    with floodmark.open_project(table.config, environment={}) as project:
        metrics = measure_status(project.status(), utc_now()).write(0.0)
    assert f'floodmark_failing_seconds{{table="{TABLE}"}} 0.0' in metrics
    assert str(gone) not in metrics
    assert "floodmark_unconfigured_tables 1" in metrics
    assert run(["status", "--config", table.config]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "3 tables: 1 never synced, 1 in step, 1 not configured"


def test_a_table_that_was_never_loaded_has_no_time_of_its_load(table: Table) -> None:
    """What `FloodmarkTableNeverLoaded` fires on."""
    table.extract()
    for stages in (["extract"], ["extract", "load"]):
        with floodmark.open_project(table.config, environment={}) as project:
            metrics = measure_status(project.status(), utc_now()).write(0.0)
        family = "floodmark_fresh_timestamp_seconds{"
        fresh = [line for line in metrics.splitlines() if line.startswith(family)]
        assert [line.split('"')[3] for line in fresh] == stages
        table.load()


def test_a_table_that_fails_in_the_same_way_was_tried_now(table: Table) -> None:
    """Else `FloodmarkRunOverdue` fires while the only table fails every hour."""
    objects, clock = table.lake.open(), utc_now()
    for hours in (5, 4, 3, 0):
        now = clock - hours * HOUR
        failure = Failure(stage="load", error="broken", since=now, at=now, session_id=f"s{hours}")
        record_failure(objects, TABLE, failure, owner="me@here", began=now)
    found = table.status()
    (failure,) = found.failures
    assert (failure.at, found.last_run) == (clock - 5 * HOUR, clock)
    lease = read_lease(objects, TABLE)
    assert lease is not None
    older = msgspec.to_builtins(lease)
    del older["last_tried_at"]
    assert msgspec.convert(older, LeaseDocument) == structs.replace(lease, last_tried_at=None)
