"""Read the rows of given keys from the source into the lake.

A few are read in this process, by the code of the workers: starting Spark would take longer. A row
that has changed since the comparison is read as it is now, even beyond the table's position. The
next sync reads it again with the same version, or a newer one, and replaces it.
"""

from collections.abc import Sequence
from threading import Lock

from msgspec import structs

from floodmark.errors import FloodmarkError
from floodmark.model.extraction import Receipt, Window
from floodmark.model.position import START
from floodmark.model.reconciliation import FoundKey, Key
from floodmark.model.table import TableName
from floodmark.mysql.connection import query
from floodmark.mysql.predicates import (
    key_columns,
    keys_predicate,
    read_values,
    relation,
    selection,
)
from floodmark.sync.extraction import Extraction
from floodmark.sync.extraction_job import extraction_job
from floodmark.sync.plan import TablePlan
from floodmark.sync.read_windows import read_windows

MOST_IN_PROCESS = 1_000
_WINDOW_KEYS = 1_000

_one_reader = Lock()  # the reader sets environment variables while it connects


def read_rows(
    extraction: Extraction, plan: TablePlan, table: TableName, sequence: int, keys: Sequence[Key]
) -> list[Receipt]:
    """Write the current rows of these keys to the lake; rows that are gone are left out."""
    if not keys:
        return []
    job = structs.replace(
        extraction_job(extraction, plan, table, sequence), relation=relation(plan.source), order=""
    )
    windows = [
        Window(
            part=part,
            start=START,
            end=START,
            predicate=keys_predicate(plan.source, keys[first : first + _WINDOW_KEYS]),
        )
        for part, first in enumerate(range(0, len(keys), _WINDOW_KEYS))
    ]
    if len(keys) > MOST_IN_PROCESS:
        extraction.prepare()
        receipts = read_windows(extraction, job, windows)
    else:
        from floodmark.worker.extract_window import run_window

        with _one_reader:
            outcome = run_window(job, windows[0], attempt_id=0, failures=job.tries)
        if outcome.receipt is None:
            refusal = outcome.refusal
            assert refusal is not None
            raise FloodmarkError(f"{table}: {refusal.message}", hint=refusal.hint)
        receipts = [outcome.receipt]
    _check(table, windows, receipts, len(keys))
    return receipts


def _check(
    table: TableName, windows: Sequence[Window], receipts: Sequence[Receipt], keys: int
) -> None:
    """Raise FloodmarkError unless each window has one receipt, and no key has two rows."""
    if [receipt.part for receipt in receipts] != [window.part for window in windows]:
        raise FloodmarkError(f"{table}: the receipts do not match the rows to repair")
    files = [file for receipt in receipts for file in (*receipt.files, *receipt.quarantine)]
    if len({file.path for file in files}) != len(files):
        raise FloodmarkError(f"{table}: two tasks reported the same file")
    if (rows := sum(file.rows for file in files)) > keys:
        raise FloodmarkError(f"{table}: read {rows:,} rows for {keys:,} keys")


def gone(extraction: Extraction, plan: TablePlan, found: Sequence[FoundKey]) -> list[FoundKey]:
    """Return the rows that the source still does not have: some may have come back meanwhile."""
    columns = key_columns(plan.source)
    present: set[Key] = set()
    guard = extraction.source.server.guard
    with extraction.source.session() as session:
        for first in range(0, len(found), _WINDOW_KEYS):
            these = [one.key for one in found[first : first + _WINDOW_KEYS]]
            rows = query(
                session,
                f"SELECT {selection(columns)} FROM {relation(plan.source)}"  # noqa: S608
                f" WHERE ({keys_predicate(plan.source, these)}) AND {guard}",
            )
            present.update(read_values(columns, row) for row in rows)
    return [one for one in found if one.key not in present]
