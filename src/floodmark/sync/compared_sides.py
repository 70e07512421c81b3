"""The two sides of a comparison: both databases are asked at the same time.

The target has one session, as it divides the work by itself. MySQL runs a statement on one core, so
several statements are spread over a few sessions.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct, structs

from floodmark.errors import UsageError
from floodmark.model.cursor import Cursor
from floodmark.model.extraction import Window
from floodmark.model.fingerprint import (
    LARGEST_DIGEST,
    Hashing,
    NumberKind,
    moment,
    nearest_moment,
    number_kind,
)
from floodmark.model.load import TargetTable
from floodmark.model.manifest import Column
from floodmark.model.position import START, Position
from floodmark.model.reconciliation import (
    ALL_ROWS,
    NO_VERSION,
    Fingerprint,
    Grouping,
    Key,
    Slice,
    Version,
)
from floodmark.model.schema import SourceColumn, SourceTable
from floodmark.model.timestamps import plain
from floodmark.model.verification import SyncedRange
from floodmark.mysql.connection import MysqlSession
from floodmark.mysql.fingerprints import SourceSide, covering_index
from floodmark.mysql.predicates import cursor_predicate, key_columns
from floodmark.planning.cursor import version_column
from floodmark.planning.differing_keys import KeyVersion
from floodmark.planning.segments import (
    VersionComparison,
    balanced,
    compare_groups,
    divided_ranges,
    intervals,
    version_grouping,
    version_range,
)
from floodmark.planning.verify_ranges import contains_versions, synced_versions, target_extents
from floodmark.sync.plan import TablePlan
from floodmark.sync.source import Source
from floodmark.warehouse.target import ComparedTable, Target

Groups = dict[int, Fingerprint]
Result = TypeVar("Result")

SESSIONS = 4
"""Sessions with the source at the same time."""
_MANY_ROWS = 100_000
_VERSION_PIECES = 16
_KEYS_AT_ONCE = 500


class Shape(Struct, frozen=True, kw_only=True):
    """How key and version of a table become numbers."""

    key: tuple[NumberKind, ...]
    version: tuple[SourceColumn, NumberKind] | None

    @property
    def leading(self) -> NumberKind:
        """How the first column of the key becomes a number."""
        return self.key[0]

    @property
    def hashed(self) -> bool:
        """Whether no index serves a range of the leading number."""
        return self.leading not in ("integer", "moment")


def compared_shape(table: SourceTable, cursor: Cursor) -> Shape:
    """Return how a table's rows become numbers; UsageError if they cannot be compared."""
    if not table.primary_key:
        raise UsageError(
            f"{table.name} has no primary key, so its rows cannot be identified in the target",
            hint="add a primary key, or a unique key over NOT NULL columns",
        )
    if cursor.kind == "none":
        raise UsageError(
            f"{table.name} has no cursor: every sync reads it in full, deletes included"
        )
    kinds = []
    for column in key_columns(table):
        kind = number_kind(column)
        if kind is None:
            raise UsageError(
                f"{table.name}: {column.name} is part of the primary key and {column.column_type},"
                " which databases do not print alike, so keys cannot be compared inside them"
            )
        kinds.append(kind)
    return Shape(key=tuple(kinds), version=_version(table, cursor))


def _version(table: SourceTable, cursor: Cursor) -> tuple[SourceColumn, NumberKind] | None:
    name = version_column(table, cursor)
    column = table.column(name) if name else None
    kind = number_kind(column) if column else None
    return (column, kind) if column and kind in ("integer", "moment") else None


