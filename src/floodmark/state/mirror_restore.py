"""Bring lost objects of a table back from the mirror.

Only objects that the lake lacks, or that fail their checksum, are written: manifests oldest first,
then the watermark. A crash leaves a part of the log without a watermark. The mirror still has
manifests that the lake lacks, so runs refuse the table until the rest is restored.
"""

from collections.abc import Collection

from msgspec import Struct, structs

from floodmark.errors import CorruptDocument, CorruptLog, MirrorConflict, StateError
from floodmark.model import lake_layout
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Manifest
from floodmark.model.table import TableName
from floodmark.model.watermark import Watermark
from floodmark.state.manifest_log import ManifestLog
from floodmark.state.mirror_copy import another_manifest, get, put_same, stored_watermark
from floodmark.storage.objects import ObjectStore
from floodmark.storage.threads import in_threads


class Lost(Struct, frozen=True, kw_only=True):
    """What the lake lacks of a table, and the mirror has.

    `manifests` are all of the table, from both places; `missing` are the ids of those that the
    lake lacks; `watermark` is the mirror's, if the lake has no usable one. `here` and `there` are
    the ids that were listed in the lake and in the mirror.
    """

    here: frozenset[ManifestId]
    there: frozenset[ManifestId]
    manifests: tuple[Manifest, ...]
    missing: tuple[ManifestId, ...] = ()
    watermark: Watermark | None = None


def find_lost(
    lake: ObjectStore, mirror: ObjectStore, table: TableName, known: Lost | None = None
) -> Lost:
    """Compare both places; MirrorConflict if they have different manifests under one number.

    CorruptLog if a manifest is damaged in both, or in the only place that has it. `known` is what
    was found before; manifests are not read again if both places still have the same.
    """
    ours, theirs = ManifestLog(lake), ManifestLog(mirror)
    here, there = frozenset(ours.heads(table)), frozenset(theirs.heads(table))
    if known is not None and (known.here, known.there) == (here, there):
        found = _lost_watermark(lake, mirror, table, here | there)
        return structs.replace(known, watermark=found)
    manifests, missing = [], []
    of_lake = _read_all(ours, table, here)
    of_mirror = _read_all(theirs, table, there)
    for head in sorted(here | there):
        mine = of_lake.get(head)
        if head not in there:
            manifests.append(mine or ours.read(table, head))
            continue
        kept = of_mirror[head]
        if kept is None:
            if mine is None:
                raise CorruptLog(
                    f"{mirror}/{lake_layout.manifest(table, head)} is damaged",
                    hint="restore it from an older version of the bucket, or from a backup",
                )
            kept = mine
        elif mine is None:
            missing.append(head)
        elif mine != kept:
            raise another_manifest(mirror, table, head)
        manifests.append(kept)
    return Lost(
        here=here,
        there=there,
        manifests=tuple(manifests),
        missing=tuple(missing),
        watermark=_lost_watermark(lake, mirror, table, here | there),
    )


def restore_lost(lake: ObjectStore, mirror: ObjectStore, table: TableName, lost: Lost) -> None:
    """Write what the lake lacks."""
    for head in lost.missing:  # one by one: after a crash, the lake has the first part of the log
        key = lake_layout.manifest(table, head)
        _restore(lake, mirror, key)
    if lost.watermark is not None:
        _restore(lake, mirror, lake_layout.primary(table))


def _restore(lake: ObjectStore, mirror: ObjectStore, key: str) -> None:
    data, found = mirror.get(key).data, get(lake, key)
    if found is not None and found.data != data:
        lake.put_if_match(key, data, found.etag)  # it fails its checksum
    if not put_same(lake, key, data):
        raise MirrorConflict(f"{lake}/{key} has changed", hint="run the command again")


def _read_all(
    log: ManifestLog, table: TableName, heads: Collection[ManifestId]
) -> dict[ManifestId, Manifest | None]:
    """Read manifests; None for a damaged one."""
    found = in_threads(lambda head: _readable(log, table, head), heads)
    return dict(zip(heads, found, strict=True))


def _readable(log: ManifestLog, table: TableName, head: ManifestId) -> Manifest | None:
    try:
        return log.read(table, head)
    except CorruptLog:
        return None


def _lost_watermark(
    lake: ObjectStore, mirror: ObjectStore, table: TableName, heads: Collection[ManifestId]
) -> Watermark | None:
    """Return the mirror's watermark, if it is usable and the lake has none."""
    key = lake_layout.primary(table)
    if _usable(lake, table, key, heads) is not None:
        return None
    return _usable(mirror, table, key, heads)


def _usable(
    objects: ObjectStore, table: TableName, key: str, heads: Collection[ManifestId]
) -> Watermark | None:
    found = get(objects, key)
    if found is None:
        return None
    try:
        watermark = stored_watermark(found.data, table)
    except (CorruptDocument, StateError):
        return None
    last = watermark.mysql_state.last_manifest
    return watermark if last is None or ManifestId.parse(last) in heads else None
