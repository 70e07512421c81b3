"""Decide, key by key, what differs between the rows of both sides."""

from collections import defaultdict
from collections.abc import Iterable

from msgspec import Struct

from floodmark.model.reconciliation import FoundKey, Key, Version


class KeyVersion(Struct, frozen=True):
    """A row of either side; `counts` if it is within the synced ranges.

    A row of the source is `later` if it is after the loaded position, so that a sync brings it.
    """

    key: Key
    version: Version
    counts: bool
    later: bool = False


class DifferingKeys(Struct, frozen=True, kw_only=True):
    """Keys that differ, by kind; those in `gone` are deleted if a look into the source agrees.

    Those in `moved_out` are stale, too: no sync brings their rows, whose versions are the source's.
    """

    gone: list[FoundKey] = []
    missing: list[Key] = []
    stale: list[Key] = []
    duplicate: list[Key] = []
    moved_out: list[FoundKey] = []


def differing_keys(target: Iterable[KeyVersion], source: Iterable[KeyVersion]) -> DifferingKeys:
    """Compare the rows of a slice of keys; the target's rows were read first.

    A row of the source that does not count changed after it was synced, so that a later sync brings
    it, or was never synced: it is no difference. But if the target has another version of it within
    the synced ranges, and no sync will ever bring it, it has moved out of them. A row of the target
    that does not count and has no counterpart is no difference: it was not loaded from there.
    """
    held = defaultdict(list)
    for row in target:
        held[row.key].append(row)
    found = DifferingKeys(gone=[], missing=[], stale=[], duplicate=[], moved_out=[])
    for row in source:
        copies = held.pop(row.key, [])
        if not row.counts:
            counted = not row.later and any(copy.counts for copy in copies)
            if counted and (len(copies) > 1 or copies[0].version != row.version):
                found.moved_out.append(FoundKey(row.key, row.version))
            continue
        if not copies:
            found.missing.append(row.key)
        elif len(copies) > 1:
            found.duplicate.append(row.key)
        elif copies[0].version != row.version:
            found.stale.append(row.key)
    for key, copies in held.items():
        if any(row.counts for row in copies):
            found.gone.append(FoundKey(key, _newest(copies)))
    return found


def _newest(copies: Iterable[KeyVersion]) -> Version:
    versions = [row.version for row in copies if row.version is not None]
    return max(versions, default=None)
