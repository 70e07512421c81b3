"""What one Spark task is asked to do, and what it answers.

These travel to the workers as plain JSON, so everything here is small and encodes itself.
"""

from typing import Literal

from msgspec import Struct

from floodmark.model.manifest import DataFile
from floodmark.model.position import Position

ZeroDates = Literal["null", "quarantine", "error"]
NullCursors = Literal["skip", "error"]

# Every connection to a source runs these first, so that nothing set for the whole server changes a
# result or cuts it short. Version comments hide from a server what it does not know: MariaDB skips
# /*!50701 to /*!99999, and MySQL skips /*M!.
_MOST = 18446744073709551615
SESSION_SETTINGS = (
    (
        "SET NAMES utf8mb4, time_zone = '+00:00', sql_mode = '', sql_auto_is_null = 0"
        ", autocommit = 1, completion_type = 0, wait_timeout = 28800, net_write_timeout = 3600"
        f", sql_select_limit = {_MOST}, max_join_size = {_MOST}, sql_big_selects = 1"
        ", max_sort_length = 8192"
        " /*!50708 , max_execution_time = 0 */"
        # Statistics in the catalog are cached for a day, and windows are cut by them.
        " /*!80003 , information_schema_stats_expiry = 0 */"
        " /*!80013 , use_secondary_engine = OFF */"
        " /*!80030 , show_gipk_in_create_table_and_information_schema = ON */"
        # For a session, DEFAULT is the present, whatever is set for the server.
        " /*M!100300 , max_statement_time = 0, system_versioning_asof = DEFAULT */"
    ),
    # The variable has another name on older servers; this statement is the same on all.
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
)


class Window(Struct, frozen=True, kw_only=True):
    """A half-open range of positions `(start, end]` that one task reads.

    `predicate` is the SQL condition that selects exactly the rows of the range. What may be more
    than a worker can hold is `streamed`: slower, but in the same memory whatever its size.
    """

    part: int
    start: Position
    end: Position
    predicate: str
    streamed: bool = False


class Edge(Struct, frozen=True):
    """Where a window may end, and how many rows lay between the edge before it and this one.

    Rows that were not `counted` are a guess: then there are at `most` so many, or nobody knows.
    """

    end: Position
    rows: int
    counted: bool = True
    most: int | None = None

    def may_exceed(self, rows: int) -> bool:
        """Whether there may be more rows than that."""
        most = self.rows if self.counted else self.most
        return most is None or most > rows


class ChunkPlan(Struct, frozen=True, kw_only=True):
    """Windows that tile `(start, end]`, to be read and committed together; `final` if the last.

    Their rows were `counted`, or are a guess.
    """

    start: Position
    end: Position
    windows: tuple[Window, ...]
    rows: int
    counted: bool
    final: bool


class Route(Struct, frozen=True, kw_only=True):
    """How a table's new rows are reached.

    Along the cursor's index, or along the primary key with the range as a filter. With `chunked` it
    is committed chunk by chunk, else only as a whole. `index` is what the reads are held to.
    """

    by: Literal["cursor", "key"]
    index: str | None
    chunked: bool
    why: str


class ColumnChoices(Struct, frozen=True, kw_only=True):
    """What the configuration says of columns: left out, hashed, read as booleans."""

    exclude: tuple[str, ...] = ()
    hash: tuple[str, ...] = ()
    booleans: tuple[str, ...] = ()


class ColumnPlan(Struct, frozen=True, kw_only=True):
    """How one column is read: what the server is asked for, and what it becomes in Arrow.

    `arrow` is one of bool, int16, int32, int64, float32, float64, decimal128(P, S), string, binary,
    date32, timestamp[us] and timestamp[us, UTC]. With `zero_dates`, what is no day of any calendar
    (`0000-00-00`, `2024-00-15`) counts as such and becomes NULL. `type` is what MySQL would call
    what arrives. With `hashed`, only a hash of it does.
    """

    name: str
    expression: str
    arrow: str
    nullable: bool
    type: str = ""
    zero_dates: bool = False
    hashed: bool = False


class Receipt(Struct, frozen=True, kw_only=True):
    """What a task wrote for its window."""

    part: int
    rows: int
    files: tuple[DataFile, ...]
    quarantine: tuple[DataFile, ...] = ()
    seconds: float
    zero_dates: dict[str, int] = {}
    peak_memory_bytes: int = 0
