"""Build the reconciliation of a table from the configuration and the options of a run."""

from datetime import datetime
from typing import Any

from msgspec import Struct, structs

from floodmark.api.arguments import expect, expect_flags
from floodmark.api.context import RunContext
from floodmark.errors import UsageError
from floodmark.model.reconcile_policy import Deletes, Policy
from floodmark.model.table import TableName
from floodmark.planning.reconcile_ranges import CursorRange
from floodmark.sync.extraction import Extraction
from floodmark.sync.loading import Loading
from floodmark.sync.reconciliation import Reconciliation

_DELETES = ("hard", "soft", "report")


class ReconcileOptions(Struct, frozen=True, kw_only=True):
    """What a caller asked for; None keeps what the configuration says.

    start, end      compare only rows with these values of the cursor, inclusive
    allow_deletes   how many rows may be deleted, if that is more than `max_deletes`
    """

    deletes: Deletes | None = None
    allow_deletes: int | None = None
    start: datetime | int | str | None = None
    end: datetime | int | str | None = None
    seconds: float | None = None
    segments: int | None = None
    dry_run: bool = False

    @property
    def given(self) -> dict[str, Any]:
        """The options that are not defaults, as values for JSON."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return {
            name: _text(value) if isinstance(value, datetime) else value
            for name, value in values.items()
            if value not in (None, False)
        }

    def check(self) -> None:
        """Raise UsageError for arguments of a wrong type, or out of range."""
        expect("deletes", self.deletes, str, optional=True)
        expect("allow_deletes", self.allow_deletes, int, optional=True)
        expect("start", self.start, datetime, int, str, optional=True)
        expect("end", self.end, datetime, int, str, optional=True)
        expect("seconds", self.seconds, float, int, optional=True)
        expect("segments", self.segments, int, optional=True)
        expect_flags(dry_run=self.dry_run)
        if self.deletes is not None and self.deletes not in _DELETES:
            raise UsageError(f"deletes must be one of {', '.join(_DELETES)}, not {self.deletes!r}")
        for name, least in (("allow_deletes", 0), ("seconds", 0), ("segments", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise UsageError(f"{name} {value} is too small")

    def applied_to(self, policy: Policy) -> Policy:
        """Return the policy with what the caller asked for."""
        budgeted = self.seconds is not None or self.segments is not None
        return structs.replace(
            policy,
            deletes=self.deletes or policy.deletes,
            seconds=self.seconds if budgeted else policy.seconds,
            segments=self.segments if budgeted else policy.segments,
        )


def reconciliation_of(
    run: RunContext,
    table: TableName,
    extraction: Extraction,
    loading: Loading,
    options: ReconcileOptions | None,
) -> Reconciliation:
    """Return how to reconcile a table; without options, as its schedule does."""
    policy = run.config.reconcile_policy(table)
    if options is None:
        return Reconciliation(extraction=extraction, loading=loading, policy=policy, scheduled=True)
    policy = options.applied_to(policy)
    if options.allow_deletes and policy.deletes == "report":
        raise UsageError(
            f"{table}: no deletes to allow: its deleted rows are only reported",
            hint="choose 'hard' or 'soft' deletes as well",
        )
    return Reconciliation(
        extraction=extraction,
        loading=loading,
        policy=policy,
        within=CursorRange(first=_text(options.start), last=_text(options.end)),
        allowed=options.allow_deletes or 0,
        dry_run=options.dry_run,
    )


def is_due(run: RunContext, table: TableName) -> bool:
    """Return whether the schedule asks for a reconciliation after this sync."""
    watermark = run.store.known(table)
    if watermark is None:
        return False
    policy = run.config.reconcile_policy(table)
    return policy.is_due(watermark.reconciled_state, run.run.clock())


def _text(value: datetime | int | str | None) -> str | None:
    if value is None:
        return None
    return value.isoformat(" ") if isinstance(value, datetime) else str(value)
