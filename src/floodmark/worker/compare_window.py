"""Compare one window of the source with the target, on a worker.

Both sides are read once, and only hashes of the rows are kept. If their sums are equal, the sides
are equal. If not, both are read once more, and the rows that differ are kept. Rows that only the
target has are looked up in the source by key: one that is there, but after the loaded position,
changed after it was loaded, and is not a difference. Nor is a row that the target cannot hold.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Protocol, cast

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, structs

from floodmark.errors import FloodmarkError, TooFarAhead
from floodmark.model.extraction import Window
from floodmark.model.load import TargetTable
from floodmark.model.notice import Report
from floodmark.model.position import START, Position
from floodmark.model.timestamps import plain
from floodmark.model.verification import (
    Checksum,
    Comparison,
    DifferenceKind,
    DifferingKey,
    Extent,
    RowDifference,
    SyncedRange,
    ValueDifference,
    WindowPair,
)
from floodmark.worker.conversion import Conversion
from floodmark.worker.extract_window import is_final
from floodmark.worker.job import ExtractionJob, Refusal
from floodmark.worker.mysql_reader import read_batches
from floodmark.worker.position_range import key_part, position_of
from floodmark.worker.row_hashes import UNFIT, Fingerprints

_KEYS_AT_ONCE = 500
_LONGEST_SHOWN = 200


class UnsupportedValue(Protocol):
    """A kind of value that a target cannot hold."""

    @property
    def found(self) -> Callable[[pa.RecordBatch], pa.Array]:
        """Return which rows of a batch have one."""


class Reader(Protocol):
    """The part of a target that reads."""

    def unsupported_values(self, table: TargetTable) -> Sequence[UnsupportedValue]:
        """Return every kind of value that it cannot hold."""

    def read(self, table: TargetTable, extents: Sequence[Extent]) -> Iterator[pa.RecordBatch]:
        """Read rows back."""

    report: Report
    """Receives notices."""


class VerificationJob(Struct, frozen=True, kw_only=True):
    """The comparison of one table; sent to the workers.

    `table` has the columns to compare, in the order of `source`. `lookup` is the FROM clause for
    rows that are looked up, and `keys` makes the condition from their keys. `synced` are the ranges
    whose rows must be the same in the target; a sync brings the rows after `loaded`. `version` is
    the column that orders a row's versions.
    """

    source: ExtractionJob
    table: TargetTable
    json_columns: tuple[str, ...]
    lookup: str
    keys: Callable[[Sequence[tuple[int | str, ...]]], str]
    open_target: Callable[[], AbstractContextManager[Reader]]
    synced: tuple[SyncedRange, ...] = ()
    loaded: Position = START
    version: str | None = None
    most_shown: int = 20


class Compared(Struct, frozen=True):
    """A task's answer: a comparison, or a refusal."""

    comparison: Comparison | None = None
    refusal: Refusal | None = None


def run_comparison(job: VerificationJob, pair: WindowPair, *, failures: int) -> Compared:
    """Compare a window. Raise errors that a retry might fix, unless this was the last try."""
    try:
        try:
            return Compared(comparison=compare_window(job, pair))
        except TooFarAhead:
            streamed = structs.replace(pair.window, streamed=True)
            return Compared(comparison=compare_window(job, WindowPair(streamed, pair.extents)))
    except FloodmarkError as error:
        if is_final(job.source, error, failures):
            return Compared(refusal=Refusal(pair.window.part, error.message, error.hint))
        raise


