"""Rehearse a load: a sample of a table's data files, into a schema that is dropped afterwards.

The sample is loaded by the code that loads real rows, with a ledger of its own in the same schema.
A drill that is killed leaves the schema; the next one drops it, if it is older than an hour.
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from os import path

from msgspec import structs

from floodmark.config.models import (
    Connection,
    DuckdbConnection,
    GrantSettings,
    LakeSettings,
    MysqlConnection,
    TableSettings,
)
from floodmark.errors import FloodmarkError
from floodmark.model import lake_layout
from floodmark.model.formatting import counted
from floodmark.model.manifest import Manifest, chunks_in
from floodmark.model.table import TableName
from floodmark.planning.load_batches import batches_of, deletes_of, target_table
from floodmark.state.drill_scratch import OLD
from floodmark.state.manifest_log import ManifestLog
from floodmark.storage.objects import ObjectStore
from floodmark.sync.drill import Rehearsal
from floodmark.warehouse.factory import open_target
from floodmark.warehouse.target import Target

NAME = "load a sample into the target"
_PREFIX = "floodmark_drill_"
_MOST_BYTES = 64 * 1024 * 1024


def rehearse_load(
    objects: ObjectStore,
    lake: LakeSettings,
    connection: Connection,
    settings: TableSettings,
    table: TableName,
    target_name: str,
    now: datetime,
) -> Rehearsal:
    """Load the newest chunk whose files are in the lake into a scratch schema, and drop it."""
    began = time.monotonic()
    sample = _sample(objects, table)
    if sample is None:
        return Rehearsal(name=NAME, recovered=None, detail="no data files in the lake")
    plain = structs.replace(settings, grant=GrantSettings())
    try:
        with _scratch_target(connection, objects, lake, plain, now) as target:
            detail = _load(target, sample, target_name)
    except FloodmarkError as error:
        return Rehearsal(
            name=NAME,
            recovered=False,
            seconds=round(time.monotonic() - began, 3),
            detail=error.message,
        )
    seconds = round(time.monotonic() - began, 3)
    return Rehearsal(name=NAME, recovered=True, seconds=seconds, detail=detail)


def _load(target: Target, sample: Manifest, name: str) -> str:
    (chunk,) = chunks_in([sample])
    table = target_table(name, chunk)
    deletes = deletes_of(sample)
    target.prepare(
        structs.replace(table, deleted_at=deletes.deleted_at) if deletes is not None else table
    )
    (batch,) = batches_of(
        [sample],
        [],
        target_name=name,
        load_epoch=1,
        session_id=sample.session_id,
        most_bytes=_MOST_BYTES,
        manifest_key={sample.head: str(sample.head)},
    )
    loaded, held = target.load(batch), target.count(table)
    if loaded != chunk.rows or not held or (held != loaded and not chunk.primary_key):
        raise FloodmarkError(
            f"{loaded:,} of {chunk.rows:,} rows loaded, {held or 0:,} in the table"
        )
    return counted(loaded, "row")


def _sample(objects: ObjectStore, table: TableName) -> Manifest | None:
    """Return the newest manifest of a chunk that is not large and has all its files."""
    folders = (lake_layout.data_files(table), lake_layout.deletes_of(table))
    files = {info.key: info.size for f in folders for info in objects.list_objects(f)}
    for manifest in ManifestLog(objects).manifests(table, newest_first=True):
        for chunk in chunks_in([manifest]):
            there = all(files.get(file.path) == file.bytes for file in chunk.loaded_files)
            if chunk.rows and there and chunk.bytes <= _MOST_BYTES and not chunk.adopted:
                return manifest
    return None


@contextmanager
def _scratch_target(
    connection: Connection,
    objects: ObjectStore,
    lake: LakeSettings,
    settings: TableSettings,
    now: datetime,
) -> Iterator[Target]:
    """Open a target in an empty schema or file, and remove it afterwards."""
    if isinstance(connection, DuckdbConnection):
        with tempfile.TemporaryDirectory() as folder:
            scratch = DuckdbConnection(path=path.join(folder, "drill.duckdb"))
            with open_target(scratch, objects, lake, settings) as target:
                yield target
        return
    assert not isinstance(connection, MysqlConnection)
    schema = f"{_PREFIX}{now:%Y%m%d%H%M%S%f}"
    place = structs.replace(connection, schema=schema)
    with open_target(place, objects, lake, settings, configured=connection) as target:
        oldest = f"{_PREFIX}{now - OLD:%Y%m%d%H%M%S%f}"
        for left in target.scratch_schemas(_PREFIX):
            if left < oldest:
                target.drop_scratch(left)
        try:
            yield target
        finally:
            target.drop_scratch(schema)
