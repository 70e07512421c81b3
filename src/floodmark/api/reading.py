"""Read tables from the lake."""

from collections.abc import Callable
from typing import Any

from floodmark.api.context import RunContext
from floodmark.errors import UsageError
from floodmark.model.log_state import ManifestId
from floodmark.model.table import TableName


def read_table(
    run: RunContext, table: TableName, session: Callable[[], Any], as_of: str | None
) -> Any:
    """Return a DataFrame of a table's rows as of a manifest; the session is only then needed."""
    from floodmark.sync.read_lake import find_rows, frame_of

    try:
        through = None if as_of is None else ManifestId.parse(as_of)
    except ValueError:
        raise UsageError(
            f"{as_of!r} is not a manifest",
            hint=f"'floodmark watermark history -t {table}' lists them",
        ) from None
    rows = find_rows(run.store, table, through)
    return frame_of(session(), run.config.lake, rows)
