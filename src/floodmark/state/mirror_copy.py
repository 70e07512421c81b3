"""Copy the state of tables to the mirror, verified; never data files.

A table is copied in this order: read the mirror's watermark and its ETag → read the lake's
watermark → list the lake's log → copy the manifests that the mirror lacks, oldest first → write the
watermark if the mirror's still has that ETag. So the mirror's watermark never names a manifest that
the mirror lacks, and an older watermark never replaces a newer one, even with several processes.

A crash leaves the mirror's manifests a prefix of the lake's, and its watermark at one of them. The
next copy continues after the mirror's last manifest.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from uuid import uuid4

from msgspec import Struct

from floodmark.errors import MirrorConflict, ObjectNotFound, StorageError, WriteConflict
from floodmark.model import lake_layout
from floodmark.model.checksummed_json import seal, unseal
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Manifest
from floodmark.model.table import TableName
from floodmark.model.timestamps import LAST_MOMENT
from floodmark.model.watermark import Watermark, decode_watermark
from floodmark.state.manifest_log import ManifestLog
from floodmark.storage.objects import ObjectStore, StoredObject

TRIES = 5


class LakeIdentity(Struct, frozen=True, kw_only=True):
    """Identifies a lake wherever it is; created when it is first mirrored."""

    id: str
    created_at: datetime
    checksum: str = ""


class MirrorIdentity(Struct, frozen=True, kw_only=True):
    """The lake that a mirror belongs to; `lake` is its address when the mirror was created."""

    id: str
    lake: str
    created_at: datetime
    checksum: str = ""


def join(lake: ObjectStore, mirror: ObjectStore, clock: Callable[[], datetime]) -> None:
    """Make an empty place the mirror of a lake; MirrorConflict if it is another lake's."""
    ours, theirs = read_identity(lake), read_mirror_identity(mirror)
    if theirs is not None and ours is None and _has_same_log(lake, mirror):
        ours = LakeIdentity(id=theirs.id, created_at=clock())  # only the marker is lost
        with suppress(WriteConflict):
            lake.put_if_absent(lake_layout.LAKE, seal(ours))
    if theirs is not None and ours is None:
        raise MirrorConflict(
            f"{mirror} is the mirror of a lake that was at {theirs.lake}; {lake} has none of its"
            " state",
            hint="if the lake was lost, run 'floodmark recover --from-mirror'; if not, set"
            " 'mirror:' to a place of its own",
        )
    if theirs is not None and ours is not None:
        check_same(lake, mirror, ours, theirs)
        return None
    folders = [
        folder
        for folder in ("incremental", "manifests", "watermarks")
        if next(mirror.list_objects(f"{folder}/"), None) is not None
    ]
    if folders and read_mirror_identity(mirror) is not None:
        return join(lake, mirror, clock)  # another run has just begun to mirror
    if folders:
        raise MirrorConflict(
            f"{mirror} is not empty, and not a mirror: it has {folders[0]}/",
            hint="set 'mirror:' to an empty place",
        )
    if ours is None:
        ours = LakeIdentity(id=uuid4().hex, created_at=clock())
        try:
            lake.put_if_absent(lake_layout.LAKE, seal(ours))
        except WriteConflict:
            return join(lake, mirror, clock)
    marker = MirrorIdentity(id=ours.id, lake=str(lake), created_at=clock())
    try:
        mirror.put_if_absent(lake_layout.MIRROR, seal(marker))
    except WriteConflict:
        return join(lake, mirror, clock)


def check_same(
    lake: ObjectStore, mirror: ObjectStore, ours: LakeIdentity, theirs: MirrorIdentity
) -> None:
    """Raise MirrorConflict if a mirror belongs to another lake."""
    if ours.id != theirs.id:
        raise MirrorConflict(
            f"{mirror} is the mirror of another lake ({theirs.lake}), not of {lake}",
            hint="set 'mirror:' to a place of its own",
        )


def read_identity(lake: ObjectStore) -> LakeIdentity | None:
    """Read the identity of a lake; None if it has none."""
    found = get(lake, lake_layout.LAKE)
    return unseal(found.data, LakeIdentity, name=lake_layout.LAKE) if found else None


def read_mirror_identity(mirror: ObjectStore) -> MirrorIdentity | None:
    """Read which lake a mirror belongs to; None if the place is not a mirror."""
    found = get(mirror, lake_layout.MIRROR)
    return unseal(found.data, MirrorIdentity, name=f"{mirror}/mirror.json") if found else None


def copy_table(
    lake: ObjectStore, mirror: ObjectStore, table: TableName, copied: ManifestId | None = None
) -> ManifestId | None:
    """Copy what the mirror lacks of a table; return its last manifest, if it has any.

    `copied` is a manifest up to which both are known to be equal. MirrorConflict if they differ.
    """
    key = lake_layout.primary(table)
    for _ in range(TRIES):
        before, current = get(mirror, key), get(lake, key)
        same = before is not None and current is not None and before.data == current.data
        # The same watermark has the same log up to its last manifest.
        known = last_manifest(before, table) if same else None
        since = copied or known or last_common(lake, mirror, table, before)
        copied = _copy_log(lake, mirror, table, since)
        if current is None or same:
            return copied
        decode_watermark(current.data, table, name=key, now=LAST_MOMENT)  # never copy damage
        try:
            if before is None:
                mirror.put_if_absent(key, current.data)
            else:
                mirror.put_if_match(key, current.data, before.etag)
        except WriteConflict:
            continue  # another run copied it, perhaps a newer one
        if mirror.get(key).data == current.data:
            return copied
    raise StorageError(f"{mirror}/{key} keeps changing", hint="the next run copies it")


