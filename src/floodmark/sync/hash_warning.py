"""Warn if a column is now hashed, but rows read before have it in clear text."""

from contextlib import suppress

from floodmark.errors import CorruptLog
from floodmark.model.notice import Notice
from floodmark.model.table import TableName
from floodmark.model.watermark import Watermark
from floodmark.planning.columns import newly_hashed
from floodmark.state.manifest_log import ManifestLog
from floodmark.sync.log_facts import chunks_before
from floodmark.sync.plan import TablePlan


def clear_text_left(
    log: ManifestLog, table: TableName, watermark: Watermark, plan: TablePlan
) -> Notice | None:
    """Return a warning before the first chunk that hashes a column which older chunks do not."""
    if plan.choice.cursor.kind == "none" or not any(column.hashed for column in plan.columns):
        return None
    with suppress(CorruptLog):  # others report a damaged log
        newest = chunks_before(log, table, watermark)[-1:]
        if newest and (names := newly_hashed(plan.columns, newest[0].columns)):
            return Notice(
                "warning",
                f"{table}: {', '.join(names)} will be hashed from now on; rows read before have it"
                " in clear text in the lake and in the target",
                "clear_text",
                str(table),
                hint=f"'floodmark watermark reset -t {table}', then sync, reads them again;"
                f" 'floodmark s3clean clean -t {table}' removes the older files",
            )
    return None
