"""One run of the program."""

from datetime import datetime
from typing import Literal

Strategy = Literal["sequential", "inter-table", "intra-table", "manual_cli"]
Stage = Literal["extract", "load"]


def new_session_id(now: datetime, suffix: str) -> str:
    """Name a session: `YYYYMMDD_HHMMSS`, in UTC, and a suffix that makes it unique."""
    return f"{now:%Y%m%d_%H%M%S}_{suffix}"


def session_day(session_id: str) -> str:
    """The day on which a session began: `YYYYMMDD`."""
    return session_id[:8]
