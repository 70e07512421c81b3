"""The result of the last drill, kept in the lake."""

from contextlib import suppress
from datetime import datetime

import msgspec
from msgspec import Struct

from floodmark.model import lake_layout
from floodmark.model.formatting import counted
from floodmark.state.mirror_copy import get
from floodmark.storage.objects import ObjectStore


class LastDrill(Struct, frozen=True, kw_only=True):
    """A summary of the last drill, kept in the lake; `failures` are the first 20."""

    at: datetime
    author: str
    tables: int
    rehearsals: int
    skipped: int
    failed: int
    seconds: float
    slowest_seconds: float
    failures: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.failed:
            return f"{self.failed} of {counted(self.rehearsals, 'rehearsal')} failed"
        return f"{counted(self.rehearsals, 'rehearsal')} recovered"


def read_last_drill(lake: ObjectStore) -> LastDrill | None:
    """Read the summary of the last drill; None if there was none."""
    found = get(lake, lake_layout.LAST_DRILL)
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return msgspec.json.decode(found.data, type=LastDrill) if found else None
    return None
