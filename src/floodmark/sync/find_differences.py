"""Find the rows that differ between source and target, without reading all of them.

    fingerprints of a few places → if they differ, lines of all keys and versions, otherwise
    fingerprints of segments, inside both databases at once → those that differ, divided again →
    keys that may differ: target, then source → keys that the source lacks, once more

Only the last step decides, so rows that change meanwhile cannot make a difference: a key counts as
deleted only if the source has no row with it after the target was read. Equal fingerprints mean
equal rows; see `floodmark.model.fingerprint` for the chance that they do not.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack

from msgspec import structs

from floodmark.errors import UsageError
from floodmark.model.fingerprint import Hashing
from floodmark.model.position import Position
from floodmark.model.reconciliation import (
    Grouping,
    IntervalDifferences,
    KeyLimits,
    Place,
    Slice,
    count_lines,
)
from floodmark.model.verification import SyncedRange
from floodmark.planning.differing_keys import DifferingKeys, KeyVersion, differing_keys
from floodmark.planning.key_lines import differing_numbers, number_batches
from floodmark.planning.segments import (
    BATCH_ROWS,
    INTERVAL_ROWS,
    LINES_ROWS,
    MOST_GROUPS,
    SCANNED_ROWS,
    Segment,
    batches,
    first_grouping,
    intervals,
    is_dense,
    key_buckets,
    next_width,
    range_slices,
    sample,
    segments,
    slices,
)
from floodmark.sync.compared_sides import ComparedSides, compared_shape
from floodmark.sync.extraction import Extraction
from floodmark.sync.plan import TablePlan
from floodmark.sync.supported_keys import unsupported_keys
from floodmark.warehouse.target import Target

NO_LIMITS = KeyLimits()


def find_differences(
    extraction: Extraction,
    open_target: Callable[[], AbstractContextManager[Target]],
    target_name: str,
    plan: TablePlan,
    ranges: Sequence[SyncedRange],
    *,
    loaded: Position,
    start: Place | None = None,
    limits: KeyLimits = NO_LIMITS,
    all_shown: bool = False,
    deleted_at: str | None = None,
    check: Callable[[], None] = lambda: None,
) -> Iterator[IntervalDifferences]:
    """Compare keys and versions of a table, and yield what differs, interval by interval.

    `plan` is that of a verification: the columns are those that the target holds. `ranges` are the
    synced ranges up to the `loaded` position; other rows of the source are a difference only if the
    target has another version of them there, and no sync will bring them. Rows of the target are
    compared within these ranges. With `all_shown`, which says that the source
    shows everything that was ever committed, all of them are compared from the first range on, so
    that rows which somebody added with a later version, or without one, are found, too. The caller
    holds the table's lease, so that no load changes the target meanwhile; `check` is called before
    each step, and may raise. `start` is the `through` of the last interval of an earlier run; it is
    ignored if the table's key has changed since. `deleted_at` is the target's column that marks
    rows as deleted; it need not exist yet.

    The caller may stop after any interval. UsageError if the keys cannot be compared.
    """
    shape = compared_shape(plan.source, plan.choice.cursor)
    if shape.leading != "integer" and limits != NO_LIMITS:
        raise UsageError(
            f"{plan.source.name}: {plan.source.primary_key[0]} is not an integer, so a range of it"
            " cannot be compared alone"
        )
    with ExitStack() as open_ones:
        sides = ComparedSides(
            extraction.source,
            open_ones.enter_context(open_target()),
            open_ones,
            plan,
            shape,
            target_name=target_name,
            ranges=ranges,
            loaded=loaded,
            all_shown=all_shown,
            hashing=Hashing.random(),
            deleted_at=deleted_at,
            check=check,
        )
        unkeyed = sides.count_without_key()
        for found in _Finding(extraction, plan, sides).run(start, limits):
            yield structs.replace(found, unkeyed=unkeyed + sides.take_odd_keys())
            unkeyed = 0


class _Finding:
    """Compare one table, interval by interval."""

    def __init__(self, extraction: Extraction, plan: TablePlan, sides: ComparedSides) -> None:
        self._extraction = extraction
        self._plan = plan
        self._sides = sides

    def run(self, start: Place | None, limits: KeyLimits) -> Iterator[IntervalDifferences]:
        """Compare the intervals after a place."""
        sides, key = self._sides, self._plan.source.primary_key
        bounds = sides.bounds()
        if bounds is None:
            yield IntervalDifferences(through=None)
            return
        low, high = bounds
        after = (
            start.after + 1 if start and (start.key, start.hashed) == (key, self._hashed) else low
        )
        first = max(low, after, low if limits.first is None else limits.first)
        last = min(high, high if limits.last is None else limits.last)
        if first > last:
            yield IntervalDifferences(through=None)
            return
        by_scan = self._hashed or sides.has_covering_index
        most = SCANNED_ROWS if by_scan else INTERVAL_ROWS
        share = (last - first + 1) / (high - low + 1)
        rows = round(sides.rows * share)
        parts = intervals(first, last, rows, most)
        for interval in parts:
            whole = (first, last) == (low, high) and len(parts) == 1
            yield from self._compare(interval, rows // len(parts), whole=whole, last=last)

    @property
    def _hashed(self) -> bool:
        return self._sides.shape.hashed

    def _compare(
        self, interval: tuple[int, int], rows: int, *, whole: bool, last: int
    ) -> Iterator[IntervalDifferences]:
        """Compare one interval; sample it first."""
        sides = self._sides
        if sides.has_lines and (part := sample(*interval, rows)) and self._differs(part):
            for lines in intervals(*interval, rows, LINES_ROWS):
                yield from self._by_lines(lines, rows, last)
            return
        yield from self._by_fingerprint(interval, rows, whole=whole, last=last)

    def _differs(self, part: Slice) -> bool:
        """Whether the rows of a slice differ, as a whole."""
        grouping = Grouping(base=part.ranges[0][0], width=2**62)
        source, target = self._sides.compare([part], grouping)
        return source != target

    def _by_lines(
        self, interval: tuple[int, int], rows: int, last: int
    ) -> Iterator[IntervalDifferences]:
        """Read all keys and versions of an interval, and yield batches of keys that differ."""
        sides = self._sides
        found = sides.read_lines(Slice(ranges=(interval,)))
        if found is None:
            yield from self._by_fingerprint(interval, rows, whole=False, last=last)
            return
        numbers = differing_numbers(*found)
        counts = [sum(map(count_lines, found[0])), count_lines(found[1])]
        del found
        batches = list(number_batches(numbers, BATCH_ROWS))
        for number, ranges in enumerate(batches, 1):
            is_last = number == len(batches)
            parts = range_slices(ranges)
            target = sides.read_target(parts)
            differing = differing_keys(target, sides.read_source(parts))
            yield structs.replace(
                self._proven(target, differing),
                through=self._place(interval[1] if is_last else ranges[-1][1], last),
                source_rows=counts[0] if number == 1 else 0,
                target_rows=counts[1] if number == 1 else 0,
            )

    def _by_fingerprint(
        self, interval: tuple[int, int], rows: int, *, whole: bool, last: int
    ) -> Iterator[IntervalDifferences]:
        """Compare one interval, and yield batches of segments."""
        sides = self._sides
        versions = sides.compare_versions() if whole else None
        equal = versions.equal_rows if versions else 0
        if versions and not versions.differing:
            through = self._place(interval[1], last)
            yield IntervalDifferences(through=through, source_rows=equal, target_rows=equal)
            return
        differing_rows = versions.differing_rows if versions else 0
        grouping = first_grouping(*interval, rows, hashed=self._hashed, differing=differing_rows)
        # Rows that are inserted outside of the interval meanwhile must have no group.
        part = Slice(
            ranges=() if whole and self._hashed else (interval,),
            versions=versions.differing if versions else (),
        )
        groups = sides.scan(part, grouping) if whole else sides.compare([part], grouping)
        found = list(batches(segments(*groups, grouping, interval[1])))
        for number, batch in enumerate(found, 1):
            is_last = number == len(found)
            rows = equal if is_last else 0
            differing = [segment for segment in batch if segment.differs]
            yield structs.replace(
                self._examine(differing, grouping, dense=is_dense(batch)),
                through=self._place(interval[1] if is_last else batch[-1].high, last),
                source_rows=rows + sum(segment.source.rows for segment in batch),
                target_rows=rows + sum(segment.target.rows for segment in batch),
            )

    def _place(self, reached: int, last: int) -> Place | None:
        return (
            None if reached == last else Place(self._plan.source.primary_key, reached, self._hashed)
        )

    def _examine(
        self, differing: Sequence[Segment], grouping: Grouping, *, dense: bool
    ) -> IntervalDifferences:
        """Find the keys that differ in these segments."""
        if not differing:
            return IntervalDifferences(through=None)
        sides = self._sides
        if self._hashed:
            parts = slices(differing, grouping, hashed=True)
        else:
            parts = self._divide(differing, grouping.base, dense=dense)
        target = sides.read_target(parts)
        found = differing_keys(target, sides.read_source(parts))
        return self._proven(target, found)

    def _divide(self, differing: Sequence[Segment], base: int, *, dense: bool) -> list[Slice]:
        """Divide segments until their keys are few, and return what to read."""
        sides = self._sides
        small: list[Segment] = []
        parts: list[Slice] = []
        pending = list(differing)
        while pending:
            widths = defaultdict(list)
            for segment in pending:
                if buckets := key_buckets(segment):
                    parts += self._buckets(segment, buckets)
                else:
                    widths[next_width(segment, dense=dense)].append(segment)
            small += widths.pop(None, [])
            pending = []
            for width, wide in widths.items():
                assert width is not None
                grouping = Grouping(base=base, width=width)
                groups = sides.compare(slices(wide, grouping, hashed=False), grouping)
                narrow = segments(*groups, grouping, max(one.high for one in wide))
                pending += [segment for segment in narrow if segment.differs]
        return [*parts, *slices(small, Grouping(), hashed=False)]

    def _buckets(self, segment: Segment, grouping: Grouping) -> list[Slice]:
        """Divide the keys that begin with one number by their hash."""
        whole = Slice(ranges=((segment.low, segment.high),))
        source, target = self._sides.compare([whole], grouping)
        groups = [g for g in source.keys() | target.keys() if source.get(g) != target.get(g)]
        return [
            structs.replace(whole, grouping=grouping, groups=tuple(groups[at : at + MOST_GROUPS]))
            for at in range(0, len(groups), MOST_GROUPS)
        ]

    def _proven(self, target: list[KeyVersion], found: DifferingKeys) -> IntervalDifferences:
        """Look again for keys that the source seems to lack, and leave out what cannot be held."""
        gone = {one.key for one in found.gone}
        again = differing_keys(
            [row for row in target if row.key in gone], self._sides.look_up(sorted(gone, key=repr))
        )
        rows = unsupported_keys(
            self._extraction,
            self._plan,
            self._sides,
            [*found.missing, *found.stale, *found.duplicate, *again.stale, *again.duplicate],
        )
        moved = [*found.moved_out, *again.moved_out]
        rows |= unsupported_keys(
            self._extraction, self._plan, self._sides, [one.key for one in moved], dated=False
        )
        moved = [one for one in moved if one.key not in rows]
        stale = [*found.stale, *again.stale, *(one.key for one in moved)]
        return IntervalDifferences(
            through=None,
            deleted=again.gone,
            missing=[key for key in found.missing if key not in rows],
            stale=[key for key in stale if key not in rows],
            moved_out=moved,
            duplicate=[key for key in (*found.duplicate, *again.duplicate) if key not in rows],
            quarantined=len(rows),
        )
