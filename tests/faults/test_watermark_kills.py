"""A process is killed at every step of every change; readers see the old or the new state."""

import signal
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from msgspec import structs

import processes
from floodmark.model.checksummed_json import seal
from floodmark.model.load_transitions import loaded
from floodmark.model.log_state import ManifestId
from floodmark.model.position import Position
from floodmark.model.timestamps import utc_now
from floodmark.model.transitions import extract_failed, extract_started
from floodmark.model.watermark import Watermark, empty_watermark
from floodmark.state import operator_changes
from floodmark.state.lake_validation import validate
from floodmark.state.watermark_store import WatermarkStore
from processes import Doom, DoomedObjectStore
from scenarios import TABLE, Lake, land, new_lake, open_store, snapshot, use_test_keys

OLDER = b'{"mysql_state": {"last_id": 77}, "backup_strategy": "manual_cli"}'


def set_position(store: WatermarkStore) -> None:
    operator_changes.set_position(store, TABLE, Position(id=5))


def commit(store: WatermarkStore) -> None:
    with store.lease(TABLE) as lease:
        lease.check()
        land(store, rows=7, name="third")


def first_commit(store: WatermarkStore) -> None:
    with store.lease(TABLE):
        store.update(TABLE, extract_started)
        land(store, rows=7, name="very first")


def reset(store: WatermarkStore) -> None:
    operator_changes.reset(store, TABLE, ["extract", "load"])


def reset_load(store: WatermarkStore) -> None:
    operator_changes.reset(store, TABLE, ["load"])


def restore(store: WatermarkStore) -> None:
    operator_changes.prepare_restore(store, TABLE, ManifestId(1, 1)).commit()


def restore_document(store: WatermarkStore) -> None:
    first = open_store(store.objects).log.read(TABLE, ManifestId(1, 1))
    current = store.get(TABLE)
    assert current is not None
    earlier = replace_standing(current, first.standing.mysql_state.last_id)
    operator_changes.prepare_restore_document(store, TABLE, seal(earlier), name="file").commit()


def note_load(store: WatermarkStore) -> None:
    store.update(
        TABLE,
        lambda now: loaded(now, through=now.head, total_rows=30, session_rows=20, now=utc_now()),
    )


def note_failure(store: WatermarkStore) -> None:
    store.update(TABLE, lambda now: extract_failed(now, "the server has gone away"))


def adopt(store: WatermarkStore) -> None:
    store.get(TABLE)


CHANGES: dict[str, Callable[[WatermarkStore], None]] = {
    "set": set_position,
    "commit": commit,
    "first commit": first_commit,
    "reset": reset,
    "reset load": reset_load,
    "restore": restore,
    "restore document": restore_document,
    "load": note_load,
    "failure": note_failure,
    "adopt": adopt,
}


def replace_standing(watermark: Watermark, last_id: object) -> Watermark:
    state = structs.replace(watermark.mysql_state, last_id=last_id)
    return structs.replace(watermark, mysql_state=state)


def prepare(lake: Lake, change: str) -> None:
    """Two chunks, of which the first is loaded; or what an older system left."""
    objects = lake.open()
    if change == "first commit":
        return
    if change == "adopt":
        objects.put("watermarks/v2/US_PROD:shop.orders.json", OLDER)
        return
    store = open_store(objects, session="20250801_000000_before")
    land(store, rows=10, name="first")
    first = ManifestId(1, 1)
    store.update(
        TABLE,
        lambda now: loaded(now, through=first, total_rows=10, session_rows=10, now=utc_now()),
    )
    land(store, rows=20, name="second")


def started() -> Watermark:
    """A table whose first extraction has begun."""
    return extract_started(empty_watermark(TABLE, "", utc_now()))


def facts(watermark: Watermark | None) -> object:
    """What of a watermark does not depend on the time of day."""
    if watermark is None:
        return None
    extract, load = watermark.mysql_state, watermark.redshift_state
    return (
        watermark.head,
        watermark.position,
        (extract.status, extract.error, extract.total_rows, extract.s3_file_count),
        (extract.chunk_count, extract.counted_from_epoch, extract.last_session_rows),
        (watermark.backup_strategy, watermark.metadata.manual_watermark),
        (watermark.loaded_head, load.status, load.total_rows, load.load_epoch),
        load.eligible_from_epoch,
    )


