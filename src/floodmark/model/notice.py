"""Things worth telling whoever runs the program."""

from collections.abc import Callable
from typing import Literal

from msgspec import Struct


class Notice(Struct, frozen=True):
    """A remark on the way: nothing failed, but somebody should know."""

    level: Literal["debug", "info", "warning"]
    message: str


Report = Callable[[Notice], None]
