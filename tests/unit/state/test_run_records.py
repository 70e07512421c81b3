"""Records of runs: newest first, found by the beginning of their id, pruned by age."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec import structs

from floodmark.errors import UsageError
from floodmark.model import lake_layout
from floodmark.model.run import new_session_id
from floodmark.model.run_record import RunRecord, TableRun
from floodmark.state.process_identity import this_process
from floodmark.state.run_records import SILENCE, RunRecords
from floodmark.storage.memory import MemoryObjectStore

NOW = datetime(2025, 8, 20, 12, tzinfo=UTC)


def record(minutes_ago: int = 0, **changes: Any) -> RunRecord:
    began = NOW - timedelta(minutes=minutes_ago)
    made = RunRecord(
        run_id=new_session_id(began, f"{minutes_ago:06d}"),
        command="sync",
        started_at=began,
        seen_at=began,
        status="success",
    )
    return structs.replace(made, **changes)


def records(*saved: RunRecord) -> RunRecords:
    found = RunRecords(MemoryObjectStore(), lambda: NOW)
    for one in saved:
        found.save(one)
    return found


def test_records_come_newest_first_and_end_where_asked() -> None:
    day = 24 * 60
    ages = [5, 0, 3 * day, day, 30, 2 * day]
    found = records(*map(record, ages))
    assert [one.run_id for one in found.newest()] == [record(age).run_id for age in sorted(ages)]
    since = NOW - timedelta(minutes=day)
    assert len(list(found.newest(since=since))) == 4


def test_a_record_is_found_by_the_beginning_of_its_id() -> None:
    one, two = record(0), record(1)
    found = records(one, two)
    assert found.get(one.run_id) == one
    assert found.get(two.run_id[:15]) == two
    for wrong in (one.run_id[:10], "20250820_999999", "2025", "../../x", "", "20250820/../x"):
        with pytest.raises(UsageError, match="run"):
            found.get(wrong)


def test_records_are_pruned_by_day() -> None:
    day = 24 * 60
    found = records(*(record(age * day) for age in range(6)))
    assert found.prune(keep_days=3) == 2
    assert len(list(found.newest())) == 4
    assert found.prune(keep_days=3) == 0


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, "running"),
        ({"process": this_process()}, "running"),
        ({"process": f"{this_process().rpartition(':')[0]}:1"}, "did not finish"),
        ({"seen_at": NOW - SILENCE - timedelta(seconds=1)}, "did not finish"),
        ({"process": "elsewhere/ns/1:1"}, "running"),
    ],
)
def test_a_run_that_was_killed_did_not_finish(changes: dict[str, Any], status: str) -> None:
    (found,) = records(record(status="running", **changes)).newest()
    assert found.status == status
    assert found.failed == (status != "running")


def test_what_cannot_be_read_is_left_out() -> None:
    objects = MemoryObjectStore()
    found = RunRecords(objects, lambda: NOW)
    found.save(record(1))
    naive = {**msgspec.to_builtins(record(2)), "seen_at": "2025-08-20T00:00:00"}
    for name, data in (
        (f"{record(3).run_id}.json", b"{"),
        (f"{record(2).run_id}.json", msgspec.json.encode(naive)),
        ("junk", b"\xff"),
    ):
        objects.put(f"{lake_layout.runs_of_day('20250820')}{name}", data)
    objects.put(f"{lake_layout.RUNS}junk/junk.json", b"")
    assert [one.run_id for one in found.newest()] == [record(1).run_id]
    with pytest.raises(UsageError, match="no readable record"):
        found.get(record(3).run_id)


def test_a_later_version_may_add_keys() -> None:
    objects = MemoryObjectStore()
    known = record(tables=(TableRun(table_name="P:s.t", rows=3),), unchanged={"P:s.u": NOW})
    objects.put(
        lake_layout.run_record(known.run_id),
        msgspec.json.encode({**msgspec.to_builtins(known), "later": 1}),
    )
    (found,) = RunRecords(objects, lambda: NOW).newest()
    assert found == known
    assert found.rows == 3
    unchanged = found.of("P:s.u")
    assert unchanged
    assert (unchanged.fresh, unchanged.status) == (NOW, "success")
    assert unchanged.loaded_fresh is None  # an earlier version did not record it
    assert found.of("P:s.other") is None
