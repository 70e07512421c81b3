"""The guard: an emptied table or a wrong server must not empty the warehouse."""

from collections.abc import Callable, Sequence

from msgspec import Struct, structs

from floodmark.errors import DifferenceFound
from floodmark.model.reconcile_policy import Policy
from floodmark.model.reconcile_result import ReconcileResult
from floodmark.model.reconciled_state import ReconciledState
from floodmark.model.table import TableName
from floodmark.model.verification import SyncedRange
from floodmark.mysql.connection import query
from floodmark.mysql.predicates import cursor_predicate, relation
from floodmark.sync.loading import Loading
from floodmark.sync.plan import TablePlan
from floodmark.sync.reconcile_plan import target_table
from floodmark.sync.source import Source

_MOST_SHOWN = 10


class Excess(Struct, frozen=True, kw_only=True):
    """More deletes in a pass than are allowed."""

    total: int
    target_rows: int
    most: int

    def __str__(self) -> str:
        return (
            f"{self.total:,} of {self.target_rows:,} rows would be deleted, and 'max_deletes'"
            f" allows {self.most:,}"
        )


def excess_deletes(
    policy: Policy,
    allowed: int,
    loading: Loading,
    plan: TablePlan,
    state: ReconciledState | None,
    found: ReconcileResult,
    *,
    marked: str | None,
    has_source_rows: Callable[[], bool],
) -> Excess | None:
    """Return what is too much; None if all deletes are allowed, or none is applied.

    `state` is that of the pass, all of whose deletes count; None for a run over a range alone. Rows
    that are `marked` as deleted do not count. `has_source_rows` looks at all synced rows of the
    source: this run may have compared only those that are gone.
    """
    if policy.deletes == "report" or not found.deleted:
        return None
    rows = found.target_rows
    if not found.complete or (state and state.place):  # not the whole table was compared
        table = structs.replace(target_table(plan, loading), deleted_at=marked)
        with loading.open_target() as target:
            rows = target.count(table) or 0
    most = policy.most_deletes(target_rows=rows, has_source_rows=has_source_rows)
    total = (state.deleted if state else 0) + len(found.deleted)
    return Excess(total=total, target_rows=rows, most=most) if total > max(most, allowed) else None


def has_synced_rows(source: Source, plan: TablePlan, ranges: Sequence[SyncedRange]) -> bool:
    """Return whether the source has any row within the synced ranges."""
    table, cursor = plan.source, plan.choice.cursor
    counted = " OR ".join(f"({cursor_predicate(table, cursor, r.start, r.end)})" for r in ranges)
    statement = f"SELECT 1 FROM {relation(table)} WHERE ({counted}) AND {source.server.guard}"  # noqa: S608
    with source.session() as session:
        return bool(query(session, f"{statement} LIMIT 1"))


def refusal(
    table: TableName, policy: Policy, excess: Excess, found: ReconcileResult
) -> DifferenceFound:
    """Return the error, with some of the keys and the command that allows the deletes."""
    sample = "; ".join(
        ", ".join(f"{name} = {value}" for name, value in key.items())
        for _, key in found.sample(_MOST_SHOWN)
    )
    return DifferenceFound(
        f"{table}: {excess}; nothing was changed. The first keys: {sample}",
        hint="check that this is the right server, and that the table was not emptied by mistake;"
        f" then 'floodmark reconcile -t {table} --deletes {policy.deletes} --allow-deletes"
        f" {excess.total}' deletes them",
    )
