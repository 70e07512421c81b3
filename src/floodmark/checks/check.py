"""The result of one check."""

from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct

from floodmark.errors import FloodmarkError
from floodmark.model.watermark import CLOCK_SKEW

# Too small to matter for ages and leases.
_SAME_TIME = timedelta(seconds=5)


class Check(Struct, frozen=True, kw_only=True):
    """The result of one check: ok, worth a note, or failed."""

    subject: str
    state: Literal["ok", "note", "failed"] = "ok"
    finding: str
    hint: str | None = None


def failed(subject: str, error: FloodmarkError) -> Check:
    """Return the check that failed with an error."""
    return Check(subject=subject, state="failed", finding=error.message, hint=error.hint)


def check_clock(subject: str, theirs: datetime, before: datetime, after: datetime) -> Check:
    """Compare a remote clock with ours, read right before and right after it."""
    apart = max(before - theirs, theirs - after, timedelta(0))
    if apart <= _SAME_TIME:
        return Check(subject=subject, finding="its clock agrees with this machine's")
    way = "behind" if theirs < before else "ahead of"
    return Check(
        subject=subject,
        state="failed" if apart > CLOCK_SKEW else "note",
        finding=f"its clock is {apart.total_seconds():,.0f} s {way} this machine's",
        hint="synchronize both with NTP: leases and file ages depend on them",
    )
