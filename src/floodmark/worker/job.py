"""The job description that all tasks of a chunk share, and the answer of each."""

from msgspec import Struct

from floodmark.config.models import LakeSettings, MysqlConnection
from floodmark.model.cursor import Cursor
from floodmark.model.extraction import ColumnPlan, Receipt, ZeroDates
from floodmark.model.lake_layout import data_file_key, extracted_quarantine
from floodmark.model.table import TableName

MEBIBYTE = 1024 * 1024
_MOST_BATCH_ROWS = 16_384
BATCH_BYTES = 8 * MEBIBYTE


def batch_rows(average_row_bytes: int) -> int:
    """Return the number of rows per batch, smaller for wide rows."""
    return max(1, min(_MOST_BATCH_ROWS, BATCH_BYTES // max(1, average_row_bytes)))


def most_ahead_bytes(window_mb: int) -> int:
    """Return how much a worker's memory may grow: by a window in Arrow and Parquet, and its files.

    Text takes more space than MySQL's own formats, and a row group and upload parts are buffered.
    """
    return 4 * window_mb * MEBIBYTE + 128 * MEBIBYTE


class ExtractionJob(Struct, frozen=True, kw_only=True):
    """The extraction of one chunk.

    `guard` is SQL that fails on any server other than the planned one. `relation` is the FROM
    clause, quoted, with an index hint if there is one; `order` is the ORDER BY clause, if rows are
    read in the cursor's order. `source` contains a password. A job is sent to the workers inside
    the pickled task, which neither Spark's UI nor its event log nor the process list shows.

    A worker may hold a whole slice that is not streamed. If its memory grows by more than
    `most_ahead_bytes`, rows are larger than planned, and the window is started again, with this
    slice and the later ones streamed. If there are `rows_per_second`, a task reads no more than
    these on average. A task marks each slice that it has read in the file `marks`, if it has that
    file. It copies what it writes to S3 to the folder `copies`, for the load that follows.
    """

    table: TableName
    session_id: str
    sequence: int
    source: MysqlConnection
    relation: str
    columns: tuple[ColumnPlan, ...]
    cursor: Cursor
    lake: LakeSettings
    guard: str = "TRUE"
    order: str = ""
    primary_key: tuple[str, ...] = ()
    zero_dates: ZeroDates = "null"
    file_bytes: int = 192 * MEBIBYTE
    row_group_bytes: int = 32 * MEBIBYTE
    batch_rows: int = _MOST_BATCH_ROWS
    most_ahead_bytes: int = 384 * MEBIBYTE
    tries: int = 4
    rows_per_second: float | None = None
    marks: str | None = None
    copies: str | None = None

    def query(self, predicate: str) -> str:
        """Return the statement that reads the rows of a window."""
        columns = ", ".join(f"{c.expression} AS c{n}" for n, c in enumerate(self.columns))
        order = f" ORDER BY {self.order}" if self.order else ""
        where = f"({predicate}) AND {self.guard}"
        return f"SELECT {columns} FROM {self.relation} WHERE {where}{order}"  # noqa: S608

    def key(self, part: int, attempt: int, number: int) -> str:
        """Return the key of a file in the lake, unique to each attempt."""
        return data_file_key(self.table, self.session_id, self.sequence, part, attempt, number)

    def quarantine_key(self, part: int, attempt: int, number: int) -> str:
        """Return the key of a file of rows that are set aside."""
        return extracted_quarantine(self.table, self.key(part, attempt, number))


class Refusal(Struct, frozen=True):
    """Why a task failed permanently."""

    part: int
    message: str
    hint: str | None


class Outcome(Struct, frozen=True):
    """A task's answer: a receipt, or a refusal."""

    receipt: Receipt | None = None
    refusal: Refusal | None = None
