"""Check once per lake that it rejects conditional writes whose condition is false.

Every guarantee depends on it: if two runs commit under the same number, one must fail. A store that
ignores the condition silently accepts both. The result of the check is kept in the lake.
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
    """Record that a lake enforces conditional writes: which lake, tested when and by whom."""

    lake: str
    at: datetime
    by: str


def check_conditional_writes(
    objects: ObjectStore, clock: Callable[[], datetime], author: str
) -> None:
    """Raise StorageError unless the lake enforces conditional writes; test it only once."""
    with suppress(ObjectNotFound, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        known = msgspec.json.decode(objects.get(lake_layout.PROBED).data, type=Probed)
        if known.lake == str(objects):
            return
    probe_conditional_writes(objects)
    probed = Probed(lake=str(objects), at=clock(), by=author)
    objects.put(lake_layout.PROBED, msgspec.json.encode(probed))


def probe_conditional_writes(objects: ObjectStore) -> None:
    """Write a test object; raise StorageError if a conditional write overwrites it."""
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
        f"{objects} ignores {condition}: concurrent runs could overwrite each other's commits",
        hint="use an object store that checks If-Match and If-None-Match",
    )


def _accepts(write: Callable[[], str]) -> bool:
    try:
        write()
    except WriteConflict:
        return False
    return True
