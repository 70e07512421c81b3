"""Compare windows: by checksums in both databases, and row by row where those differ.

    checksums of both sides → equal: no row is read
                            → other: a suspicion, which the comparison row by row confirms or not

Columns without a common text in both databases are read together with the key. They are compared on
Spark, as are all columns of windows with a suspicion; a few rows are compared in this process.

A target that keeps JSON by its meaning may spell it as the source does, or not. If a sample or the
first window shows that it does not, checksums would prove nothing, and all rows are read, once.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeVar

from msgspec import structs

from floodmark.errors import AnotherServer, FloodmarkError, Unrepresentable
from floodmark.model.extraction import Window
from floodmark.model.load import TargetTable
from floodmark.model.manifest import Column
from floodmark.model.position import Position
from floodmark.model.row_checksums import CheckedColumn
from floodmark.model.verification import (
    NO_ROWS,
    Checksum,
    Comparison,
    SyncedRange,
    WindowPair,
)
from floodmark.mysql.connection import MysqlSession
from floodmark.mysql.predicates import keys_predicate, relation
from floodmark.mysql.row_checksums import SourceChecksums
from floodmark.planning.cursor import version_column
from floodmark.planning.row_checksums import ComparedColumns
from floodmark.planning.verify_ranges import compared_cursor, target_extents
from floodmark.sync.extraction import Extraction
from floodmark.sync.extraction_job import extraction_job
from floodmark.sync.plan import TablePlan
from floodmark.sync.read_windows import compare_windows
from floodmark.warehouse.target import Target

if TYPE_CHECKING:
    from floodmark.worker.compare_window import VerificationJob

Asked = TypeVar("Asked")
Result = TypeVar("Result")

MOST_SHOWN = 20
_SOURCE_CONNECTIONS = 4
_MOST_ROWS_HERE = 20_000
_MOST_BYTES_HERE = 32_000_000
_SPELLED = "the databases spell JSON differently"


class WindowComparison:
    """Compare windows of one table."""

    def __init__(
        self,
        extraction: Extraction,
        plan: TablePlan,
        target_name: str,
        open_target: Callable[[], Target],
        columns: ComparedColumns,
        ranges: Sequence[SyncedRange],
        loaded: Position,
        deleted_at: str | None = None,
    ) -> None:
        self._extraction = extraction
        self._row_bytes = max(1, plan.source.average_row_bytes)
        self._open_target = open_target
        self._checked = columns.checked
        self._remark: str | None = None
        self._rows: dict[int, int] = {}
        self._plan = plan
        self._columns = columns
        self._ranges = tuple(ranges)
        self._loaded = loaded
        self._table = TargetTable(
            name=target_name,
            columns=tuple(Column(c.name, c.type, c.nullable, c.arrow) for c in plan.columns),
            primary_key=plan.source.primary_key,
            version=None,
            deleted_at=deleted_at,
        )
        self._read = columns.read
        self._spelled = {column.name for column in columns.checked} & {*columns.by_meaning}
        self._probes = bool(self._spelled)

    @property
    def read_columns(self) -> tuple[str, ...]:
        """The columns that were read row by row in every window."""
        return self._read

    def count_outside(self) -> int:
        """Count the rows of the target that no window contains."""
        source, cursor = self._plan.source, self._plan.choice.cursor
        if cursor.kind == "none":
            return 0
        windows = (Window(part=0, start=r.start, end=r.end, predicate="") for r in self._ranges)
        with self._open_target() as target:
            return target.count_outside(
                self._table, [target_extents(source, cursor, window) for window in windows]
            )

    @property
    def are_disjoint(self) -> bool:
        """Whether no row of the target is in two windows."""
        source, cursor = self._plan.source, self._plan.choice.cursor
        return len(self._ranges) == 1 or compared_cursor(source, cursor) == cursor

    def count_rows(self) -> int:
        """Count the rows of the target."""
        with self._open_target() as target:
            return target.count(self._table) or 0

    def compare(self, pairs: Sequence[WindowPair]) -> list[Comparison]:
        """Compare windows that follow each other."""
        self._rows = {}
        equal = self._equal_by_checksum(pairs) if self._checked else {}
        if self._read and equal:
            equal = self._compare_rest([p for p in pairs if p.window.part in equal])
        suspicions = [pair for pair in pairs if pair.window.part not in equal]
        found = {c.part: c for c in self._compare_rows(self._job, suspicions)} if suspicions else {}
        in_vain = [c for c in found.values() if c.agrees]
        if self._spelled and self._checked and 2 * len(in_vain) > len(pairs) > 1:
            self._read_all(_SPELLED)
        return self._with_remark([(equal | found)[pair.window.part] for pair in pairs])

    def _equal_by_checksum(self, pairs: Sequence[WindowPair]) -> dict[int, Comparison]:
        """Return the comparisons of windows whose checksums are equal, by part."""
        try:
            if not self._probes or len(pairs) == 1:
                return self._compare_checksums(self._checked, pairs)
            self._probes = False
            if self._mostly_respelled(pairs[0]):
                self._read_all(_SPELLED)
                return {}
            equal = self._compare_checksums(self._checked, pairs[:1])
            others = [column for column in self._checked if column.name not in self._spelled]
            if not equal and self._compare_checksums(others, pairs[:1]):
                self._read_all(_SPELLED)
                return {}
            return equal | self._compare_checksums(self._checked, pairs[1:])
        except AnotherServer:
            raise
        except FloodmarkError as error:
            self._read_all(f"checksums failed: {error.message}")
            return {}

    def _mostly_respelled(self, pair: WindowPair) -> bool:
        """Whether the target spells most documents of a sample differently."""
        source = self._source_checksums(self._checked)
        with self._extraction.source.session() as session:
            samples = [
                source.documents(session, pair.window.predicate, name) for name in self._spelled
            ]
        with self._open_target() as target, suppress(Unrepresentable):  # one is in quarantine
            return any(2 * target.count_respelled(sample) > len(sample) for sample in samples)
        return False

    def _read_all(self, reason: str) -> None:
        """Compare all columns row by row from now on."""
        self._checked, self._read = (), tuple(c.name for c in self._table.columns)
        self._rows = {}
        self._remark = f"compared row by row, as {reason}"

    def _compare_checksums(
        self, checked: Sequence[CheckedColumn], pairs: Sequence[WindowPair]
    ) -> dict[int, Comparison]:
        """Return the comparisons of windows whose checksums are equal in these columns, by part."""
        sums = self._checksums(checked, pairs)
        self._rows |= {
            pair.window.part: max(source.rows, target.rows)
            for pair, source, target in sums
            if source is not None
        }
        return {
            pair.window.part: Comparison(
                part=pair.window.part, source=source, target=target, by_checksum=True
            )
            for pair, source, target in sums
            if source == target
        }

    def _checksums(
        self, checked: Sequence[CheckedColumn], pairs: Sequence[WindowPair]
    ) -> list[tuple[WindowPair, Checksum | None, Checksum]]:
        """Compute the checksums of both sides at the same time; an error ends what is left."""
        source = self._source_checksums(checked)
        wanted = min(_SOURCE_CONNECTIONS, len(pairs))
        with ExitStack() as closing:
            sessions = self._extraction.source.sessions_at_once(wanted)
            pool = closing.enter_context(ThreadPoolExecutor(1 + sessions))
            closing.callback(pool.shutdown, wait=False, cancel_futures=True)
            target = pool.submit(self._of_target, checked, pairs)
            statements = pool.map(lambda pair: self._ask(source.statements, pair.window), pairs)
            parts = [
                [pool.submit(self._ask, source.read, statement) for statement in window]
                for window in statements
            ]
            sources = [_total([part.result() for part in window]) for window in parts]
            return list(zip(pairs, sources, target.result(), strict=True))

    def _source_checksums(self, checked: Sequence[CheckedColumn]) -> SourceChecksums:
        return SourceChecksums(
            self._plan.source,
            self._plan.columns,
            checked,
            index=self._plan.route.index,
            guard=self._extraction.source.server.guard,
            zero_dates=self._extraction.settings.zero_dates,
        )

    def _ask(self, read: Callable[[MysqlSession, Asked], Result], of: Asked) -> Result:
        with self._extraction.source.session() as session:
            return read(session, of)

    def _of_target(
        self, checked: Sequence[CheckedColumn], pairs: Sequence[WindowPair]
    ) -> list[Checksum]:
        with self._open_target() as target:
            return target.checksums(self._table, checked, [pair.extents for pair in pairs])

    def _compare_rest(self, pairs: Sequence[WindowPair]) -> dict[int, Comparison]:
        """Compare the columns without a checksum, with the key; return the equal windows."""
        found = self._compare_rows(_narrowed(self._job, self._read), pairs)
        return {c.part: structs.replace(c, by_checksum=True) for c in found if c.source == c.target}

    def _compare_rows(
        self, job: "VerificationJob", pairs: Sequence[WindowPair]
    ) -> list[Comparison]:
        """Compare windows row by row; a few rows here, as Spark takes seconds to start."""
        rows = sum(self._rows.get(pair.window.part, _MOST_ROWS_HERE + 1) for pair in pairs)
        if rows <= _MOST_ROWS_HERE and rows * self._row_bytes <= _MOST_BYTES_HERE:
            with suppress(FloodmarkError):  # Spark tries again, and reports the error
                return _compare_here(job, pairs)
        return compare_windows(self._extraction, job, pairs)

    @cached_property
    def _job(self) -> "VerificationJob":
        """The job for workers; described when it is first needed, as its imports take time."""
        from floodmark.worker.compare_window import VerificationJob

        source = self._plan.source
        return VerificationJob(
            source=extraction_job(self._extraction, self._plan, source.name, 0),
            table=self._table,
            json_columns=self._columns.by_meaning,
            lookup=relation(source),
            keys=partial(keys_predicate, source),
            open_target=self._open_target,
            synced=self._ranges,
            loaded=self._loaded,
            version=version_column(source, self._plan.choice.cursor),
            most_shown=MOST_SHOWN,
        )

    def _with_remark(self, comparisons: list[Comparison]) -> list[Comparison]:
        if self._remark is None:
            return comparisons
        remark, self._remark = self._remark, None
        first, *others = comparisons
        return [structs.replace(first, remarks=(remark, *first.remarks)), *others]


def _total(parts: Sequence[Checksum | None]) -> Checksum | None:
    """Add up the checksums of the parts of a window; None if one is missing."""
    found = [part for part in parts if part is not None]
    return None if len(found) < len(parts) else sum(found, NO_ROWS)


def _compare_here(job: "VerificationJob", pairs: Sequence[WindowPair]) -> list[Comparison]:
    """Compare windows in this process; FloodmarkError if that fails.

    They are streamed: it takes little memory, and changes nothing that other threads may use.
    """
    from floodmark.worker.compare_window import compare_window

    streamed = (
        WindowPair(structs.replace(pair.window, streamed=True), pair.extents) for pair in pairs
    )
    return [compare_window(job, pair) for pair in streamed]


def _narrowed(job: "VerificationJob", names: Sequence[str]) -> "VerificationJob":
    """Return the comparison of some columns, with the key and the cursor."""
    kept = {*names, *job.table.primary_key, *job.source.cursor.columns, job.version}
    return structs.replace(
        job,
        source=structs.replace(
            job.source, columns=tuple(c for c in job.source.columns if c.name in kept)
        ),
        table=structs.replace(
            job.table, columns=tuple(c for c in job.table.columns if c.name in kept)
        ),
    )
