"""Combine the `reconcile` keys of a pipeline and of a table."""

from datetime import timedelta

from floodmark.config.models import BudgetSettings, ReconcileSettings
from floodmark.errors import ConfigError, UsageError
from floodmark.model.durations import parse_duration
from floodmark.model.reconcile_policy import Policy


def policy_of(pipeline: ReconcileSettings, table: ReconcileSettings) -> Policy:
    """Return how a table is reconciled; each key of the table overrides the pipeline's."""
    budget = table.budget or pipeline.budget or BudgetSettings()
    most = pipeline.max_deletes if table.max_deletes is None else table.max_deletes
    return Policy(
        every=_interval(table.every or pipeline.every),
        deletes=table.deletes or pipeline.deletes or "report",
        deleted_at=table.deleted_at or pipeline.deleted_at or "_deleted_at",
        max_deletes=most,
        seconds=budget.seconds,
        segments=budget.segments,
    )


def check_reconcile(path: str, settings: ReconcileSettings) -> None:
    """Raise ConfigError for an interval that is not a duration."""
    try:
        _interval(settings.every)
    except UsageError as error:
        raise ConfigError(f"{path}.reconcile.every: {error.message}", hint=error.hint) from error


def _interval(text: str | None) -> timedelta | None:
    if text is None or text == "never":
        return None
    return parse_duration(text, like="12h, 1d or 1w, or 'never'")
