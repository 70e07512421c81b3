"""What a project reads from its lake: the state of tables, runs, the mirror's lag."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from floodmark.api.arguments import Names, Table, expect, expect_flags
from floodmark.api.context import RunContext
from floodmark.api.runner import Runner
from floodmark.model.table import TableName

if TYPE_CHECKING:
    from floodmark.api.runs import TableHistory
    from floodmark.api.status import TableStatus
    from floodmark.model.run_record import RunRecord
    from floodmark.state.last_drill import LastDrill
    from floodmark.state.mirror import MirrorState
    from floodmark.state.mirror_lag import TableLag


class ProjectReader:
    """The part of a project that only reads the configuration and the lake.

    Every call reads the current state; all may be made from any thread at any time.
    """

    def __init__(self, runner: Runner, *, one_command: bool) -> None:
        self.config = runner.config
        self._runner = runner
        self._one_command = one_command

    @property
    def tables(self) -> tuple[TableName, ...]:
        """The tables of the configuration."""
        return tuple(self.config.tables)

    @property
    def session_id(self) -> str:
        """The session id of the current or last run, or of the first one to come."""
        return self._runner.current.run.session_id

    def find_table(self, table: Table) -> TableName:
        """Return the full name of a table; UsageError if it matches none or several."""
        return self._run_of_call().table(table)

    def select_tables(self, tables: Names = None, pipelines: Names = None) -> tuple[TableName, ...]:
        """Return the tables that a call with these arguments works on; by default all."""
        return tuple(self._run_of_call().selected(tables, pipelines))

    def status(self, tables: Names = None, pipelines: Names = None) -> "tuple[TableStatus, ...]":
        """Return the state of each table, the worst first, from the lake alone.

        By default all tables of the configuration, and those in the lake that are no longer in it.
        """
        from floodmark.api.status import read_status

        return read_status(self.reading(), tables, pipelines)

    def runs(
        self, *, pipelines: Names = None, failed: bool = False, most: int | None = None
    ) -> "Iterator[RunRecord]":
        """Yield the recorded runs, newest first.

        pipelines   only runs with tables of these
        failed      only runs that failed, or did not finish
        most        at most this many
        """
        from floodmark.api.runs import read_runs

        expect_flags(failed=failed)
        expect("most", most, int, optional=True)
        return read_runs(self.reading(), pipelines, failed=failed, most=most)

    def run(self, run_id: str) -> "RunRecord":
        """Return the record of a run, given its id or the beginning of it."""
        from floodmark.api.runs import read_run

        expect("run_id", run_id, str)
        return read_run(self.reading(), run_id)

    def history(self, table: Table, *, days: int = 30) -> "TableHistory":
        """Return what happened to a table: rows per day, commits, runs and recoveries."""
        from floodmark.api.runs import read_history

        expect("days", days, int)
        run = self.reading()
        return read_history(run, run.table(table), days=days)

    @property
    def mirror_state(self) -> "MirrorState | None":
        """How far the mirror is behind, as the last run left it; None if there is none."""
        from floodmark.state.mirror import read_mirror_state

        return read_mirror_state(self._runner.raw_lake) if self._runner.mirror else None

    def mirror_lag(self, table: Table) -> "TableLag | None":
        """Compare the mirror's state of a table with the lake's; None if they are equal."""
        from floodmark.state.mirror_lag import measure_lag

        name = self.new_run().table(table)
        return measure_lag(self._runner.raw_lake, self._runner.required_mirror.open(), name)

    @property
    def last_drill(self) -> "LastDrill | None":
        """The result of the last drill; None if there was none."""
        from floodmark.state.last_drill import read_last_drill

        return read_last_drill(self._runner.raw_lake)

    def _run_of_call(self) -> RunContext:
        return self._runner.current if self._one_command else self.new_run()

    def new_run(self) -> RunContext:
        """Return a context with fresh state and its own session id."""
        return self._runner.new_run()

    def reading(self) -> RunContext:
        """Return such a context that only reads the lake, and does not need the mirror."""
        return self._runner.reading()