def is_copied(lake: ObjectStore, mirror: ObjectStore, table: TableName) -> bool:
    """Return whether the mirror has a table's watermark, and the lake no manifest after it."""
    key = lake_layout.primary(table)
    theirs, ours = get(mirror, key), get(lake, key)
    if theirs is None or ours is None or theirs.data != ours.data:
        return False
    known = last_manifest(theirs, table)
    return list(ManifestLog(lake).heads(table, since=known)) == ([known] if known else [])


def last_common(
    lake: ObjectStore, mirror: ObjectStore, table: TableName, primary: StoredObject | None
) -> ManifestId | None:
    """Return the mirror's last manifest; MirrorConflict unless the lake has the same one."""
    known = last_manifest(primary, table)
    last = max(ManifestLog(mirror).heads(table, since=known), default=known)
    if last is None:
        return None
    key = lake_layout.manifest(table, last)
    ours, theirs = get(lake, key), get(mirror, key)
    if ours is None or theirs is None:
        where, lacking = (mirror, lake) if ours is None else (lake, mirror)
        raise _lacking(where, lacking, table, last)
    if ours.data != theirs.data:
        raise another_manifest(mirror, table, last)
    return last


def last_manifest(primary: StoredObject | None, table: TableName) -> ManifestId | None:
    """Return the last manifest that a stored watermark names."""
    if primary is None:
        return None
    watermark = stored_watermark(primary.data, table)
    known = watermark.mysql_state.last_manifest
    return ManifestId.parse(known) if known else None


def stored_watermark(data: bytes, table: TableName) -> Watermark:
    """Decode a watermark, whatever its time."""
    return decode_watermark(data, table, name=lake_layout.primary(table), now=LAST_MOMENT)


def another_manifest(mirror: ObjectStore, table: TableName, head: ManifestId) -> MirrorConflict:
    """Return the error for two manifests with one number."""
    return MirrorConflict(
        f"{mirror} has another manifest {head} of {table} than the lake: one of them was restored"
        " from an older state, and then changed",
        hint="keep both; decide which one is right, and set 'mirror:' to an empty place if it is"
        " the lake's",
    )


def copy_object(lake: ObjectStore, mirror: ObjectStore, key: str) -> None:
    """Copy an object as it is now; an older version never replaces a newer one."""
    for _ in range(TRIES):
        before, current = get(mirror, key), get(lake, key)
        if current is None or (before is not None and before.data == current.data):
            return
        with suppress(WriteConflict):
            if before is None:
                mirror.put_if_absent(key, current.data)
            else:
                mirror.put_if_match(key, current.data, before.etag)
            if mirror.get(key).data == current.data:
                return
    raise StorageError(f"{mirror}/{key} keeps changing", hint="the next run copies it")


def copy_folder(lake: ObjectStore, mirror: ObjectStore, folder: str) -> list[str]:
    """Copy the immutable objects of a folder that the mirror lacks; return their keys."""
    there = {info.key for info in mirror.list_objects(folder)}
    missing = [info.key for info in lake.list_objects(folder) if info.key not in there]
    for key in missing:
        copy_object(lake, mirror, key)
    return missing


def get(objects: ObjectStore, key: str) -> StoredObject | None:
    """Read an object; None if there is none."""
    try:
        return objects.get(key)
    except ObjectNotFound:
        return None


def put_same(objects: ObjectStore, key: str, data: bytes) -> bool:
    """Write an object unless it exists; return whether it now has exactly this content."""
    with suppress(WriteConflict):
        objects.put_if_absent(key, data)
    return objects.get(key).data == data


def _copy_log(
    lake: ObjectStore, mirror: ObjectStore, table: TableName, since: ManifestId | None
) -> ManifestId | None:
    heads = list(ManifestLog(lake).heads(table, since=since))
    if since is not None and heads[:1] != [since]:
        raise _lacking(mirror, lake, table, since)
    for head in heads:
        if head == since:
            continue
        key = lake_layout.manifest(table, head)
        data = lake.get(key).data
        unseal(data, Manifest, name=key)  # never copy damage
        if not put_same(mirror, key, data):
            raise another_manifest(mirror, table, head)
        since = head
    return since


def _lacking(
    where: ObjectStore, lacking: ObjectStore, table: TableName, head: ManifestId
) -> MirrorConflict:
    return MirrorConflict(
        f"{where} has manifest {head} of {table}, and {lacking} does not",
        hint="see what was lost: 'floodmark recover --from-mirror --dry-run'",
    )


def _has_same_log(lake: ObjectStore, mirror: ObjectStore) -> bool:
    """Return whether the lake has the last manifest of a table in the mirror."""
    for table in ManifestLog(mirror).tables():
        last = max(ManifestLog(mirror).heads(table), default=None)
        if last is not None:
            key = lake_layout.manifest(table, last)
            ours = get(lake, key)
            return ours is not None and ours.data == mirror.get(key).data
    return False
