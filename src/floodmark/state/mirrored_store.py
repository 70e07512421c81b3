"""The lake with a mirror: every write of state is also copied there.

Reads notice a watermark that the mirror may lack, so that a run copies what an earlier one left. A
table that the lake does not know, but the mirror does, was lost with the lake: it is refused, for
otherwise it would be read from the start under numbers that the ledger has already.
"""

from collections.abc import Iterator
from datetime import datetime

from floodmark.errors import ObjectNotFound, StateLost, StorageError
from floodmark.model import lake_layout
from floodmark.model.table import TableName
from floodmark.state.manifest_log import ManifestLog
from floodmark.state.mirror import Mirror
from floodmark.state.mirror_copy import get, last_manifest
from floodmark.storage.objects import ObjectInfo, ObjectStore, StoredObject


class MirroredObjectStore(ObjectStore):
    """Another store, the lake, whose state is mirrored."""

    def __init__(self, lake: ObjectStore, mirror: Mirror) -> None:
        self.lake = lake
        self.mirror = mirror
        self._seen: dict[str, str] = {}
        self._is_written = False
        self._known: set[TableName] = set()

    def get(self, key: str) -> StoredObject:
        """Read an object; StateLost if only the mirror has the state of its table."""
        table = _table_of_primary(key)
        try:
            found = self.lake.get(key)
        except ObjectNotFound:
            if table is not None and table not in self._known:
                self._refuse_lost(table)
                self._known.add(table)
            raise
        if table is not None and self._seen.get(key) != found.etag:
            self._seen[key] = found.etag
            if self._is_written:
                self.mirror.check(table)
        return found

    def put(self, key: str, data: bytes) -> str:
        """Write an object, overwriting any other."""
        return self._written(key, self.lake.put(key, data))

    def put_if_absent(self, key: str, data: bytes) -> str:
        """Write an object unless the key is taken."""
        return self._written(key, self.lake.put_if_absent(key, data))

    def put_if_match(self, key: str, data: bytes, etag: str) -> str:
        """Replace the object with this etag."""
        return self._written(key, self.lake.put_if_match(key, data, etag))

    def list_objects(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        """List the objects under a prefix, in key order."""
        return self.lake.list_objects(prefix, after=after)

    def list_folders(self, prefix: str) -> list[str]:
        """List the folders directly below a prefix."""
        return self.lake.list_folders(prefix)

    def delete(self, key: str) -> None:
        """Remove an object; of the state, only run records are ever removed."""
        self.lake.delete(key)
        if key.startswith(lake_layout.RUNS):
            self.mirror.mark(f"-{key}")

    def remove_unfinished(
        self, prefix: str, before: datetime, *, dry_run: bool = False
    ) -> list[str]:
        """Remove incomplete uploads of dead writers."""
        return self.lake.remove_unfinished(prefix, before, dry_run=dry_run)

    def __str__(self) -> str:
        return str(self.lake)

    def _written(self, key: str, etag: str) -> str:
        if not self._is_written and (_item(key) or _is_lease(key)):
            # Commands that only read copy nothing. What was read before the first write counts.
            self._is_written = True
            self.mirror.check(*filter(None, map(_table_of_primary, list(self._seen))))
        if key.startswith(lake_layout.PRIMARIES):
            self._seen[key] = etag
        if (item := _item(key)) is not None:
            self.mirror.mark(item)
        return etag

    def _refuse_lost(self, table: TableName) -> None:
        """Raise StateLost if the mirror has manifests of a table that the lake lacks."""
        log = ManifestLog(self.lake)
        try:
            mirror = self.mirror.open()
            known = last_manifest(get(mirror, lake_layout.primary(table)), table)
        except StorageError as error:
            if not log.is_empty(table):
                return  # the lake can recover it by itself
            raise StateLost(
                f"{table} is not in the lake, and the mirror cannot tell whether it was lost:"
                f" {error.message}",
                hint=f"make the mirror available, or remove 'mirror:' if {table} is new",
            ) from error
        if known is not None and known not in log.heads(table, since=known):
            raise StateLost(
                f"the lake has lost the state of {table}; the mirror has it up to manifest {known}",
                hint=f"floodmark recover --from-mirror -t {table}",
            )


def _table_of_primary(key: str) -> TableName | None:
    return lake_layout.table_of_primary(key) if key.startswith(lake_layout.PRIMARIES) else None


def _is_lease(key: str) -> bool:
    """Return whether a key is the lease of a table, and not a probe."""
    name = key.removeprefix(lake_layout.LEASES).removesuffix(".json")
    return key.startswith(lake_layout.LEASES) and lake_layout.table_of_key(name) is not None


def _item(key: str) -> TableName | str | None:
    """Return what is due in the mirror after a write; None if it is no state."""
    if key.startswith(lake_layout.PRIMARIES):
        return lake_layout.table_of_primary(key)
    if key.startswith(lake_layout.MANIFESTS):
        return lake_layout.table_of_manifest(key)
    if key.startswith(lake_layout.RECOVERIES):
        table = lake_layout.table_of_recovery(key)
        return lake_layout.recoveries(table) if table else None
    return key if key == lake_layout.SYSTEM or key.startswith(lake_layout.RUNS) else None
