"""The data files of a table, and whether each may be removed."""

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

from msgspec import Struct

from floodmark.model.manifest import Chunk, Manifest
from floodmark.model.standing import Head
from floodmark.model.watermark import Watermark
from floodmark.storage.objects import ObjectInfo

FileState = Literal["loaded", "pending", "orphan"]


class LakeFile(Struct, frozen=True, kw_only=True):
    """A file that lies in the lake.

    loaded    its rows are in the target, or no longer wanted there
    pending   its rows are not yet in the target
    orphan    no manifest names it: left by a run that did not finish, or written right now
    """

    path: str
    bytes: int
    modified: datetime
    state: FileState
    manifest: str | None = None
    rows: int | None = None


def describe_files(
    found: Iterable[ObjectInfo], manifests: Iterable[Manifest], watermark: Watermark | None
) -> list[LakeFile]:
    """Say of each file found what it belongs to."""
    named = {
        file.path: (manifest.head, file.rows)
        for manifest in manifests
        if isinstance(manifest.change, Chunk)
        for file in manifest.change.files
    }
    files = []
    for info in found:
        head, rows = named.get(info.key, (None, None))
        files.append(
            LakeFile(
                path=info.key,
                bytes=info.size,
                modified=info.modified,
                state=_state(head, watermark),
                manifest=str(head) if head else None,
                rows=rows,
            )
        )
    return files


def choose_removable(
    files: Iterable[LakeFile], *, older_than: datetime | None, force: bool
) -> tuple[list[LakeFile], list[LakeFile]]:
    """Split the files that are old enough into those to remove and those that are protected."""
    old = [file for file in files if older_than is None or file.modified < older_than]
    removable = [file for file in old if force or file.state != "pending"]
    protected = [file for file in old if not force and file.state == "pending"]
    return removable, protected


def _state(head: Head | None, watermark: Watermark | None) -> FileState:
    if head is None:
        return "orphan"
    return "pending" if watermark is None or watermark.still_to_load(head) else "loaded"
