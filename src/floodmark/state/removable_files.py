"""The data files of a table, and whether each may be removed."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct

from floodmark.model.lake_layout import UNLOADS, sequence_of_data_file
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Chunk, Manifest
from floodmark.model.watermark import Watermark
from floodmark.storage.objects import ObjectInfo

FileState = Literal["loaded", "pending", "orphan"]
Protection = Literal["not loaded", "perhaps being written", "not ours"]

# A paused run may still commit its files as long as its manifest number is free.
PATIENCE = timedelta(days=1)


class LakeFile(Struct, frozen=True, kw_only=True):
    """A data file in the lake.

    loaded    its rows are in the target, or no longer needed there
    pending   its rows are not yet in the target; or it is from before a reset and nothing was
              loaded since: a manual watermark may still select it
    orphan    not in any manifest: left by a run that did not finish, or being written now

    `protection` is the reason not to remove it without force.
    """

    path: str
    bytes: int
    modified: datetime
    state: FileState
    manifest: str | None = None
    rows: int | None = None
    protection: Protection | None = None


def describe_files(
    found: Iterable[ObjectInfo],
    manifests: Iterable[Manifest],
    watermark: Watermark | None,
    *,
    now: datetime,
) -> list[LakeFile]:
    """Return each file with its state and the manifest that contains it."""
    named = {
        file.path: (manifest.head, file.rows)
        for manifest in manifests
        if isinstance(manifest.change, Chunk)
        for file in manifest.change.all_files
    }
    files = []
    for info in found:
        head, rows = named.get(info.key, (None, None))
        state = _state(head, watermark)
        files.append(
            LakeFile(
                path=info.key,
                bytes=info.size,
                modified=info.modified,
                state=state,
                manifest=str(head) if head else None,
                rows=rows,
                protection=_protection(info, state, watermark, now),
            )
        )
    return files


def choose_removable(
    files: Iterable[LakeFile], *, older_than: datetime | None, force: bool
) -> tuple[list[LakeFile], list[LakeFile]]:
    """Split the files that are old enough into removable and protected ones."""
    old = [file for file in files if older_than is None or file.modified < older_than]
    removable = [file for file in old if force or not file.protection]
    protected = [file for file in old if not force and file.protection]
    return removable, protected


def _state(head: ManifestId | None, watermark: Watermark | None) -> FileState:
    if head is None:
        return "orphan"
    if watermark is None or watermark.still_to_load(head):
        return "pending"
    load = watermark.redshift_state
    left_behind = head.epoch < load.eligible_from_epoch
    return "pending" if left_behind and load.status != "success" else "loaded"


def _protection(
    info: ObjectInfo, state: FileState, watermark: Watermark | None, now: datetime
) -> Protection | None:
    if state != "orphan":
        return "not loaded" if state == "pending" else None
    if info.key.startswith(UNLOADS):  # left by a killed verification, or being written by one
        return None if now - info.modified > PATIENCE else "perhaps being written"
    sequence = sequence_of_data_file(info.key.rpartition("/")[2])
    if sequence is None:
        return "not ours"  # perhaps an older system's file whose rows are still needed
    taken = watermark is not None and sequence <= watermark.head.sequence
    if taken or now - info.modified > PATIENCE:
        return None
    return "perhaps being written"