class ComparedSides:
    """Source and target of one table, and how to read both."""

    def __init__(
        self,
        source: Source,
        target: Target,
        closing: ExitStack,
        plan: TablePlan,
        shape: Shape,
        *,
        target_name: str,
        ranges: Sequence[SyncedRange],
        loaded: Position,
        all_shown: bool,
        hashing: Hashing,
        deleted_at: str | None,
        check: Callable[[], None],
    ) -> None:
        table, cursor = plan.source, plan.choice.cursor
        self.shape = shape
        self.target = target
        self._ranges = tuple(ranges)
        self.rows = table.estimated_rows
        self._server = source
        self._check = check
        self._plan = plan
        synced = (f"({cursor_predicate(table, cursor, r.start, r.end)})" for r in ranges)
        self._source = SourceSide(
            table=table,
            key=shape.key,
            version=shape.version,
            hashing=hashing,
            counted=" OR ".join(synced) or "FALSE",
            later=cursor_predicate(table, cursor, loaded, START),
            guard=source.server.guard,
        )
        in_target = [SyncedRange(ranges[0].start, START)] if all_shown and ranges else ranges
        self._odd_keys = 0
        self._compared = ComparedTable(
            table=TargetTable(
                name=target_name,
                columns=tuple(Column(c.name, c.type, c.nullable, c.arrow) for c in plan.columns),
                primary_key=table.primary_key,
                version=shape.version[0].name if shape.version else None,
            ),
            key=shape.key,
            version=shape.version[1] if shape.version else None,
            hashing=hashing,
            extents=tuple(target_extents(table, cursor, _window(r)) for r in in_target),
            or_null=cursor.columns[0] if all_shown and ranges else None,
            deleted_at=deleted_at,
        )
        self._of_source = closing.enter_context(
            ThreadPoolExecutor(source.sessions_at_once(SESSIONS))
        )
        self._of_target = closing.enter_context(ThreadPoolExecutor(1))
        closing.callback(self._of_source.shutdown, wait=False, cancel_futures=True)

    @property
    def has_covering_index(self) -> bool:
        """Whether the source reads an index instead of all rows."""
        return covering_index(self._source) is not None

    @property
    def has_lines(self) -> bool:
        """Whether a row's key is one integer, so that ranges of it can be read as lines."""
        return self.shape.key == ("integer",)

    @property
    def table(self) -> TargetTable:
        """The target's table."""
        return self._compared.table

    def take_odd_keys(self) -> int:
        """Return how many rows of the target were read since whose key no source can have."""
        found, self._odd_keys = self._odd_keys, 0
        return found

    def count_without_key(self) -> int:
        """Count the rows of the target without a key."""
        return self._of_target.submit(self.target.count_without_key, self._compared).result()

    def bounds(self) -> tuple[int, int] | None:
        """Return the least and greatest leading number of both sides; None if both are empty."""
        if self.shape.hashed:
            return 0, LARGEST_DIGEST
        there = self._of_target.submit(self.target.key_bounds, self._compared)
        here = self._ask(self._source.bounds)
        found = [ends for ends in (here.result(), there.result()) if ends]
        lows, highs = zip(*found, strict=True) if found else ((), ())
        return (min(lows), max(highs)) if found else None

    def compare_versions(self) -> VersionComparison | None:
        """Compare all rows by ranges of the version; None if that is not possible or not fast.

        The source needs no groups for it: it reads the ranges one after another from an index that
        is much smaller than the table.
        """
        index = covering_index(self._source)
        if index is None or self.rows < _MANY_ROWS:
            return None
        self._check()
        synced = synced_versions(self._ranges)
        bounds = self._ask(self._source.version_bounds, synced).result()
        if bounds is None:
            return None
        grouping = version_grouping(*bounds)
        there = self._of_target.submit(self.target.fingerprints, self._compared, ALL_ROWS, grouping)
        pieces = self._ask(self._version_pieces, bounds, grouping, index).result()
        asked = [(group, self._ask_versions(ends, index)) for group, ends in pieces]
        here: Groups = {}
        for group, one in asked:
            here[group] = here.get(group, Fingerprint()) + one.result()
        here = {group: found for group, found in here.items() if found.rows}
        in_target = there.result()
        if NO_VERSION in in_target:
            return None  # no range of versions contains these rows
        return compare_groups(here, in_target, grouping)

    def _version_pieces(
        self, session: MysqlSession, bounds: tuple[int, int], grouping: Grouping, index: str
    ) -> list[tuple[int, tuple[int, int]]]:
        """Divide groups of versions so that all sessions have about as much to read."""
        estimate = partial(self._source.estimate, session, index)
        most = max(self.rows, estimate(bounds)) // _VERSION_PIECES  # the former may be out of date
        return [
            (group, piece)
            for group in range(bounds[0] // grouping.width, bounds[1] // grouping.width + 1)
            for piece in balanced(version_range(grouping, group), estimate, most)
        ]

    def _ask_versions(self, ends: tuple[int, int], index: str) -> "Future[Fingerprint]":
        """Ask the source for the fingerprint of a range of versions."""
        is_cursor = self._plan.choice.cursor.timestamp == self._compared.table.version
        all_count = is_cursor and contains_versions(self._ranges, *ends)
        read = partial(self._source.fingerprint, index=index, all_count=all_count)
        return self._ask(read, Slice(versions=(ends,)))

    def scan(self, part: Slice, grouping: Grouping) -> tuple[Groups, Groups]:
        """Return the fingerprints of a whole table, by group."""
        self._check()
        there = self._of_target.submit(self.target.fingerprints, self._compared, part, grouping)
        read = partial(self._source.fingerprints, index=covering_index(self._source))
        divided = divided_ranges(part.versions, SESSIONS)
        pieces = [structs.replace(part, versions=versions) for versions in divided] or [part]
        here = [self._ask(read, piece, grouping) for piece in pieces]
        return _total(here), there.result()

    def read_lines(self, part: Slice) -> tuple[list[str], str] | None:
        """Return lines of keys and versions of both sides; None if they are too many."""
        self._check()
        low, high = part.ranges[0]
        there = self._of_target.submit(self.target.key_lines, self._compared, part)
        read = partial(self._source.key_lines, index=self._key_index)
        pieces = intervals(low, high, SESSIONS, 1)
        answers = [self._ask(read, Slice(ranges=(piece,))) for piece in pieces]
        here = [answer.result() for answer in answers]
        lines = there.result()
        texts = [text for text in here if text is not None]
        return None if lines is None or len(texts) < len(here) else (texts, lines)

    def compare(self, parts: Sequence[Slice], grouping: Grouping) -> tuple[Groups, Groups]:
        """Return the fingerprints of these slices, by group."""
        self._check()
        there = [
            self._of_target.submit(self.target.fingerprints, self._compared, part, grouping)
            for part in parts
        ]
        read = partial(self._source.fingerprints, index=self._key_index)
        here = [self._ask(read, part, grouping) for part in parts]
        return _total(here), _total(there)

    def read_target(self, parts: Sequence[Slice]) -> list[KeyVersion]:
        """Read the rows of the target."""
        self._check()
        rows = ((*row, 0) for part in parts for row in self.target.keys(self._compared, part))
        return list(self._rows(rows))

    def read_source(self, parts: Sequence[Slice]) -> list[KeyVersion]:
        """Read the rows of the source."""
        read = partial(self._source.read, index=self._key_index)
        answers = [self._ask(read, part) for part in parts]
        return list(self._rows(row for answer in answers for row in answer.result()))

    def look_up(self, keys: Sequence[Key]) -> list[KeyVersion]:
        """Read the rows of the source with these keys."""
        answers = [
            self._ask(self._source.look_up, keys[at : at + _KEYS_AT_ONCE])
            for at in range(0, len(keys), _KEYS_AT_ONCE)
        ]
        return list(self._rows(row for answer in answers for row in answer.result()))

    def key_of(self, values: Sequence[Any]) -> Key:
        """Return the key of a row that was read in full."""
        parts = zip(key_columns(self._plan.source), self.shape.key, values, strict=True)
        return tuple(_plain_value(*part) for part in parts)

    @property
    def _key_index(self) -> str | None:
        table = self._plan.source
        return table.key_index if table.has_ordered_key and not self.shape.hashed else None

    def _ask(self, read: Callable[..., Result], *arguments: Any) -> "Future[Result]":
        """Ask the source in a session and a thread of its own."""

        def asked() -> Result:
            with self._server.session() as session:
                return read(session, *arguments)

        return self._of_source.submit(asked)

    def _rows(self, rows: Iterable[tuple[Any, ...]]) -> Iterable[KeyVersion]:
        """Return rows with the same values for the same keys, whichever side they are from."""
        columns = key_columns(self._plan.source)
        for *values, version, counts, later in rows:
            if None in values:  # a zero date: the target cannot hold such a key
                continue
            parts = zip(columns, self.shape.key, values, strict=True)
            try:
                key = tuple(key_value(*part) for part in parts)
            except OverflowError:  # a time in the target that no source can have
                self._odd_keys += 1
                continue
            yield KeyVersion(key, self._version(version), bool(counts), bool(later))

    def _version(self, number: Any) -> Version:
        if number is None or self.shape.version is None:
            return None
        # Somebody may have put a time into the target that no source can have.
        is_time = self.shape.version[1] == "moment"
        return nearest_moment(int(number)) if is_time else int(number)


def key_value(column: SourceColumn, kind: NumberKind, value: Any) -> int | str:
    """Return a key column's value as `keys_predicate` takes it, from what a side sent."""
    match kind:
        case "integer":
            return int(value)
        case "moment" if column.data_type == "date":
            return moment(int(value)).date().isoformat()
        case "moment":
            return plain(moment(int(value)))
        case "binary":
            return f"0x{value}"
    return str(value)


def _plain_value(column: SourceColumn, kind: NumberKind, value: Any) -> int | str:
    """Return a value of an Arrow column in the same form as `key_value`."""
    match kind:
        case "integer":
            return int(value)
        case "moment" if column.data_type == "date":
            return str(value.isoformat())
        case "moment":
            return plain(value)
        case "binary":
            return f"0x{value.hex()}"
        case "decimal":
            text = str(value) if isinstance(value, str) else format(value, "f")
            return text.rstrip("0").rstrip(".") if "." in text else text
    return str(value)


def _total(answers: Iterable["Future[Groups]"]) -> Groups:
    """Add up fingerprints that several statements found."""
    groups: Groups = {}
    for answer in answers:
        for group, found in answer.result().items():
            groups[group] = groups[group] + found if group in groups else found
    return groups


def _window(synced: SyncedRange) -> Window:
    return Window(part=0, start=synced.start, end=synced.end, predicate="")
