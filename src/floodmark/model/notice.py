"""Notices to the user."""

from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct

Level = Literal["debug", "info", "warning", "error"]


class Notice(Struct, frozen=True):
    """A message about one table or about the whole run.

    `event` is a stable name for programs, and `facts` are its numbers.
    """

    level: Level
    message: str
    event: str | None = None
    table: str | None = None
    hint: str | None = None
    facts: dict[str, Any] = {}


Report = Callable[[Notice], None]
