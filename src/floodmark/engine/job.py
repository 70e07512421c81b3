"""What all tasks of a chunk need to know."""

from msgspec import Struct

from floodmark.config.models import LakeSettings
from floodmark.config.secret import Secret
from floodmark.model.cursor import Cursor
from floodmark.model.extraction import ColumnPlan, ZeroDates
from floodmark.model.run import session_day
from floodmark.model.table import TableName

MEBIBYTE = 1024 * 1024
_MOST_BATCH_ROWS = 16_384
_BATCH_BYTES = 8 * MEBIBYTE


def batch_rows(average_row_bytes: int) -> int:
    """How many rows to take at once, so that batches of wide rows do not grow large."""
    return max(1, min(_MOST_BATCH_ROWS, _BATCH_BYTES // max(1, average_row_bytes)))


class ExtractionJob(Struct, frozen=True, kw_only=True):
    """The extraction of one chunk.

    `relation` is what stands behind FROM, quoted, with an index hint where one is wanted; `order`
    what stands behind ORDER BY, if the rows are to come in the cursor's order. `url` is the
    source's address with its password. A job travels to the workers inside the pickled task, which
    neither Spark's UI nor its event log nor a list of processes shows.

    connectorx reads ahead without bounds, so a worker may hold a whole window: the size of windows
    in bytes is what bounds its memory.
    """

    table: TableName
    session_id: str
    sequence: int
    url: Secret
    relation: str
    columns: tuple[ColumnPlan, ...]
    cursor: Cursor
    lake: LakeSettings
    order: str = ""
    zero_dates: ZeroDates = "null"
    file_bytes: int = 192 * MEBIBYTE
    row_group_bytes: int = 32 * MEBIBYTE
    batch_rows: int = _MOST_BATCH_ROWS
    tries: int = 4

    def query(self, predicate: str) -> str:
        """The statement that reads the rows of a window, column by column in their order."""
        columns = ", ".join(f"{c.expression} AS c{n}" for n, c in enumerate(self.columns))
        order = f" ORDER BY {self.order}" if self.order else ""
        return f"SELECT {columns} FROM {self.relation} WHERE {predicate}{order}"  # noqa: S608

    def key(self, part: int, attempt: int, number: int) -> str:
        """The lake's name for a file; no two attempts ever share one."""
        day = session_day(self.session_id)
        return (
            f"incremental/{self.table.key}/year={day[:4]}/month={day[4:6]}/day={day[6:]}/"
            f"{self.session_id}-{self.sequence:06d}-{part:05d}-{attempt}-{number}.parquet"
        )
