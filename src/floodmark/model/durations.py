"""Durations: 30s, 5m, 1h, 7d, 2w."""

import re
from datetime import timedelta

from floodmark.errors import UsageError

_WRITTEN = re.compile(r"([0-9]{1,5})([smhdw])")
_LONGEST = timedelta(days=3650)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def parse_duration(text: str, *, like: str) -> timedelta:
    """Parse a duration greater than zero; `like` is the example in the error's hint."""
    found = _WRITTEN.fullmatch(text)
    if found is None or int(found[1]) == 0:
        raise UsageError(f"{text!r} is not a duration", hint=f"write it as {like}")
    span = timedelta(seconds=int(found[1]) * _SECONDS[found[2]])
    if span > _LONGEST:
        raise UsageError(f"{text!r} is too long", hint=f"at most {_LONGEST.days}d")
    return span
