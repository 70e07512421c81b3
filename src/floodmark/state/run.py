"""The run that uses a watermark store."""

import time
from collections.abc import Callable
from datetime import datetime
from random import Random

from msgspec import Struct

from floodmark.model.notice import Report
from floodmark.model.table import TableName
from floodmark.model.transitions import Authorship
from floodmark.model.watermark import Watermark, empty_watermark


class Run(Struct, frozen=True, kw_only=True):
    """The run that uses a store: its identity, clock and notices."""

    session_id: str
    author: str
    clock: Callable[[], datetime]
    report: Report
    random: Random
    lease_seconds: float = 60.0
    sleep: Callable[[float], None] = time.sleep

    def authorship(self) -> Authorship:
        """Return author, session and time of a change made now."""
        return Authorship(self.session_id, self.author, self.clock())

    def empty(self, table: TableName) -> Watermark:
        """Return the watermark of a table that is first seen now."""
        return empty_watermark(table, self.session_id, self.clock())
