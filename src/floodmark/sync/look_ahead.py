"""Look at the next tables of a round while others are synced."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Self

from floodmark.model.table import TableName
from floodmark.sync.result import TableResult

LOOKS = 8
"""How many tables are looked at at once, mostly waiting for the lake."""

_AHEAD = 4 * LOOKS

Look = Callable[[TableName], TableResult | None]


class LookAhead:
    """Looks at tables in threads, a few ahead of the one that is asked for."""

    def __init__(self, tables: Sequence[TableName], look: Look) -> None:
        self._waiting = iter(tables)
        self._look = look
        self._pool = ThreadPoolExecutor(max_workers=LOOKS) if len(tables) > 1 else None
        self._looks: dict[TableName, Future[TableResult | None]] = {}
        self._lock = Lock()

    def result(self, table: TableName) -> TableResult | None:
        """Return what the look at a table finds; each table may be asked for once."""
        if self._pool is None:
            return self._look(table)
        with self._lock:
            while table not in self._looks or len(self._looks) < _AHEAD:
                if (following := next(self._waiting, None)) is None:
                    break
                self._looks[following] = self._pool.submit(self._look, following)
            look = self._looks.pop(table, None)
        return look.result() if look else self._look(table)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
