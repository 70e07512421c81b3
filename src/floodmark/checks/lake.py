"""Check the lake: write access, conditional writes, and its clock."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta

from floodmark.checks.check import Check, check_clock, failed
from floodmark.errors import FloodmarkError
from floodmark.model import lake_layout
from floodmark.state.conditional_writes import probe_conditional_writes
from floodmark.storage.objects import ObjectStore

_SUBJECT = "lake"
_SECOND = timedelta(seconds=1)  # the precision of S3 listings


def check_lake(objects: ObjectStore, clock: Callable[[], datetime]) -> Iterator[Check]:
    """Write a probe object, and check that the store honors conditional writes."""
    key = f"{lake_layout.LEASES}probe-{os.urandom(4).hex()}.json"
    try:
        probe_conditional_writes(objects)
        yield Check(subject=_SUBJECT, finding=f"{objects}: writable, honors conditional writes")
        before = clock()
        objects.put(key, b"time")
        after = clock()
        found = objects.list_objects(lake_layout.LEASES, after=key.removesuffix("n"))
        written = next((info.modified for info in found if info.key == key), None)
        if written is not None:
            yield check_clock(_SUBJECT, written, before - _SECOND, after)
    except FloodmarkError as error:
        yield failed(_SUBJECT, error)
    finally:
        with suppress(FloodmarkError):
            objects.delete(key)
