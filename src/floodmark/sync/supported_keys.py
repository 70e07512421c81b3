"""Leave out rows of the source that the target cannot hold: they are in quarantine."""

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from floodmark.model.extraction import Window
from floodmark.model.position import START
from floodmark.model.reconciliation import Key
from floodmark.mysql.predicates import keys_predicate, relation
from floodmark.sync.compared_sides import ComparedSides
from floodmark.sync.extraction import Extraction
from floodmark.sync.extraction_job import extraction_job
from floodmark.sync.plan import TablePlan

_KEYS_AT_ONCE = 500


def unsupported_keys(
    extraction: Extraction,
    plan: TablePlan,
    sides: ComparedSides,
    keys: Sequence[Key],
    *,
    dated: bool = True,
) -> set[Key]:
    """Return the keys whose rows the target cannot hold, or (if `dated`) has in no synced range.

    The rows are read in full, as an extraction would.
    """
    if not keys:
        return set()
    from floodmark.worker.compare_window import RowFilter
    from floodmark.worker.conversion import Conversion
    from floodmark.worker.mysql_reader import read_batches

    source, cursor = plan.source, plan.choice.cursor
    job = extraction_job(extraction, plan, source.name, 0)
    job = structs.replace(job, relation=relation(source), order="")
    reading = Conversion(job.columns, "null")
    loading = Conversion(job.columns, "quarantine" if job.zero_dates == "quarantine" else "null")
    supported = RowFilter(sides.target.unsupported_values(sides.table))
    found: set[Key] = set()
    for at in range(0, len(keys), _KEYS_AT_ONCE):
        predicate = keys_predicate(source, keys[at : at + _KEYS_AT_ONCE])
        window = Window(part=0, start=START, end=START, predicate=predicate, streamed=True)
        for batch in read_batches(job, window):
            kept = supported.filter(loading.convert(batch))
            if cursor.timestamp and dated:  # in the target, a row without a time is in no range
                kept = kept.filter(kept.column(cursor.timestamp).is_valid())
            found |= _keys(sides, plan, reading.convert(batch)) - _keys(sides, plan, kept)
    return found


def _keys(sides: ComparedSides, plan: TablePlan, batch: Any) -> set[Key]:
    columns = (batch.column(name).to_pylist() for name in plan.source.primary_key)
    return {sides.key_of(values) for values in zip(*columns, strict=True) if None not in values}
