"""Probe a lake once: it must refuse conditional writes whose condition does not hold.

Everything rests on that: two runs that commit under one number must not both succeed. A store that
ignores the condition would let them, in silence. The result is kept in the lake.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

import msgspec
from msgspec import Struct

from floodmark.errors import ObjectNotFound, StorageError, WriteConflict
from floodmark.model import lake_layout
from floodmark.storage.objects import ObjectStore


class Probed(Struct, frozen=True, kw_only=True):
    """That a lake was found to honour conditional writes: which, when, and by whom."""

    lake: str
    at: datetime
    by: str


def check_conditional_writes(
    objects: ObjectStore, clock: Callable[[], datetime], author: str
) -> None:
    """Raise StorageError unless the lake honours conditional writes; ask it only the first time."""
    with suppress(ObjectNotFound, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        known = msgspec.json.decode(objects.get(lake_layout.PROBED).data, type=Probed)
        if known.lake == str(objects):
            return
    probe_conditional_writes(objects)
    found = Probed(lake=str(objects), at=clock(), by=author)
    objects.put(lake_layout.PROBED, msgspec.json.encode(found))


def probe_conditional_writes(objects: ObjectStore) -> None:
    """Write a probe; StorageError if the lake overwrites what it must not."""
    key = f"{lake_layout.LEASES}probe-{os.urandom(8).hex()}.json"
    try:
        objects.put_if_absent(key, b"1")
        if _accepts(lambda: objects.put_if_absent(key, b"2")):
            raise _broken(objects, "If-None-Match")
        etag = objects.get(key).etag
        objects.put_if_match(key, b"3", etag)
        if _accepts(lambda: objects.put_if_match(key, b"4", etag)):
            raise _broken(objects, "If-Match")
    finally:
        with suppress(StorageError):
            objects.delete(key)


def _broken(objects: ObjectStore, condition: str) -> StorageError:
    return StorageError(
        f"{objects} ignores {condition}: two runs at once could overwrite each other's commits",
        hint="use an object store that checks If-Match and If-None-Match",
    )


def _accepts(write: Callable[[], str]) -> bool:
    try:
        write()
    except WriteConflict:
        return False
    return True
