"""Scratch space for drills, apart from the state: a copy of a table's state, to be damaged.

A drill writes a marker first, then its copies, and removes the marker last. A thread renews the
marker. So scratch without a marker, of a dead process, or with a marker older than an hour, was
left by a drill that was killed; the next drill removes it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from itertools import islice
from threading import Event, Thread

import msgspec
from msgspec import Struct

from floodmark.errors import StorageError
from floodmark.model import lake_layout
from floodmark.model.table import TableName
from floodmark.model.timestamps import LAST_MOMENT
from floodmark.state.manifest_log import ManifestLog
from floodmark.state.mirror_copy import get
from floodmark.state.process_identity import is_dead, this_process
from floodmark.state.watermark_copies import Copies
from floodmark.storage.objects import ObjectStore
from floodmark.storage.prefixed import PrefixedObjectStore
from floodmark.storage.threads import in_threads

OLD = timedelta(hours=1)
RENEWAL = OLD / 6
_MARKER = "drill.json"
_SESSIONS = 2  # newest session copies that are rehearsed with


class _Marker(Struct, frozen=True, kw_only=True):
    process: str
    at: datetime


@contextmanager
def scratch_space(
    lake: ObjectStore, session_id: str, clock: Callable[[], datetime]
) -> Iterator[ObjectStore]:
    """Provide an empty place in the lake, and remove it afterwards, with what dead drills left."""
    remove_old_scratch(lake, clock())
    place = PrefixedObjectStore(lake, f"{lake_layout.DRILLS}{session_id}/")
    ended = Event()

    def mark() -> None:
        place.put(_MARKER, msgspec.json.encode(_Marker(process=this_process(), at=clock())))

    def renew() -> None:
        while not ended.wait(RENEWAL.total_seconds()):
            with suppress(StorageError):
                mark()

    mark()
    renewing = Thread(target=renew, name="drill marker", daemon=True)
    renewing.start()
    try:
        yield place
    finally:
        ended.set()
        renewing.join()
        with suppress(StorageError):  # the next drill removes it
            _remove(place)


def remove_old_scratch(lake: ObjectStore, now: datetime) -> None:
    """Remove what drills left that were killed."""
    for folder in lake.list_folders(lake_layout.DRILLS):
        place = PrefixedObjectStore(lake, f"{lake_layout.DRILLS}{folder}/")
        if _is_old(place, now):
            _remove(place)


def read_state(lake: ObjectStore, table: TableName) -> dict[str, bytes]:
    """Read every object of a table's state: manifests, watermark and copies."""
    copies = Copies(lake, lambda: LAST_MOMENT, lambda _notice: None)
    keys = [lake_layout.manifest(table, head) for head in ManifestLog(lake).heads(table)]
    keys += [lake_layout.primary(table), *copies.daily_keys(table)]
    sessions = reversed(lake.list_folders(lake_layout.SESSIONS))
    objects = in_threads(lambda key: get(lake, key), keys)
    found = {key: stored.data for key, stored in zip(keys, objects, strict=True) if stored}
    held = ((key, get(lake, key)) for s in sessions if (key := lake_layout.session(table, s)))
    kept = ((key, stored.data) for key, stored in held if stored)
    return found | dict(islice(kept, _SESSIONS))


def _is_old(place: ObjectStore, now: datetime) -> bool:
    found = get(place, _MARKER)
    if found is None:
        return True
    try:
        marker = msgspec.json.decode(found.data, type=_Marker)
    except msgspec.MsgspecError:
        return True
    return is_dead(marker.process) or now - marker.at > OLD


def _remove(place: ObjectStore) -> None:
    keys = [info.key for info in place.list_objects("") if info.key != _MARKER]
    in_threads(place.delete, keys)
    place.delete(_MARKER)
