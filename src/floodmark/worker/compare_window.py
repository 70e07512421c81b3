"""What runs on a worker: one window, held against the target.

Both sides are read once, and only hashes of the rows are kept. If those sum up to the same, the
sides agree. If not, both are read once more, and the rows that differ are kept. Of rows that only
the target has, the source is asked by their keys: what it has outside of all that was synced was
changed since it was loaded, and is no difference. Nor is a row that the target cannot hold.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Protocol, cast

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, structs

from floodmark.errors import FloodmarkError
from floodmark.model.extraction import Window
from floodmark.model.load import TargetTable
from floodmark.model.notice import Report
from floodmark.model.position import START
from floodmark.model.timestamps import plain
from floodmark.model.verification import (
    Checksum,
    Comparison,
    DifferenceKind,
    Extent,
    RowDifference,
    SyncedRange,
    ValueDifference,
    WindowPair,
)
from floodmark.worker.conversion import Conversion
from floodmark.worker.extract_window import Refusal, is_final
from floodmark.worker.job import ExtractionJob
from floodmark.worker.mysql_reader import TooFarAhead, read_batches
from floodmark.worker.position_range import key_part, position_of
from floodmark.worker.row_hashes import Fingerprints

_KEYS_AT_ONCE = 500
_LONGEST_SHOWN = 200


class UnsupportedValue(Protocol):
    """A kind of value that a target cannot hold."""

    @property
    def found(self) -> Callable[[pa.RecordBatch], pa.Array]:
        """Says which rows of a batch have one."""


class Reader(Protocol):
    """A target, as far as it can be read."""

    def unsupported_values(self, table: TargetTable) -> Sequence[UnsupportedValue]:
        """Every kind of value that it cannot hold."""

    def read(self, table: TargetTable, extents: Sequence[Extent]) -> Iterator[pa.RecordBatch]:
        """Read rows back."""

    report: Report
    """Where it says how it reads them."""


class VerificationJob(Struct, frozen=True, kw_only=True):
    """The comparison of one table; like an extraction it travels to the workers.

    `table` names the columns that are compared, in the order of those of `source`. `lookup` is what
    stands behind FROM when rows are looked up by the condition that `keys` makes of their keys.
    `synced` are the ranges whose rows must be in the target as they are.
    """

    source: ExtractionJob
    table: TargetTable
    json_columns: tuple[str, ...]
    lookup: str
    keys: Callable[[Sequence[tuple[int | str, ...]]], str]
    open_target: Callable[[], AbstractContextManager[Reader]]
    synced: tuple[SyncedRange, ...] = ()
    most_shown: int = 20


class Compared(Struct, frozen=True):
    """What a task answers: a comparison, or a refusal."""

    comparison: Comparison | None = None
    refusal: Refusal | None = None


def run_comparison(job: VerificationJob, pair: WindowPair, *, failures: int) -> Compared:
    """Compare a window. What another try might mend is raised, unless this was the last try."""
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
            # In the target, a row without a moment lies in no window.
            yield batch.filter(batch.column(cursor).is_valid()) if cursor else batch

    with (
        job.open_target() as target,
        Fingerprints(conversion.schema, job.table.primary_key, job.json_columns) as prints,
    ):
        said: list[str] = []
        target.report = lambda notice: said.append(notice.message)

        def from_target() -> Iterator[pa.RecordBatch]:
            for batch in target.read(job.table, pair.extents):
                yield fitted(batch, conversion.schema, job.table.name)

        sums = prints.add("source", from_source()), prints.add("target", from_target())
        undated = conversion.zero_dates[cursor] if cursor else 0
        quarantined = sum(aside)
        equal = structs.replace(
            _comparison(pair, sums, began),
            undated=undated,
            quarantined=quarantined,
            remarks=tuple(said),
        )
        if sums[0] == sums[1]:
            return equal
        prints.suspect()
        sieve = Sieve(target.unsupported_values(job.table))
        prints.keep("source", map(sieve.sift, from_source()))
        prints.keep("target", from_target())
        prints.judge()
        if job.table.primary_key:
            _look_up(job, pair.window, prints, Sieve(target.unsupported_values(job.table)))
        moved = prints.dismiss_found()
        shown = tuple(_shown(job.table, *found) for found in prints.differing(job.most_shown))
        return structs.replace(
            equal,
            seconds=round(time.monotonic() - began, 3),
            differences=cast("dict[DifferenceKind, int]", prints.counts()),
            shown=shown,
            moved=moved,
            quarantined=quarantined + sieve.rows,
        )


class Sieve:
    """Leaves out rows that the target cannot hold, and counts them: they are in quarantine."""

    def __init__(self, unsupported_values: Sequence[UnsupportedValue]) -> None:
        self._unsupported_values = unsupported_values
        self.rows = 0

    def sift(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that fit."""
        for unsupported_value in self._unsupported_values:
            fits = pc.invert(pc.fill_null(unsupported_value.found(batch), False))
            self.rows += len(fits) - fits.true_count
            batch = batch.filter(fits)
        return batch


