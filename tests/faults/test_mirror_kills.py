"""A run is killed at every step of its mirror: the mirror is never ahead, and is caught up."""

import signal
from pathlib import Path

import processes
from floodmark.model import lake_layout
from floodmark.model.log_state import ManifestId
from floodmark.model.timestamps import utc_now
from floodmark.state.manifest_log import ManifestLog
from floodmark.state.mirror import Mirror
from floodmark.state.mirror_copy import get, stored_watermark
from floodmark.state.mirrored_store import MirroredObjectStore
from floodmark.storage.objects import ObjectStore
from processes import Doom, DoomedObjectStore
from scenarios import TABLE, Lake, land, open_store, snapshot

LONG = 30.0


def run_with(lake: Lake, mirror: ObjectStore, name: str, *, rows: int) -> None:
    """A run that commits a chunk, if there are rows, and copies it to the mirror."""
    copying = Mirror(lake.open(), lambda: mirror, address="there", clock=utc_now, wait_seconds=LONG)
    store = open_store(MirroredObjectStore(lake.open(), copying))
    with store.lease(TABLE):
        store.get(TABLE)
        if rows:
            land(store, rows=rows, name=name)
            land(store, rows=rows, name=f"{name}, more")
    notices: list[object] = []
    copying.drain(notices.append)
    assert notices == []


def killed(lake: Lake, mirror: Lake, step: int) -> None:
    run_with(lake, DoomedObjectStore(mirror.open(), Doom(step, "after")), str(step), rows=3)


def state(objects: ObjectStore) -> dict[str, bytes]:
    kept = ("manifests/", "watermarks/v2/")
    return {key: data for key, data in snapshot(objects).items() if key.startswith(kept)}


def check_not_ahead(lake: ObjectStore, mirror: ObjectStore) -> None:
    """The mirror's log begins the lake's, and its watermark names one of its manifests."""
    here, there = (list(ManifestLog(place).heads(TABLE)) for place in (lake, mirror))
    assert there == here[: len(there)]
    if (found := get(mirror, lake_layout.primary(TABLE))) is not None:
        last = stored_watermark(found.data, TABLE).mysql_state.last_manifest
        assert last is None or ManifestId.parse(last) in there


def test_a_run_is_killed_at_every_step_of_its_mirror(tmp_path: Path) -> None:
    lake, mirror = (Lake(folder=str(tmp_path / name)) for name in ("lake", "mirror"))
    ended = 0
    for step in range(1, 60):
        process = processes.start(killed, lake, mirror, step)
        process.join(60)
        assert process.exitcode in (0, -signal.SIGKILL)
        check_not_ahead(lake.open(), mirror.open())
        # The next run finds nothing new, and copies what is left.
        run_with(lake, mirror.open(), "", rows=0)
        assert state(mirror.open()) == state(lake.open())
        # How many steps there are depends on how often the thread looks for more.
        ended = ended + 1 if process.exitcode == 0 else 0
        if ended == 3:
            break
    assert ended == 3, "every step was tried, and then none was left"
