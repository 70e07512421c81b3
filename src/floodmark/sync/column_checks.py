"""Check a table's columns before a chunk of it is committed, whatever the chunk is for.

A manifest promises that the rows up to the position, however they were read, have the values that
the source has under the manifest's columns. So every chunk is checked, also one that repairs rows
or reads them again: the next one is compared with it alone.
"""

from floodmark.model.schema_change import SchemaChanges
from floodmark.model.table import TableName
from floodmark.model.watermark import Watermark
from floodmark.planning.columns import refuse_names
from floodmark.planning.schema_change import refuse_changes
from floodmark.sync.extraction import Extraction
from floodmark.sync.hash_warning import clear_text_left
from floodmark.sync.log_facts import newest_columns
from floodmark.sync.new_columns import NewColumns, find_new_columns
from floodmark.sync.plan import TablePlan, lake_columns


def check_columns(
    extraction: Extraction,
    table: TableName,
    watermark: Watermark,
    plan: TablePlan,
    policy: SchemaChanges | None,
) -> NewColumns:
    """Return what is new, and its values in rows that were read before; the next chunk records it.

    Raise FloodmarkError if the policy forbids the columns, if these rows must be read again, or if
    the target reserves a name.
    """
    log, columns = extraction.store.log, lake_columns(plan.source, plan.columns)
    names = extraction.reserved(column.name for column in plan.columns)
    refuse_names(plan.source, plan.choice.cursor, names)
    if policy == "stop":
        refuse_changes(table, newest_columns(log, table), columns)
    if policy == "freeze":
        extraction.check_frozen(columns, plan.source.primary_key)
    if left := clear_text_left(log, table, watermark, plan):
        extraction.report(left)
    return find_new_columns(
        extraction.source,
        log,
        watermark,
        plan,
        extraction.settings.zero_dates,
        extraction.report,
    )
