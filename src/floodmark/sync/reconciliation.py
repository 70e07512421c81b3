"""How tables are reconciled in a run."""

from collections.abc import Callable

from msgspec import Struct

from floodmark.model.reconcile_policy import Policy
from floodmark.model.reconciliation import IntervalDifferences
from floodmark.planning.reconcile_ranges import CursorRange
from floodmark.sync.extraction import Extraction
from floodmark.sync.loading import Loading
from floodmark.sync.plan import TablePlan


class Reconciliation(Struct, frozen=True, kw_only=True):
    """How to reconcile a table in this run.

    `allowed` is how many deletes the operator allows, if that is more than the policy does. With
    `dry_run` nothing is changed. A `scheduled` run only notes that a table cannot be compared.
    `known` returns differences that a verification found: then only these are repaired.
    """

    extraction: Extraction
    loading: Loading
    policy: Policy
    within: CursorRange = CursorRange()
    allowed: int = 0
    dry_run: bool = False
    scheduled: bool = False
    known: Callable[[TablePlan], IntervalDifferences] | None = None
