"""One thing that was looked at."""

from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct

from floodmark.errors import FloodmarkError
from floodmark.model.watermark import CLOCK_SKEW

# What ages and times to live are not upset by.
_SAME_TIME = timedelta(seconds=5)


class Check(Struct, frozen=True, kw_only=True):
    """One thing that was looked at: all is well, worth knowing, or to be mended."""

    subject: str
    state: Literal["ok", "note", "failed"] = "ok"
    finding: str
    hint: str | None = None


def failed(subject: str, error: FloodmarkError) -> Check:
    """A check that an error ended."""
    return Check(subject=subject, state="failed", finding=error.message, hint=error.hint)


def check_clock(subject: str, theirs: datetime, before: datetime, after: datetime) -> Check:
    """Compare a clock with ours, which was read right before and right after it."""
    apart = max(before - theirs, theirs - after, timedelta(0))
    if apart <= _SAME_TIME:
        return Check(subject=subject, finding="its clock agrees with this machine's")
    way = "behind" if theirs < before else "ahead of"
    return Check(
        subject=subject,
        state="failed" if apart > CLOCK_SKEW else "note",
        finding=f"its clock is {apart.total_seconds():,.0f} s {way} this machine's",
        hint="set both by NTP: leases and the ages of files go by them",
    )
