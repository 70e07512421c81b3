"""The guard: an emptied table or a wrong server must not empty the warehouse."""

from msgspec import Struct

from floodmark.errors import DifferenceFound
from floodmark.model.reconcile_policy import Policy
from floodmark.model.reconcile_result import ReconcileResult
from floodmark.model.reconciled_state import ReconciledState
from floodmark.model.table import TableName
from floodmark.sync.load import Loading
from floodmark.sync.plan import TablePlan
from floodmark.sync.reconcile_plan import target_table

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
) -> Excess | None:
    """Return what is too much; None if all deletes are allowed, or none is applied.

    `state` is that of the pass, all of whose deletes count; None for a run over a range alone.
    """
    if policy.deletes == "report" or not found.deleted:
        return None
    before, compared = (state.deleted, state.rows) if state else (0, 0)
    rows = found.target_rows
    if not found.complete or (state and state.place):  # not the whole table was compared
        with loading.open_target() as target:
            rows = target.count(target_table(plan, loading)) or 0
    most = policy.most_deletes(target_rows=rows, source_rows=compared + found.source_rows)
    total = before + len(found.deleted)
    return Excess(total=total, target_rows=rows, most=most) if total > max(most, allowed) else None


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
