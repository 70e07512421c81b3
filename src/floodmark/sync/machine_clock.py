"""Compare this machine's clock with another one before anything is committed.

A document written by a clock that is days ahead is in the future for all other runs, which cannot
tell it from a damaged one. Each machine that writes is at most `CLOCK_SKEW` off the server's clock,
so only documents more than twice that ahead count as from the future.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from floodmark.errors import WrongClock
from floodmark.model.timestamps import as_utc, stamped
from floodmark.model.watermark import CLOCK_SKEW
from floodmark.mysql.connection import MysqlSession, repeatable
from floodmark.mysql.in_flight import read_clock

_SECOND = timedelta(seconds=1)


def check_against_source(session: MysqlSession, clock: Callable[[], datetime]) -> None:
    """Raise WrongClock if this machine's clock and MySQL's are too far apart."""
    check_machine_clock("MySQL's", lambda: repeatable(session, lambda: read_clock(session)), clock)


def check_machine_clock(
    other: str, read: Callable[[], datetime], clock: Callable[[], datetime]
) -> None:
    """Raise WrongClock if this machine's clock and another one, by `read`, are too far apart."""
    before = clock()
    theirs = as_utc(read())
    apart = max(before - theirs, theirs - clock())
    if apart <= CLOCK_SKEW:
        return
    ours, theirs = before.replace(microsecond=0), theirs.replace(microsecond=0)
    way = "ahead" if before > theirs else "behind"
    raise WrongClock(
        f"this machine's clock says {stamped(ours)} and {other} says {stamped(theirs)}: it is"
        f" {apart // _SECOND * _SECOND} {way}, and at most {CLOCK_SKEW} is allowed;"
        " nothing was committed",
        hint="set the clock that is wrong (NTP), then run the command again; 'floodmark doctor'"
        " compares all of them",
    )
