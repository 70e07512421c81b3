"""The record that every run leaves in the lake.

    watermarks/runs/YYYYMMDD/SESSION_ID.json

It is written when the run begins (`running`), again every minute, and when the run ends. A run that
was killed leaves the record as it last was; the reader finds out (`floodmark.state.run_records`).
Records are for people and programs that watch: no sync depends on them.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from floodmark.model.run import WorkStage

Moment = Annotated[datetime, Meta(tz=True)]
RunStatus = Literal[
    "running", "success", "partial", "failed", "busy", "differs", "interrupted", "did not finish"
]
TableOutcome = Literal["success", "held_back", "differs", "busy", "failed"]


class TableRun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run did with one table."""

    table_name: str
    """`SCOPE:schema.table`."""
    status: TableOutcome = "success"
    """`success`, `held_back`, `differs`, `busy` (another run held it) or `failed`."""
    rows: int = 0
    """Rows extracted."""
    files: int = 0
    """Data files written."""
    bytes: int = 0
    """Bytes of these files."""
    loaded_rows: int = 0
    """Rows loaded into the target."""
    quarantined_rows: int = 0
    """Rows quarantined."""
    deleted_rows: int = 0
    """Rows deleted in the target, or marked as deleted."""
    found: dict[str, int] = {}
    """Rows that a reconciliation found `deleted`, `missing`, `stale` or `duplicate`."""
    verified_rows: int = 0
    """Rows compared with the source."""
    seconds: float = 0.0
    """Duration of the extraction."""
    load_seconds: float = 0.0
    """Duration of the load."""
    verify_seconds: float = 0.0
    """Duration of the comparison."""
    reconcile_seconds: float = 0.0
    """Duration of the reconciliation, with the loads that belong to it."""
    began_at: dict[WorkStage, Moment] = {}
    """When each stage began; `load` may begin while `extract` is running."""
    ended_at: Moment | None = None
    """When the run was done with the table."""
    fresh: Moment | None = None
    """The time up to which everything in the source was read."""
    loaded_fresh: Moment | None = None
    """The time up to which everything in the source was loaded, if the run knows it."""
    held_back: str | None = None
    """What kept newer rows from being read."""
    stage: WorkStage | None = None
    """The stage that failed, or that found a difference."""
    error: str | None = None
    """Why it failed."""
    hint: str | None = None
    """How to fix it."""
    exit_code: int = 0
    """The exit code of the error."""

    @property
    def is_idle(self) -> bool:
        """Whether there was nothing to do, and nothing went wrong."""
        moved = self.rows or self.files or self.has_changed or self.verified_rows
        compared = self.reconcile_seconds or self.found
        return self.status == "success" and not (moved or compared or self.held_back)

    @property
    def has_changed(self) -> bool:
        """Whether rows of it were loaded into the target, or deleted there."""
        return bool(self.loaded_rows or self.deleted_rows)


class RunNotice(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A notice of a run."""

    level: str
    """`info`, `warning` or `error`."""
    message: str
    """The text."""
    event: str | None = None
    """A stable name for programs."""
    table: str | None = None
    """The table that it is about."""


class RunRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run: who ran what, where and when, and what it did with each table."""

    version: Literal[1] = 1
    """Format version."""
    run_id: str
    """The session id."""
    command: str
    """`sync`, `verify`, `reconcile`, `backfill` or `takeover`."""
    options: dict[str, Any] = {}
    """The options, without defaults; they contain no secrets."""
    pipelines: tuple[str, ...] = ()
    """The pipelines that its tables belong to."""
    user: str = ""
    """User who ran it."""
    host: str = ""
    """Machine that it ran on."""
    program: str = ""
    """Version of Floodmark."""
    process: str = ""
    """Identity of the process; tells on the same machine whether it still runs."""
    every_seconds: float | None = None
    """The interval, if it is a round of `sync --every`."""
    status: RunStatus = "running"
    """`running`, `success`, `partial`, `failed`, `busy`, `differs` or `interrupted`; a reader shows
    `did not finish` for a run that was killed."""
    started_at: Moment
    """When it began."""
    seen_at: Moment
    """When the record was last written."""
    ended_at: Moment | None = None
    """When it ended."""
    error: str | None = None
    """Why it failed before or after all tables."""
    hint: str | None = None
    """How to fix that."""
    table_count: int = 0
    """Number of tables to work on."""
    tables: tuple[TableRun, ...] = ()
    """The tables with something to report, in the order in which they finished."""
    unchanged: dict[str, Moment | None] = {}
    """The tables that had nothing new, and the time up to which everything was read."""
    unchanged_loaded: bool = False
    """Whether everything was loaded up to these times, too."""
    notices: tuple[RunNotice, ...] = ()
    """Warnings and other notices, at most 200."""

    @property
    def rows(self) -> int:
        """Rows extracted."""
        return sum(table.rows for table in self.tables)

    @property
    def loaded_rows(self) -> int:
        """Rows loaded."""
        return sum(table.loaded_rows for table in self.tables)

    @property
    def deleted_rows(self) -> int:
        """Rows deleted in the target."""
        return sum(table.deleted_rows for table in self.tables)

    @property
    def failures(self) -> tuple[TableRun, ...]:
        """The tables that failed or differ; one that another run held did not fail."""
        return tuple(table for table in self.tables if table.status in ("failed", "differs"))

    @property
    def failed(self) -> bool:
        """Whether it needs attention: it failed, or did not finish."""
        return bool(self.failures) or self.status in ("failed", "partial", "did not finish")

    def of(self, table_name: str) -> TableRun | None:
        """Return what it did with a table; None if the table was not part of it, or not yet."""
        for table in self.tables:
            if table.table_name == table_name:
                return table
        if table_name in self.unchanged:
            ended = self.ended_at or self.seen_at
            fresh = self.unchanged[table_name]
            loaded = fresh if self.unchanged_loaded else None
            return TableRun(table_name=table_name, ended_at=ended, fresh=fresh, loaded_fresh=loaded)
        return None
