"""The append-only log of manifests."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from itertools import islice, takewhile

from floodmark.errors import (
    CorruptDocument,
    CorruptLog,
    IllegalTransition,
    ObjectNotFound,
    StorageError,
    WriteConflict,
)
from floodmark.model import lake_layout
from floodmark.model.checksummed_json import seal, unseal
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Chunk, Manifest
from floodmark.model.table import TableName
from floodmark.state import compaction
from floodmark.state.compaction import Compaction
from floodmark.storage.objects import ObjectInfo, ObjectStore, is_key

# Types become part of statements in the target.
_ARROW = re.compile(
    r"bool|int16|int32|int64|float32|float64|string|binary|date32|timestamp\[us(, UTC)?\]"
    r"|decimal128\(\d{1,2}, ?\d{1,2}\)"
)


Wanted = Callable[[ManifestId], bool]


class ManifestLog:
    """Every table's manifests, in the order of epoch and sequence.

    `manifests` reads so many of those that are not compacted `at_once`, before they are needed.
    """

    def __init__(self, objects: ObjectStore, *, at_once: int = 1) -> None:
        self._objects = objects
        self._at_once = at_once

    def append(self, table: TableName, manifest: Manifest) -> None:
        """Commit a manifest and read it back; WriteConflict if its number is taken."""
        if problem := _problem(manifest):  # nobody could read it
            raise IllegalTransition(f"the next manifest of {table} {problem}")
        key, data = lake_layout.manifest(table, manifest.head), seal(manifest)
        self._objects.put_if_absent(key, data)
        if self._objects.get(key).data != data:
            raise StorageError(
                f"{self._objects} returned another manifest {manifest.head} of {table} than was"
                " written",
                hint="run 'floodmark doctor' to check that the lake enforces conditional writes",
            )

    def read(self, table: TableName, head: ManifestId) -> Manifest:
        """Read one manifest; CorruptLog if it is missing or damaged."""
        key = lake_layout.manifest(table, head)
        hint = "restore the original object, or see 'watermark validate'"
        try:
            found = self._objects.get(key)
            manifest: Manifest = unseal(found.data, Manifest, name=f"manifest {key}")
        except ObjectNotFound as error:
            raise CorruptLog(f"manifest {head} of {table} is missing", hint=hint) from error
        except CorruptDocument as error:
            raise CorruptLog(error.message, hint=hint) from error
        if manifest.table_name != str(table) or manifest.head != head:
            raise CorruptLog(
                f"manifest {key} contains {manifest.head} of {manifest.table_name}", hint=hint
            )
        if problem := _problem(manifest):
            raise CorruptLog(f"manifest {key} {problem}", hint=hint)
        return manifest

    def heads(self, table: TableName, *, since: ManifestId | None = None) -> Iterator[ManifestId]:
        """List a table's manifest ids in order; with `since`, from that one on (inclusive)."""
        return (head for head, _ in self.objects(table, since=since))

    def objects(
        self, table: TableName, *, since: ManifestId | None = None
    ) -> Iterator[tuple[ManifestId, ObjectInfo]]:
        """List the same ids, each with the size and time of its object."""
        after = lake_layout.manifest(table, since).removesuffix(".json") if since else ""
        for info in self._objects.list_objects(lake_layout.manifests(table), after=after):
            head = lake_layout.head_of_manifest(info.key, table)
            if head is not None:
                yield head, info

    def manifests(
        self,
        table: TableName,
        *,
        since: ManifestId | None = None,
        after: ManifestId | None = None,
        through: ManifestId | None = None,
        newest_first: bool = False,
    ) -> Iterator[Manifest]:
        """Read a table's manifests in order: from `since` on, or after `after`, up to `through`."""

        def wanted(head: ManifestId) -> bool:
            return (after is None or head > after) and (through is None or head <= through)

        return self._walk(table, since or after, wanted, newest_first=newest_first)

    def newest(self, table: TableName, *, since: ManifestId | None = None) -> ManifestId | None:
        """Return the id of the last manifest, not before `since`; None if there is none."""
        few = list(islice(self.heads(table, since=since), compaction.SIZE))
        if len(few) == compaction.SIZE:
            known = [last for last in compaction.names(self._objects, table) if last > few[-1]]
            for last in (*reversed(known), few[-1]):  # a removed log may have left compactions
                if (found := max(self.heads(table, since=last), default=None)) is not None:
                    return found
        return few[-1] if few else None

    def compact(self, table: TableName, head: ManifestId) -> ManifestId | None:
        """Write the compaction that a manifest completes, or else the newest that is missing.

        Return its name; None if there is none to write.
        """
        there = set(compaction.names(self._objects, table))
        for sequence in range(head.sequence, 0, -1):
            last = ManifestId(head.epoch, sequence)
            missing = compaction.completes(last) and (last == head or last not in there)
            if missing and self._compact(table, last):
                return last
        return None

    def compaction_times(self, table: TableName) -> dict[ManifestId, datetime]:
        """Return when each compaction was written."""
        infos = self._objects.list_objects(lake_layout.compactions(table))
        found = ((lake_layout.head_of_compaction(info.key, table), info) for info in infos)
        return {last: info.modified for last, info in found if last is not None}

    def compacted(self, table: TableName, last: ManifestId) -> Compaction | None:
        """Read the compaction that ends with a manifest; None if there is none that can be used."""
        try:
            data = self._objects.get(lake_layout.compaction(table, last)).data
        except ObjectNotFound:
            return None
        found = compaction.decode(data, table, last)
        if found is None or any(map(_problem, found.manifests)):
            return None
        try:
            return found if self.read(table, last) == found.last else None
        except CorruptLog:
            return None

    def _compact(self, table: TableName, last: ManifestId) -> bool:
        """Write a compaction, unless there is one that can be used; return whether it is new."""
        if self.compacted(table, last) is not None:
            return False
        heads = compaction.covered(last)
        listed = self.objects(table, since=heads[0])
        sizes = {head: info.size for head, info in islice(listed, len(heads))}
        found = Compaction(
            table_name=str(table),
            manifests=tuple(self.read(table, head) for head in heads),
            sizes=tuple(sizes[head] for head in heads),
        )
        key, data = lake_layout.compaction(table, last), compaction.encode(found)
        try:
            self._objects.put_if_absent(key, data)
        except WriteConflict:  # damaged, or left from a log that was removed
            self._objects.put(key, data)
        return True

    def _walk(
        self, table: TableName, since: ManifestId | None, wanted: Wanted, *, newest_first: bool
    ) -> Iterator[Manifest]:
        """Read the wanted manifests from `since` on, long logs by their compactions."""
        heads = self.heads(table, since=since)
        few = list(islice(heads, compaction.SIZE))
        if len(few) < compaction.SIZE:
            yield from self._each(table, filter(wanted, few[::-1] if newest_first else few))
            return
        lasts = [
            last
            for last in compaction.names(self._objects, table)
            if compaction.covered(last)[0] >= few[0] and any(map(wanted, compaction.covered(last)))
        ]
        for manifests in self._pieces(table, few[0], lasts, wanted, newest_first=newest_first):
            yield from manifests

    def _pieces(
        self,
        table: TableName,
        first: ManifestId,
        lasts: list[ManifestId],
        wanted: Wanted,
        *,
        newest_first: bool,
    ) -> Iterator[Iterator[Manifest]]:
        """Yield the manifests from `first` on, compaction by compaction, and those between them."""
        begins = [first, *(last.next for last in lasts)]
        ends = [*(compaction.covered(last)[0] for last in lasts), None]
        places = range(len(begins))
        for place in reversed(places) if newest_first else places:
            pieces = [self._between(table, begins[place], ends[place], wanted, newest_first)]
            if place > 0:
                pieces.insert(0, self._whole(table, lasts[place - 1], wanted, newest_first))
            yield from reversed(pieces) if newest_first else pieces

    def _whole(
        self, table: TableName, last: ManifestId, wanted: Wanted, newest_first: bool
    ) -> Iterator[Manifest]:
        """Read the manifests of a compaction, one by one if it cannot be used."""
        found = self.compacted(table, last)
        if found is not None:
            manifests = found.manifests[::-1] if newest_first else found.manifests
            yield from (manifest for manifest in manifests if wanted(manifest.head))
        else:
            first = compaction.covered(last)[0]
            yield from self._between(table, first, last.next, wanted, newest_first)

    def _between(
        self,
        table: TableName,
        begin: ManifestId,
        end: ManifestId | None,
        wanted: Wanted,
        newest_first: bool,
    ) -> Iterator[Manifest]:
        """Read the wanted manifests from `begin` on, before `end`."""
        if end is not None and begin >= end:
            return
        heads = self.heads(table, since=begin)
        within = filter(wanted, takewhile(lambda head: end is None or head < end, heads))
        yield from self._each(table, reversed(list(within)) if newest_first else within)

    def _each(self, table: TableName, heads: Iterable[ManifestId]) -> Iterator[Manifest]:
        heads = iter(heads)
        if self._at_once == 1:
            yield from (self.read(table, head) for head in heads)
            return
        with ThreadPoolExecutor(max_workers=self._at_once) as pool:
            while some := list(islice(heads, self._at_once)):
                yield from pool.map(partial(self.read, table), some)

    def chunks(
        self,
        table: TableName,
        *,
        since: ManifestId | None = None,
        after: ManifestId | None = None,
        through: ManifestId | None = None,
        newest_first: bool = False,
    ) -> Iterator[Chunk]:
        """Read the chunks among the same manifests."""
        for manifest in self.manifests(
            table, since=since, after=after, through=through, newest_first=newest_first
        ):
            if isinstance(manifest.change, Chunk):
                yield manifest.change

    def is_empty(self, table: TableName) -> bool:
        """Whether a table has no manifest."""
        return next(self.heads(table), None) is None

    def outrun(self, places: Mapping[TableName, ManifestId]) -> set[TableName]:
        """Return the tables whose log continues after the given manifest, using one listing.

        The listing runs from the first table's manifest to the end of the last table's log.
        """
        folders = {lake_layout.manifests(table): table for table in places}
        first, last = min(folders), max(folders)
        found = set()
        for info in self._objects.list_objects(
            first if first == last else lake_layout.MANIFESTS,
            after=lake_layout.manifest(folders[first], places[folders[first]]),
        ):
            folder = lake_layout.folder_of_manifest(info.key)
            if folder > last:
                break
            table = folders.get(folder)
            head = lake_layout.head_of_manifest(info.key, table) if table else None
            if table and head and head > places[table]:
                found.add(table)
        return found

    def tables(self) -> list[TableName]:
        """List every table that has a log."""
        keys = (
            f"{scope}/{name}"
            for scope in self._objects.list_folders(lake_layout.MANIFESTS)
            for name in self._objects.list_folders(f"{lake_layout.MANIFESTS}{scope}/")
        )
        return [table for key in keys if (table := lake_layout.table_of_key(key))]


