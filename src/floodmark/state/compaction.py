"""Compactions: many manifests of a log in one object, so that a long log is read quickly.

A compaction holds `SIZE` consecutive manifests of one epoch: the first ones, the next ones and so
on. It is named after the last of them. It follows from the manifests alone: they stay, and stay the
truth. The commit that completes such a range writes it, and every 25th commit another one if any is
missing: never more than one, since its table waits for it.

    append the manifest, save the watermark      a crash leaves a log without this compaction
    read the manifests of the range              the same
    put the compaction if absent                 done; two writers write the same

A compaction is used only if its checksum is right, its manifests are complete, and the last of them
is the one in the log: one that is damaged, or is left from a log that was removed, is ignored by
readers and replaced by the commit that completes it. Releases that do not know compactions ignore
them, as their folder is not the log's.
"""

import zlib
from hashlib import sha256
from threading import Lock

import msgspec
from msgspec import Struct

from floodmark.model import lake_layout
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Manifest
from floodmark.model.table import TableName
from floodmark.storage.objects import ObjectStore

SIZE = 250
"""How many manifests make a compaction, and at most so many are read one by one."""

_MOST_BYTES = 1_000_000_000
_DECODING = Lock()


class Compaction(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Consecutive manifests of a log, and the size of each one's object."""

    table_name: str
    manifests: tuple[Manifest, ...]
    sizes: tuple[int, ...]

    @property
    def last(self) -> Manifest:
        """The last of the manifests."""
        return self.manifests[-1]


def covered(last: ManifestId) -> list[ManifestId]:
    """Return the manifests that a compaction with this last one holds."""
    first = last.sequence - SIZE + 1
    return [ManifestId(last.epoch, number) for number in range(first, last.sequence + 1)]


def is_due(head: ManifestId) -> bool:
    """Whether the commit of a manifest writes a compaction, if one is missing."""
    return head.sequence >= SIZE and head.sequence % max(1, SIZE // 10) == 0


def completes(head: ManifestId) -> bool:
    """Whether a manifest is the last of a compaction."""
    return head.sequence > 0 and head.sequence % SIZE == 0


def names(objects: ObjectStore, table: TableName) -> list[ManifestId]:
    """List the compactions of a table, in order, by their last manifests."""
    folder = lake_layout.compactions(table)
    keys = (info.key for info in objects.list_objects(folder))
    found = (lake_layout.head_of_compaction(key, table) for key in keys)
    return [head for head in found if head is not None and completes(head)]


def encode(compaction: Compaction) -> bytes:
    """Encode a compaction: its checksum in a line, then JSON, compressed."""
    body = msgspec.json.encode(compaction)
    return zlib.compress(sha256(body).hexdigest().encode() + b"\n" + body)


def decode(data: bytes, table: TableName, last: ManifestId) -> Compaction | None:
    """Decode a compaction; None if it is damaged, or is not that of these manifests."""
    try:
        reader = zlib.decompressobj()
        plain = reader.decompress(data, _MOST_BYTES)
        checksum, _, body = plain.partition(b"\n")
        if not reader.eof or sha256(body).hexdigest().encode() != checksum:
            return None
        with _DECODING:  # msgspec crashes if several threads meet a new type
            found = msgspec.json.decode(body, type=Compaction)
    except (zlib.error, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    complete = [manifest.head for manifest in found.manifests] == covered(last)
    own = all(manifest.table_name == str(table) for manifest in found.manifests)
    if found.table_name != str(table) or not own or not complete:
        return None
    return found if len(found.sizes) == len(found.manifests) else None
