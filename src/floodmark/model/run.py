"""Sessions, strategies and stages of a run."""

from datetime import datetime
from typing import Literal

Strategy = Literal["sequential", "inter-table", "intra-table", "manual_cli"]
Stage = Literal["extract", "load"]
WorkStage = Literal["extract", "load", "verify", "reconcile"]


def new_session_id(now: datetime, suffix: str) -> str:
    """Return a session id: `YYYYMMDD_HHMMSS` in UTC, and a unique suffix."""
    return f"{now:%Y%m%d_%H%M%S}_{suffix}"


def session_day(session_id: str) -> str:
    """Return the day on which a session began: `YYYYMMDD`."""
    return session_id[:8]