def fitted(batch: pa.RecordBatch, schema: pa.Schema, table: str) -> pa.RecordBatch:
    """A target's rows in the types of the source; FloodmarkError names what does not fit."""
    arrays = []
    for array, field in zip(batch.columns, schema, strict=True):
        try:
            arrays.append(_fitted(array, field.type))
        except pa.ArrowException as error:
            raise FloodmarkError(
                f"{table}.{field.name} holds a value in the target that is no {field.type}: {error}"
            ) from error
    return pa.record_batch(arrays, names=schema.names)


def _fitted(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if pa.types.is_timestamp(kind) and not getattr(array.type, "tz", None):
        return array.cast(pa.timestamp("us")).view(kind)  # without a zone it is in UTC
    return array.cast(kind)


def _comparison(pair: WindowPair, sums: tuple[Checksum, Checksum], began: float) -> Comparison:
    return Comparison(
        part=pair.window.part,
        source=sums[0],
        target=sums[1],
        seconds=round(time.monotonic() - began, 3),
    )


def _look_up(job: VerificationJob, window: Window, prints: Fingerprints, sieve: Sieve) -> None:
    conversion = Conversion(job.source.columns, "null")  # whatever the row's dates are by now
    aside = job.source.zero_dates == "quarantine"
    loading = Conversion(job.source.columns, "quarantine" if aside else "null")
    source = structs.replace(job.source, relation=job.lookup, order="")
    keys = [tuple(map(key_part, key)) for key in prints.extra_keys()]
    for at in range(0, len(keys), _KEYS_AT_ONCE):
        these = structs.replace(window, predicate=job.keys(keys[at : at + _KEYS_AT_ONCE]))
        for batch in read_batches(source, these):
            due = sieve.sift(_synced(loading.convert(batch), job))
            prints.found_in_source(conversion.convert(batch), due)


def _synced(batch: pa.RecordBatch, job: VerificationJob) -> pa.RecordBatch:
    """The rows whose positions lie within what was synced, as far as one can tell."""
    cursor = job.source.cursor
    inside = []
    for row in batch.select(cursor.columns).to_pylist():
        known = None not in row.values()  # a zero date has no place in the order
        place = position_of(cursor, tuple(row.values())) if known else START
        inside.append(
            any(place.compare(r.start) == 1 and place.compare(r.end) in (-1, 0) for r in job.synced)
        )
    return batch.filter(pa.array(inside, pa.bool_()))


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
    """A value as people read it, cut where it is long."""
    text = show_exactly(value)
    if text is None or len(text) <= _LONGEST_SHOWN:
        return text
    return f"{text[:_LONGEST_SHOWN]}… ({len(text):,} characters)"


def show_exactly(value: Any) -> str | None:
    """A value as text that tells it from any other of its type."""
    match value:
        case None:
            return None
        case bytes():
            return "0x" + value.hex()
        case datetime():
            return plain(value)
    return str(value)
