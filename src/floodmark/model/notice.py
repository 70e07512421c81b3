"""Things worth telling whoever runs the program."""

from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct

Level = Literal["debug", "info", "warning", "error"]


class Notice(Struct, frozen=True):
    """A remark on the way, about one table or about the run as a whole.

    `event` is a word that programs can rely on, and `facts` are the numbers that go with it.
    """

    level: Level
    message: str
    event: str | None = None
    table: str | None = None
    hint: str | None = None
    facts: dict[str, Any] = {}


Report = Callable[[Notice], None]
