"""Failures of a table's stages, as its lease document keeps them."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct, structs

from floodmark.model.run import WorkStage


class Failure(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A stage of a table fails; kept until the stage succeeds."""

    stage: WorkStage
    """`extract`, `load`, `verify` or `reconcile`."""
    error: str
    """The error."""
    hint: str | None = None
    """How to fix it."""
    exit_code: int = 1
    """The exit code of the error."""
    since: datetime
    """When the stage failed first since its last success."""
    at: datetime
    """When it first failed with this error."""
    session_id: str
    """The run that first failed with this error."""


def add_failure(known: Sequence[Failure], new: Failure) -> tuple[Failure, ...]:
    """Add a failure. The same error changes nothing; another one keeps the first's `since`."""
    before = next((failure for failure in known if failure.stage == new.stage), None)
    if before is not None and (before.error, before.hint) == (new.error, new.hint):
        return tuple(known)
    if before is not None:
        new = structs.replace(new, since=min(before.since, new.since))
    return (*without(known, new.stage), new)


def without(known: Sequence[Failure], stage: WorkStage) -> tuple[Failure, ...]:
    """Return the failures of the other stages."""
    return tuple(failure for failure in known if failure.stage != stage)
