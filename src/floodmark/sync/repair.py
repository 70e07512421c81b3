"""Read the rows of given keys from the source into the lake.

A few are read in this process, by the code of the workers: starting Spark would take longer. A row
that has changed since the comparison is read as it is now, even beyond the table's position. The
next sync reads it again with the same version, or a newer one, and replaces it.
"""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from threading import Lock

from msgspec import structs

from floodmark.errors import FloodmarkError
from floodmark.model.extraction import Receipt, Window
from floodmark.model.position import START
from floodmark.model.reconciliation import FoundKey, Key
from floodmark.model.schema import SourceColumn
from floodmark.model.table import TableName
from floodmark.model.timestamps import plain
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
        extraction = extraction.of_rows(len(keys))
        extraction.prepare(extraction.engine)
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
    """Return the rows that the source still does not have: some may have come back meanwhile.

    Both sides of the comparison spell the same value alike.
    """
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
            present.update(normal_key(columns, read_values(columns, row)) for row in rows)
    return [one for one in found if normal_key(columns, one.key) not in present]


def normal_key(columns: Sequence[SourceColumn], key: Key) -> Key:
    """Return a key as text that does not depend on who printed it."""
    return tuple(_normal(*part) for part in zip(columns, key, strict=True))


def _normal(column: SourceColumn, value: int | str) -> int | str:
    """Drop what MySQL adds to a value by its type: zeros, and digits of a second."""
    text = str(value)
    try:
        match column.data_type:
            case "datetime" | "timestamp" | "date":
                return plain(datetime.fromisoformat(text))
            case "decimal":
                return str(Decimal(text).normalize())
            case "float" | "double":
                return repr(float(text))
            case "time":
                return text.rstrip("0").rstrip(".") if "." in text else text
    except ValueError:  # a zero date
        return text
    return value
