"""The system watermark: where tables without a watermark of their own start."""

from datetime import datetime

from msgspec import Struct

from floodmark.errors import CorruptDocument, LostRace, ObjectNotFound, UsageError, WriteConflict
from floodmark.model import lake_layout
from floodmark.model.checksummed_json import seal, unseal
from floodmark.model.timestamps import parse_timestamp, stamped
from floodmark.model.transitions import Authorship
from floodmark.model.watermark import position_in_future
from floodmark.storage.objects import ObjectStore

OLDER_KEY = "watermark/last_run_timestamp.txt"
_HINT = "set it again: floodmark watermark set PRESET --force"


class SystemWatermark(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The start of every table without a watermark of its own."""

    timestamp: datetime
    preset: str
    set_at: datetime | None
    author: str
    session_id: str
    revision: int = 1
    checksum: str = ""


def read_system_watermark(objects: ObjectStore, *, now: datetime) -> SystemWatermark | None:
    """Read the system watermark, or else an older system's; None if there is neither.

    CorruptDocument if it is damaged or in the future: every row would be skipped.
    """
    try:
        data = objects.get(lake_layout.SYSTEM).data
        system: SystemWatermark = unseal(data, SystemWatermark, name=lake_layout.SYSTEM)
    except ObjectNotFound:
        return _read_older(objects, now)
    except CorruptDocument as error:
        raise CorruptDocument(error.message, hint=_HINT) from error
    return _checked(system, lake_layout.SYSTEM, now)


def write_system_watermark(
    objects: ObjectStore, timestamp: datetime, preset: str, by: Authorship
) -> SystemWatermark:
    """Set the system watermark; LostRace if another process sets it at the same time."""
    try:
        found = objects.get(lake_layout.SYSTEM)
        etag: str | None = found.etag
        current: SystemWatermark = unseal(found.data, SystemWatermark, name=lake_layout.SYSTEM)
        revision = current.revision + 1
    except ObjectNotFound:
        etag, revision = None, 1
    except CorruptDocument:
        revision = 1
    system = SystemWatermark(
        timestamp=timestamp,
        preset=preset,
        set_at=by.now,
        author=by.author,
        session_id=by.session_id,
        revision=revision,
    )
    try:
        if etag is None:
            objects.put_if_absent(lake_layout.SYSTEM, seal(system))
        else:
            objects.put_if_match(lake_layout.SYSTEM, seal(system), etag)
    except WriteConflict as error:
        raise LostRace("another process has just set the system watermark") from error
    return system


def _read_older(objects: ObjectStore, now: datetime) -> SystemWatermark | None:
    try:
        text = objects.get(OLDER_KEY).data.decode(errors="replace").strip()
        timestamp = parse_timestamp(text)
    except ObjectNotFound:
        return None
    except UsageError as error:
        raise CorruptDocument(f"{OLDER_KEY}: {error.message}", hint=_HINT) from error
    system = SystemWatermark(
        timestamp=timestamp, preset="", set_at=None, author=OLDER_KEY, session_id=""
    )
    return _checked(system, OLDER_KEY, now)


def _checked(system: SystemWatermark, key: str, now: datetime) -> SystemWatermark:
    if position_in_future(system.timestamp, now):
        raise CorruptDocument(f"{key} is in the future: {stamped(system.timestamp)}", hint=_HINT)
    return system
