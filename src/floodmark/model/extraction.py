"""Inputs and results of Spark tasks.

They are sent to the workers and back as JSON, so they are small and plain.
"""

from typing import Literal

from msgspec import Struct

from floodmark.model.manifest import DataFile
from floodmark.model.position import Position

ZeroDates = Literal["null", "quarantine", "error"]
NullCursors = Literal["skip", "error"]

# Every connection to a source runs these first, so that no global server setting changes or
# truncates a result. Version comments hide unknown variables: MariaDB skips /*!50701 to /*!99999,
# and MySQL skips /*M!.
_MOST = 18446744073709551615
SESSION_SETTINGS = (
    (
        "SET NAMES utf8mb4, time_zone = '+00:00', sql_mode = '', sql_auto_is_null = 0"
        ", autocommit = 1, completion_type = 0, wait_timeout = 28800, net_write_timeout = 3600"
        f", sql_select_limit = {_MOST}, max_join_size = {_MOST}, sql_big_selects = 1"
        ", max_sort_length = 8192, group_concat_max_len = 67108864"
        " /*!50708 , max_execution_time = 0 */"
        # Catalog statistics are cached for a day by default, and windows are sized by them.
        " /*!80003 , information_schema_stats_expiry = 0 */"
        " /*!80013 , use_secondary_engine = OFF */"
        " /*!80030 , show_gipk_in_create_table_and_information_schema = ON */"
        # For a session, DEFAULT means the present, whatever the global value is.
        " /*M!100300 , max_statement_time = 0, system_versioning_asof = DEFAULT */"
    ),
    # The variable has another name on older servers; this statement is the same on all.
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
)


class Window(Struct, frozen=True, kw_only=True):
    """A half-open range of positions `(start, end]` that one task reads.

    `predicate` is the SQL condition that selects exactly the rows of the range. A window that may
    not fit into a worker's memory is `streamed`: slower, but in constant memory. A window that is
    larger on purpose, so that its file has a good size, has `slices` that tile it.
    """

    part: int
    start: Position
    end: Position
    predicate: str
    streamed: bool = False
    slices: tuple["Window", ...] = ()

    @property
    def statements(self) -> tuple["Window", ...]:
        """What is read one after another: its slices, or the window itself."""
        return self.slices or (self,)


class Edge(Struct, frozen=True):
    """A position where a window may end, and the number of rows since the previous edge.

    If the rows were not `counted`, they are an estimate, and `most` is the maximum if it is known.
    """

    end: Position
    rows: int
    counted: bool = True
    most: int | None = None

    def may_exceed(self, rows: int) -> bool:
        """Return whether there may be more than this many rows."""
        most = self.rows if self.counted else self.most
        return most is None or most > rows


class ChunkPlan(Struct, frozen=True, kw_only=True):
    """Windows that tile `(start, end]`, to be read and committed together; `final` if the last.

    Their rows were `counted`, or are an estimate.
    """

    start: Position
    end: Position
    windows: tuple[Window, ...]
    rows: int
    counted: bool
    final: bool


class Route(Struct, frozen=True, kw_only=True):
    """The access path to a table's new rows.

    Along the cursor's index, or along the primary key with the range as a filter. With `chunked`
    each chunk is committed, else only the whole. `index` is the index that the reads are forced to.
    """

    by: Literal["cursor", "key"]
    index: str | None
    chunked: bool
    why: str

    @property
    def scans(self) -> bool:
        """Whether every window scans the whole table, as no index leads to its rows."""
        return self.index is None


class ColumnChoices(Struct, frozen=True, kw_only=True):
    """The configured column treatment: excluded, hashed, read as booleans."""

    exclude: tuple[str, ...] = ()
    hash: tuple[str, ...] = ()
    booleans: tuple[str, ...] = ()


class ColumnPlan(Struct, frozen=True, kw_only=True):
    """How one column is read: the SQL expression, and the Arrow type of the result.

    `arrow` is one of bool, int16, int32, int64, float32, float64, decimal128(P, S), string, binary,
    date32, timestamp[us] and timestamp[us, UTC]. With `zero_dates`, invalid dates (`0000-00-00`,
    `2024-00-15`) are counted and become NULL. `type` is the MySQL type of the result. With
    `hashed`, the result is a hash.
    """

    name: str
    expression: str
    arrow: str
    nullable: bool
    type: str = ""
    zero_dates: bool = False
    hashed: bool = False


class Receipt(Struct, frozen=True, kw_only=True):
    """The files that a task wrote for its window, of which it read so many slices."""

    part: int
    slices: int = 1
    rows: int
    files: tuple[DataFile, ...]
    quarantine: tuple[DataFile, ...] = ()
    seconds: float
    zero_dates: dict[str, int] = {}
    peak_memory_bytes: int = 0