def compare_window(job: VerificationJob, pair: WindowPair) -> Comparison:
    """Compare a window, and find the rows that differ."""
    began = time.monotonic()
    aside: list[int] = []
    conversion = Conversion(
        job.source.columns, job.source.zero_dates, lambda _, columns: aside.append(len(columns))
    )

    cursor = job.source.cursor.timestamp

    def from_source(window: Window = pair.window) -> Iterator[pa.RecordBatch]:
        for batch in map(conversion.convert, read_batches(job.source, window)):
            # In the target, a row without a timestamp is in no window.
            yield batch.filter(batch.column(cursor).is_valid()) if cursor else batch

    with (
        job.open_target() as target,
        Fingerprints(conversion.schema, job.table.primary_key, job.json_columns) as prints,
    ):
        remarks: list[str] = []
        target.report = lambda notice: remarks.append(notice.message)

        def from_target() -> Iterator[pa.RecordBatch]:
            for batch in target.read(job.table, pair.extents):
                yield fitted(batch, conversion.schema, job.table.name, job.table.primary_key)

        sums = prints.add("source", from_source()), prints.add("target", from_target())
        undated = conversion.zero_dates[cursor] if cursor else 0
        quarantined = sum(aside)
        equal = structs.replace(
            _comparison(pair, sums, began),
            undated=undated,
            quarantined=quarantined,
            remarks=tuple(remarks),
        )
        if sums[0] == sums[1]:
            return equal
        prints.suspect()
        supported = RowFilter(target.unsupported_values(job.table))
        prints.keep("source", map(supported.filter, from_source()))
        prints.keep("target", from_target())
        prints.judge()
        if job.table.primary_key:
            _look_up(job, pair.window, prints, RowFilter(target.unsupported_values(job.table)))
        moved = prints.dismiss_found()
        names = job.table.primary_key
        shown = tuple(_shown(job.table, *found) for found in prints.differing(job.most_shown))
        return structs.replace(
            equal,
            seconds=round(time.monotonic() - began, 3),
            differences=cast("dict[DifferenceKind, int]", prints.counts()),
            shown=shown,
            keys=tuple(
                DifferingKey(
                    kind,
                    dict(zip(names, map(show_exactly, key), strict=True)),
                    show_exactly(version) if kind == "extra" else None,
                )
                for kind, version, *key in prints.differing_keys(job.version)
            ),
            moved=moved,
            quarantined=quarantined + supported.rows,
        )


