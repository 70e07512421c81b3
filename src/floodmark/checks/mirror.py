"""Check the mirror: whether it can be reached, belongs to the lake, and is complete."""

from collections.abc import Callable, Iterator, Sequence

from floodmark.checks.check import Check, failed
from floodmark.errors import FloodmarkError
from floodmark.model.formatting import counted
from floodmark.model.table import TableName
from floodmark.model.timestamps import stamped
from floodmark.state.conditional_writes import probe_conditional_writes
from floodmark.state.mirror import read_mirror_state
from floodmark.state.mirror_lag import check_mirror_of, measure_lag
from floodmark.storage.objects import ObjectStore

_SUBJECT = "mirror"


def check_mirror(
    lake: ObjectStore, open_mirror: Callable[[], ObjectStore], tables: Sequence[TableName]
) -> Iterator[Check]:
    """Write a probe object, and compare the mirror with the lake."""
    try:
        mirror = open_mirror()
        probe_conditional_writes(mirror)
        if not check_mirror_of(lake, mirror):
            finding = f"{mirror}: writable, and empty"
            yield Check(subject=_SUBJECT, finding=finding, hint="the next sync begins to copy")
            return
        lags = [lag for table in tables if (lag := measure_lag(lake, mirror, table))]
    except FloodmarkError as error:
        yield failed(_SUBJECT, error)
        lags = []
    else:
        if not lags:
            finding = f"{mirror}: writable, complete for {counted(len(tables), 'table')}"
            yield Check(subject=_SUBJECT, finding=finding)
    for lag in lags:
        finding = f"{lag.table_name}: {lag}"
        yield Check(
            subject=_SUBJECT, state="note", finding=finding, hint="the next sync copies the rest"
        )
    known = read_mirror_state(lake)
    if known is not None and known.error_since is not None:
        finding = (
            f"failing since {stamped(known.error_since.replace(microsecond=0))}: {known.error}"
        )
        yield Check(subject=_SUBJECT, state="note", finding=finding)
