"""The last drill of each table, kept in the lake."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import datetime

import msgspec
from msgspec import Struct

from floodmark.errors import WriteConflict
from floodmark.model import lake_layout
from floodmark.model.formatting import counted
from floodmark.state.mirror_copy import get
from floodmark.storage.objects import ObjectStore, StoredObject

_TRIES = 10
_SHOWN = 20


class DrilledTable(Struct, frozen=True, kw_only=True):
    """The last drill of a table; `skipped` rehearsals were not tried."""

    at: datetime
    rehearsals: int
    skipped: int = 0
    failed: int = 0
    slowest_seconds: float = 0.0
    failures: tuple[str, ...] = ()


class LastDrill(Struct, frozen=True, kw_only=True):
    """The last drill, kept in the lake, and the last result of each of `all_tables` tables."""

    at: datetime
    author: str
    seconds: float
    all_tables: int
    results: dict[str, DrilledTable]

    @property
    def rehearsals(self) -> int:
        """How many rehearsals were tried."""
        return sum(one.rehearsals for one in self.results.values())

    @property
    def skipped(self) -> int:
        """How many rehearsals were not tried."""
        return sum(one.skipped for one in self.results.values())

    @property
    def failed(self) -> int:
        """How many rehearsals failed."""
        return sum(one.failed for one in self.results.values())

    @property
    def failures(self) -> tuple[str, ...]:
        """What failed: the first 20."""
        return tuple(text for one in self.results.values() for text in one.failures)[:_SHOWN]

    @property
    def oldest(self) -> datetime:
        """When the table was drilled whose last drill is the longest ago."""
        return min((one.at for one in self.results.values()), default=self.at)

    def __str__(self) -> str:
        where = f"in {len(self.results):,} of {counted(self.all_tables, 'table')}"
        tried = counted(self.rehearsals, "rehearsal")
        text = f"{self.failed} of {tried} failed" if self.failed else f"{tried} recovered"
        return f"{text} {where}" + (f", {self.skipped:,} not tried" if self.skipped else "")


def read_last_drill(lake: ObjectStore) -> LastDrill | None:
    """Read the results of the last drills; None if there was none."""
    return _decoded(get(lake, lake_layout.LAST_DRILL))


def record_drill(
    lake: ObjectStore,
    results: Mapping[str, DrilledTable],
    all_tables: Collection[str],
    *,
    at: datetime,
    author: str,
    seconds: float,
) -> None:
    """Save the results of tables; keep those of the other tables that are still configured."""
    for _ in range(_TRIES):
        found = get(lake, lake_layout.LAST_DRILL)
        known = _decoded(found)
        kept = known.results if known else {}
        last = LastDrill(
            at=at,
            author=author,
            seconds=seconds,
            all_tables=len(all_tables),
            results={n: one for n, one in {**kept, **results}.items() if n in all_tables},
        )
        data = msgspec.json.encode(last)
        with suppress(WriteConflict):
            if found is None:
                lake.put_if_absent(lake_layout.LAST_DRILL, data)
            else:
                lake.put_if_match(lake_layout.LAST_DRILL, data, found.etag)
            return
    raise WriteConflict(f"{lake}/{lake_layout.LAST_DRILL} keeps changing", hint="try again")


def _decoded(found: StoredObject | None) -> LastDrill | None:
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return msgspec.json.decode(found.data, type=LastDrill) if found else None
    return None