class RowFilter:
    """Drops and counts rows that the target cannot hold: they are in quarantine."""

    def __init__(self, unsupported_values: Sequence[UnsupportedValue]) -> None:
        self._unsupported_values = unsupported_values
        self.rows = 0

    def filter(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that the target can hold."""
        for unsupported_value in self._unsupported_values:
            fits = pc.invert(pc.fill_null(unsupported_value.found(batch), False))
            self.rows += len(fits) - fits.true_count
            batch = batch.filter(fits)
        return batch


def fitted(
    batch: pa.RecordBatch, schema: pa.Schema, table: str, key: Sequence[str] = ()
) -> pa.RecordBatch:
    """Cast a target's rows to the types of the source.

    A value that is not of its type becomes NULL. If there is one, the batch has another column:
    NULL, or such values of the row as JSON, so that it equals no row of the source. FloodmarkError
    if the key has such a value.
    """
    arrays: list[pa.Array] = []
    unfit: list[dict[str, str]] = [{} for _ in range(batch.num_rows)]
    for array, field in zip(batch.columns, schema, strict=True):
        pieces: list[pa.Array] = []
        for at in _cast_into(pieces, array, field.type):
            value = str(array[at].as_py())
            if field.name in key:
                raise FloodmarkError(
                    f"{table}.{field.name} has the value {value} in the target, which is not"
                    f" {field.type}",
                    hint="correct or delete these rows in the target",
                )
            unfit[at][field.name] = value
        arrays.append(pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces))
    names = list(schema.names)
    if any(unfit):
        texts = [json.dumps(values) if values else None for values in unfit]
        arrays, names = [*arrays, pa.array(texts, pa.string())], [*names, UNFIT]
    return pa.record_batch(arrays, names=names)


def _cast_into(
    pieces: list[pa.Array], array: pa.Array, kind: pa.DataType, first: int = 0
) -> Iterator[int]:
    """Cast an array in pieces, and yield the places of the values that are not of the type."""
    try:
        pieces.append(_fitted(array, kind))
    except pa.ArrowException:
        if len(array) == 1:
            pieces.append(pa.nulls(1, kind))
            yield first
            return
        half = len(array) // 2
        yield from _cast_into(pieces, array.slice(0, half), kind, first)
        yield from _cast_into(pieces, array.slice(half), kind, first + half)


def _fitted(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if pa.types.is_timestamp(kind) and not getattr(array.type, "tz", None):
        return array.cast(pa.timestamp("us")).view(kind)  # without a zone it is UTC
    if pa.types.is_boolean(kind) and not pa.types.is_string(array.type):
        numbers = array.cast(pa.int64())
        if not set(pc.unique(numbers).to_pylist()) <= {0, 1, None}:  # Arrow would call 5 true
            raise pa.ArrowInvalid("it is neither 0 nor 1")
        return numbers.cast(kind)
    return array.cast(kind)


def _comparison(pair: WindowPair, sums: tuple[Checksum, Checksum], began: float) -> Comparison:
    return Comparison(
        part=pair.window.part,
        source=sums[0],
        target=sums[1],
        seconds=round(time.monotonic() - began, 3),
    )


def _look_up(
    job: VerificationJob, window: Window, prints: Fingerprints, supported: RowFilter
) -> None:
    conversion = Conversion(job.source.columns, "null")  # whatever the row's dates are now
    aside = job.source.zero_dates == "quarantine"
    loading = Conversion(job.source.columns, "quarantine" if aside else "null")
    source = structs.replace(job.source, relation=job.lookup, order="")
    # A row without a key is nowhere in the source.
    keys = [tuple(map(key_part, key)) for key in prints.extra_keys() if None not in key]
    for at in range(0, len(keys), _KEYS_AT_ONCE):
        these = structs.replace(window, predicate=job.keys(keys[at : at + _KEYS_AT_ONCE]))
        for batch in read_batches(source, these):
            due = supported.filter(_due(loading.convert(batch), job))
            prints.found_in_source(conversion.convert(batch), due)


def _due(batch: pa.RecordBatch, job: VerificationJob) -> pa.RecordBatch:
    """Return the rows that are known to be in a synced range, or that no sync will bring."""
    cursor = job.source.cursor
    due = []
    for row in batch.select(cursor.columns).to_pylist():
        known = None not in row.values()  # NULL and a zero date have no position
        place = position_of(cursor, tuple(row.values())) if known else START
        due.append(
            (not job.loaded.is_start and place.compare(job.loaded) in (-1, 0))
            or any(
                place.compare(r.start) == 1 and place.compare(r.end) in (-1, 0) for r in job.synced
            )
        )
    return batch.filter(pa.array(due, pa.bool_()))


Row = dict[str, Any]


def _shown(table: TargetTable, kind: str, source: Row | None, target: Row | None) -> RowDifference:
    row = source or target or {}
    values: tuple[ValueDifference, ...] = ()
    if kind == "changed" and source and target:
        values = tuple(
            ValueDifference(name, show_value(source[name]), show_value(target[name]))
            for name in source
            if show_exactly(source[name]) != show_exactly(target[name])
        )
    return RowDifference(
        kind=cast("DifferenceKind", kind),
        key={name: show_value(row[name]) for name in table.primary_key or row},
        values=values,
    )


def show_value(value: Any) -> str | None:
    """Format a value for display, truncated if long."""
    text = show_exactly(value)
    if text is None or len(text) <= _LONGEST_SHOWN:
        return text
    return f"{text[:_LONGEST_SHOWN]}… ({len(text):,} characters)"


def show_exactly(value: Any) -> str | None:
    """Format a value so that different values of its type have different text."""
    match value:
        case None:
            return None
        case bytes():
            return "0x" + value.hex()
        case datetime():
            return plain(value)
    return str(value)
