"""Leave out rows of the source that the target cannot hold: they are in quarantine."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import structs

from floodmark.model.extraction import Window
from floodmark.model.position import START
from floodmark.model.reconciliation import Key
from floodmark.mysql.predicates import keys_predicate, relation
from floodmark.sync.compared_sides import ComparedSides
from floodmark.sync.extract import Extraction
from floodmark.sync.extraction_job import extraction_job
from floodmark.sync.plan import TablePlan

if TYPE_CHECKING:
    import pyarrow as pa

_KEYS_AT_ONCE = 500


def supported_keys(
    extraction: Extraction, plan: TablePlan, sides: ComparedSides, keys: Sequence[Key]
) -> tuple[set[Key], int]:
    """Return the keys whose rows the target can hold, and how many it cannot.

    A row that has gone meanwhile is neither. The rows are read in full, as an extraction would.
    """
    if not keys:
        return set(), 0
    from floodmark.worker.compare_window import RowFilter
    from floodmark.worker.conversion import Conversion
    from floodmark.worker.mysql_reader import read_batches

    source, cursor = plan.source, plan.choice.cursor
    job = extraction_job(extraction, plan, source.name, 0)
    job = structs.replace(job, relation=relation(source), order="")
    aside: list[int] = []
    conversion = Conversion(
        job.columns,
        "quarantine" if job.zero_dates == "quarantine" else "null",
        lambda _, columns: aside.append(len(columns)),
    )
    supported = RowFilter(sides.target.unsupported_values(sides.table))
    kept: set[Key] = set()
    for at in range(0, len(keys), _KEYS_AT_ONCE):
        window = Window(
            part=0,
            start=START,
            end=START,
            predicate=keys_predicate(source, keys[at : at + _KEYS_AT_ONCE]),
            streamed=True,
        )
        for batch in map(conversion.convert, read_batches(job, window)):
            known: pa.RecordBatch = batch
            if cursor.timestamp:  # in the target, a row without a time is in no range
                known = batch.filter(batch.column(cursor.timestamp).is_valid())
            fitting = supported.filter(known)
            columns = [fitting.column(name).to_pylist() for name in source.primary_key]
            kept.update(sides.key_of(values) for values in zip(*columns, strict=True))
    return kept, sum(aside) + supported.rows