def change_and_die(lake: Lake, change: str, step: int, moment: str, within: str) -> None:
    """Make a change, but be killed at a step of it."""
    doom = Doom(step, moment)
    objects = lake.open()
    if within == "calls to the system":
        processes.doom_local_steps(doom)
    else:
        objects = DoomedObjectStore(objects, doom)
    CHANGES[change](open_store(objects, session="20250801_000001_doomed"))


def later() -> datetime:
    """Leases of the dead have run out, but no clock is so wrong as to be refused."""
    return utc_now() + timedelta(minutes=2)


def look_after_the_kill(lake: Lake) -> tuple[object, object]:
    """What the first reader finds, and what the second finds after the first has repaired."""
    looked = open_store(lake.open(), clock=later).get(TABLE, write_back=False)
    repaired = open_store(lake.open(), clock=later).get(TABLE)
    return facts(looked), facts(repaired)


def go_on(lake: Lake) -> None:
    """The next run works, and everything agrees afterwards."""
    store = open_store(lake.open(), clock=later)
    before = store.get(TABLE)
    with store.lease(TABLE):
        after = land(store, rows=3, name="next")
    rows = before.mysql_state.total_rows if before else 0
    assert after.mysql_state.total_rows == rows + 3
    assert open_store(lake.open(), clock=later).get(TABLE) == after
    assert validate(store, TABLE).differences == ()


def kill_everywhere(
    change: str, template: Lake, copy: Callable[[int], Lake], *, moment: str, within: str
) -> tuple[int, set[object]]:
    """Kill the change at its first step, its second, and so on until it gets through."""
    untouched = copy(0)
    old = facts(open_store(untouched.open()).get(TABLE, write_back=False))
    CHANGES[change](open_store(untouched.open()))
    new = facts(open_store(untouched.open()).get(TABLE))
    assert old != new or change == "adopt"
    stopovers = [facts(started())] if change == "first commit" else []
    seen: set[object] = set()
    for step in range(1, 1000):
        lake = copy(step)
        process = processes.start(change_and_die, lake, change, step, moment, within)
        process.join(timeout=30)
        looked, repaired = look_after_the_kill(lake)
        place = f"killed {moment} step {step}"
        if change == "adopt":
            # Who looks without repairing would adopt what is there, and so sees the new state.
            assert looked == new, place
            assert repaired == new, place
        else:
            assert looked in (old, new, *stopovers), place
            assert repaired == looked, place
        seen.add(looked)
        go_on(lake)
        if process.exitcode == 0:
            assert looked == new
            return step - 1, seen
        assert process.exitcode == -signal.SIGKILL, place
    raise AssertionError("the change never ended")


def copier(template: Lake) -> Callable[[int], Lake]:
    """Make fresh lakes with the objects of a template."""
    content = snapshot(template.open())

    def copy(step: int) -> Lake:
        if template.folder is not None:
            lake = replace(template, folder=f"{template.folder}-{step}")
        else:
            lake = replace(template, prefix=f"{template.prefix}-{step}")
        objects = lake.open()
        for key, data in content.items():
            objects.put(key, data)
        return lake

    return copy


@pytest.mark.parametrize(
    ("change", "moment"),
    [("commit", "after"), ("reset", "after"), *((change, "before") for change in CHANGES)],
)
def test_killed_around_any_operation(tmp_path: Path, change: str, moment: str) -> None:
    template = Lake(folder=str(tmp_path / "lake"))
    prepare(template, change)
    steps, seen = kill_everywhere(
        change, template, copier(template), moment=moment, within="operations"
    )
    assert steps > 5
    states = {"adopt": 1, "first commit": 3}.get(change, 2)
    assert len(seen) == states, "killed too late or too early to matter"


@pytest.mark.parametrize("change", ["commit", "first commit", "reset", "restore"])
def test_killed_within_any_operation_of_a_local_folder(tmp_path: Path, change: str) -> None:
    template = Lake(folder=str(tmp_path / "lake"))
    prepare(template, change)
    steps, _ = kill_everywhere(
        change, template, copier(template), moment="before", within="calls to the system"
    )
    assert steps > 30


@pytest.mark.parametrize("change", ["commit", "reset"])
def test_killed_around_any_operation_on_s3(
    tmp_path: Path,
    change: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_test_keys(monkeypatch)
    template = new_lake("ministack", request, tmp_path)
    prepare(template, change)
    steps, seen = kill_everywhere(
        change, template, copier(template), moment="after", within="operations"
    )
    assert steps > 5
    assert len(seen) == 2
