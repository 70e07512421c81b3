"""Load a table's committed chunks while later ones are still read.

    commit → commit → … → reading ends → load_table: what is left, as usual
        └► load ───► load ─┘ (waited for)

Reading uses the source and Spark, loading the warehouse: neither has to wait for the other. The
loads are the same as those after the reading: of committed manifests, each in one transaction with
its ledger rows, under the lease that the extraction holds. They only begin earlier.

| state                     | a crash, or a failure of either side, leaves                         |
| ------------------------- | -------------------------------------------------------------------- |
| chunks are committed      | manifests that are pending: any load takes them                      |
| a load of them runs       | nothing, or its transaction; the ledger says which                   |
| the target has committed  | the watermark behind the ledger, which the next load reads           |
| the watermark has it      | nothing to do; later chunks may be in flight, complete or pending    |
| reading ends or fails     | the load that runs is waited for, then the lease is given back       |

- *Reading fails*, *the lease is lost*, *Ctrl-C*, or *an operator's `set` or `reset` comes between*:
  what is loaded stays loaded, and no further batch begins. After a reset of the load, the watermark
  refuses the progress of this run, like that of any load that was overtaken.
- *Loading fails*: reading goes on. The load after it meets the same error and reports it, or what
  was wrong is over.

A load begins once a part of `batch_mb` is committed, and then takes everything that is: for less,
merging would cost more than waiting. A table of which nothing is loaded yet is not loaded while it
is read: its rows come together, into a new table that is filled without merging. For DuckDB there
would be other ways, but both sides need the same cores, and memory at the same time
(`docs/performance.md`).
"""

from threading import Condition, Thread
from typing import Self

from floodmark.model.notice import Notice
from floodmark.model.table import TableName
from floodmark.model.watermark import Watermark
from floodmark.state.lease import Lease
from floodmark.sync.load import load_committed
from floodmark.sync.load_result import LoadResult
from floodmark.sync.loading import Loading
from floodmark.sync.result import done_before

_PART = 16  # of a transaction of full size


class LoadWhileReading:
    """Loads in a thread, with its own connection for each load; without `loading`, nothing."""

    def __init__(self, loading: Loading | None, table: TableName, lease: Lease) -> None:
        self._loading = loading
        self._table = table
        self._lease = lease
        self._changed = Condition()
        self._pending_bytes = 0
        self._over = False
        self._thread: Thread | None = None
        self.result = LoadResult()

    def committed(self, watermark: Watermark, size: int) -> None:
        """Note a chunk that was committed, with its bytes."""
        loading = self._loading
        if loading is None or not _loaded_before(loading, watermark):
            return
        with self._changed:
            self._pending_bytes += size
            if self._thread is None and self._is_worth_it(loading):
                self._thread = Thread(target=self._run, args=[loading], name=f"load {self._table}")
                self._thread.start()
            self._changed.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self, loading: Loading) -> None:
        try:
            while self._wait(loading):
                before = self.result
                # Others can use a DuckDB file while nothing is loaded.
                with loading.open_target() as target:
                    found = load_committed(
                        loading, self._table, self._lease, target, rows_before=before.rows
                    )
                self.result = before.plus(found)
        except Exception as error:  # noqa: BLE001 - the load after the reading meets it again
            self.result = self.result.plus(done_before(error, LoadResult()))
            message = f"{self._table}: not loaded while it is read: {error}"
            loading.report(Notice("debug", message, "load", str(self._table)))

    def _wait(self, loading: Loading) -> bool:
        """Wait until a load is worth it; False once reading is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or self._is_worth_it(loading))
            self._pending_bytes = 0
            return not self._over

    def _is_worth_it(self, loading: Loading) -> bool:
        return self._pending_bytes * _PART >= loading.batch_bytes


def _loaded_before(loading: Loading, watermark: Watermark) -> bool:
    """Whether this target has rows of the table, and the last load of it did not fail."""
    state = watermark.redshift_state
    known = loading.place is not None and state.target == loading.place
    return known and state.total_rows > 0 and state.status in ("pending", "success")