def _problem(manifest: Manifest) -> str | None:
    """Return what is invalid in a manifest, such as a path that is not a data file; None if OK."""
    change = manifest.change
    if not isinstance(change, Chunk):
        return None
    for files, may_be in (
        (change.files, lake_layout.may_be_data),
        (change.quarantine, lake_layout.may_be_quarantined),
        (change.deletes, lake_layout.may_be_deletes),
    ):
        for path in (path for file in files for path in (file.path, file.origin)):
            if path is not None and not (is_key(path) and may_be(path)):
                return f"names {path!r}, which is not a data file of this lake"
    for column in change.columns:
        if _ARROW.fullmatch(column.arrow) is None:
            return f"gives column {column.name!r} the unknown type {column.arrow!r}"
    return _reconciliation_problem(change)


def _reconciliation_problem(chunk: Chunk) -> str | None:
    if (found := chunk.reconciled) is None:
        return None
    if not chunk.primary_key or chunk.reload or chunk.adopted or chunk.start != chunk.end:
        return "reconciles rows without a key, or moves the position"
    if found.deleted != sum(file.rows for file in found.deletes):
        return f"lists {found.deleted} deleted keys, but its files have another number of rows"
    names = {column.name.lower() for column in chunk.columns}
    if found.deleted_at is not None and found.deleted_at.lower() in names:
        return f"marks deleted rows in {found.deleted_at!r}, which is a column of the source"
    return None
