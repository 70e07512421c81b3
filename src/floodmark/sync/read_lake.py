"""Read a table's current rows from the lake, with Spark and without a warehouse."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from floodmark.config.models import LakeSettings, RetrySettings
from floodmark.errors import FloodmarkError, UsageError
from floodmark.model import lake_layout
from floodmark.model.log_state import ManifestId
from floodmark.model.table import TableName
from floodmark.planning.current_rows import CurrentRows, EventFile, current_rows, selection_of
from floodmark.state.watermark_store import WatermarkStore

if TYPE_CHECKING:
    from floodmark.warehouse.lake_reader import LakeFiles

_PART_BYTES = 128 * 1024 * 1024


class EventReader(Struct, frozen=True, kw_only=True):
    """Reads the files of a table in parts; sent to the workers."""

    lake: LakeSettings
    rows: CurrentRows
    parts: tuple[tuple[EventFile, ...], ...]

    @property
    def marks(self) -> dict[str, str]:
        """The columns that describe an event, and their types."""
        events = self.rows.events
        return {
            events.number: "int64",
            events.kind: "string",
            events.wins: "bool",
            events.adopted: "bool",
        }

    def read(self, part: int) -> Iterator[Any]:
        """Read the Arrow batches of one part, on a worker."""
        from floodmark.storage.opening import open_lake
        from floodmark.warehouse.lake_reader import LakeFiles

        lake = self.lake
        objects = open_lake(lake, RetrySettings())
        yield from self.read_from(LakeFiles(objects, None if lake.is_s3 else lake.url), part)

    def read_from(self, files: "LakeFiles", part: int) -> Iterator[Any]:
        """Read the Arrow batches of one part from these files."""
        from floodmark.worker.lake_rows import as_events, event_schema

        table = self.rows.table
        schema = event_schema(table, self.marks)
        for file in self.parts[part]:
            columns = {column.name.lower(): column for column in file.columns}
            fills = {name.lower(): value for name, value in file.fills.items()}
            values = (file.number, file.kind, file.wins, file.adopted)
            marks = dict(zip(self.marks, values, strict=True))
            for batch in files.batches(file.path, [column.name for column in file.columns]):
                yield as_events(batch, columns, table, fills, marks, schema)


def find_rows(store: WatermarkStore, table: TableName, as_of: ManifestId | None) -> CurrentRows:
    """Find the files of a table's current rows; FloodmarkError if one of them was removed."""
    watermark = store.get(table, write_back=False)
    if watermark is not None:
        watermark.refuse_moved()
    manifests = list(store.log.manifests(table, through=as_of))
    if as_of is not None and (not manifests or manifests[-1].head != as_of):
        raise UsageError(
            f"{table} has no manifest {as_of}",
            hint=f"'floodmark watermark history -t {table}' lists them",
        )
    rows = current_rows(str(table), manifests)
    _refuse_removed(store, table, rows.files)
    return rows


def frame_of(session: Any, lake: LakeSettings, rows: CurrentRows) -> Any:
    """Return the current rows as a Spark DataFrame; nothing is read before it is used."""
    try:
        from floodmark.spark.lake_frame import lake_frame, quote
    except ModuleNotFoundError as error:
        raise UsageError(
            "reading the lake as a DataFrame needs PySpark 4.0 or newer",
            hint="update PySpark, or read its Parquet files as docs/guides/read-lake.md shows",
        ) from error

    reader = EventReader(lake=lake, rows=rows, parts=tuple(parts_of(rows.files)))
    columns = {column.name: column.arrow for column in rows.table.columns}
    events = lake_frame(session, columns | reader.marks, reader.read, len(reader.parts))
    names = [quote(name) for name in columns]
    if not rows.table.primary_key:
        return events.selectExpr(*names)
    chosen = selection_of(rows, quote)
    facts = [f"{sql} AS {quote(name)}" for name, sql in chosen.facts.items()]
    rank = quote(f"{rows.events.number}_rank")
    kept = events.selectExpr("*", *facts).where(chosen.where)
    ranked = kept.selectExpr("*", f"{chosen.rank} AS {rank}")
    return ranked.where(f"{rank} = 1 AND NOT {chosen.dead}").selectExpr(*names)


def parts_of(files: Iterable[EventFile]) -> Iterator[tuple[EventFile, ...]]:
    """Group files, so that a task reads neither too little nor too much."""
    part: list[EventFile] = []
    for file in files:
        if part and sum(known.bytes for known in part) + file.bytes > _PART_BYTES:
            yield tuple(part)
            part = []
        part.append(file)
    if part:
        yield tuple(part)


def _refuse_removed(
    store: WatermarkStore,
    table: TableName,
    files: Sequence[EventFile],
) -> None:
    """Raise FloodmarkError if a file is not in the lake: the rows would be silently incomplete."""
    paths = [file.path for file in files]
    own = (lake_layout.data_files(table), lake_layout.deletes_of(table))
    folders = [*own, *lake_layout.folders_elsewhere(table, paths)] if paths else []
    found = {info.key for folder in folders for info in store.objects.list_objects(folder)}
    if missing := [path for path in paths if path not in found]:
        raise FloodmarkError(
            f"{len(missing):,} of {len(paths):,} files of {table} are no longer in the lake, so its"
            f" rows cannot be read from there; the first is {missing[0]}",
            hint=f"read the warehouse; or 'floodmark watermark reset -t {table}', then sync, reads"
            " the table into the lake again",
        )
