"""Format numbers and times for people."""

from datetime import datetime, timedelta

from floodmark.model.position import Position

_UNITS = (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1))


def counted(number: int, word: str) -> str:
    """Format a count with its noun: `1 row`, `1,250,000 rows`."""
    return f"{number:,} {word if number == 1 else f'{word}s'}"


def span(length: timedelta) -> str:
    """Format a duration in its largest unit: `3 minutes`."""
    seconds = max(0, int(length.total_seconds()))
    name, size = next((unit for unit in _UNITS if seconds >= unit[1]), _UNITS[-1])
    return counted(seconds // size, name)


def brief(length: timedelta) -> str:
    """Format a duration for a column of a table: `40 s`, `3 min`, `5 h`, `2 d`."""
    seconds = max(0, int(length.total_seconds()))
    for limit, size, unit in ((60, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds // size} {unit}"
    return f"{seconds // 86_400} d"


def ago(moment: datetime | None, now: datetime) -> str:
    """Format the time since a moment: `3 minutes ago`."""
    if moment is None:
        return "never"
    length = now - moment
    return "just now" if length < timedelta(minutes=1) else f"{span(length)} ago"


def size(count: int) -> str:
    """Format a number of bytes: `1,234.5 MB`, `12 kB`."""
    return f"{count / 1_000_000:,.1f} MB" if count >= 100_000 else f"{-(-count // 1000)} kB"


def since(start: Position) -> str:
    """Format the position where reading begins."""
    return str(start.opening)
