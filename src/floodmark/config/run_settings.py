"""Settings of Spark and of both stages."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from floodmark.config.value_types import Count, Few, Megabytes, Rows, Text
from floodmark.model.durations import parse_duration
from floodmark.model.extraction import NullCursors, ZeroDates


class SparkSettings(Struct, frozen=True, kw_only=True):
    """Where Spark runs: on this machine, on a cluster, or behind Spark Connect."""

    master: Text | None = None
    """Spark master: `spark://host:7077`, `yarn`, …; by default that of `spark-submit` or
    `spark-defaults.conf`, else `local[*,4]`."""
    remote: Text | None = None
    """Spark Connect server, `sc://host:15002`, instead of a master."""
    memory: Text | None = None
    """Memory of the driver if local, by default `1g`; on a cluster, of the Python workers of each
    executor (`spark.executor.memoryOverhead`), by default what windows of `window_mb` need in as
    many tasks as an executor has cores."""
    options: dict[str, str] = {}
    """Spark options, as `spark.name: value`."""
    fast_start: Literal["auto", "off"] = "auto"
    """`auto` starts a local Spark in half the time, using internals of PySpark and Java; `off`
    leaves the start to PySpark."""
    keep_warm: Text | None = None
    """Keep a local Spark running in the background for this long after its last use (`15m`), and
    attach later commands to it. By default each command starts and stops its own. Linux only."""
    from_rows: Count = 0
    """Start Spark for tables with at least this many rows to read, by MySQL's estimate; fewer are
    read by processes of the command itself. By default 0: Spark reads everything. Only for a local
    Spark."""
    allow_insecure: bool = False
    """Allow a cluster without authentication and encryption, or a remote Spark Connect server
    without TLS: others on the network can read passwords and rows."""

    @property
    def keep_seconds(self) -> float | None:
        """How long a background Spark is kept; None if there is none."""
        if self.keep_warm is None:
            return None
        return parse_duration(self.keep_warm, like="15m or 1h").total_seconds()


class ExtractionSettings(Struct, frozen=True, kw_only=True):
    """How tables are split into windows, chunks and files, and how far they are read."""

    window_rows: Rows = 150_000
    """Maximum rows per statement. A window has one, or several slices in a large load; one Spark
    task reads them into one file."""
    window_mb: Megabytes = 64
    """Maximum size of a statement's rows by MySQL's estimate: a task may hold all of them in
    memory."""
    windows_per_chunk: Few | None = None
    """Statements whose rows are committed together with `--strategy intra-table`; then windows have
    no more than their share of them. By default 8, and on a larger Spark as many as it runs tasks
    at once, or as many as fill files of `file_mb`."""
    file_mb: Megabytes = 192
    """Size at which a Parquet file is closed and the next one started. Files of a large load are
    nearly as large; others are smaller, so that all tasks have something to read."""
    lag_seconds: Annotated[float, Meta(ge=0, le=2_592_000)] | None = None
    """How long an unseen transaction may stay open: rows newer than this are not read yet. By
    default 0 on a primary, and 60 on a replica without `primary` and on a cluster. Required to read
    without the PROCESS privilege."""
    cursor_time_zone: str | None = None
    """Time zone of DATETIME cursors; by default the server's."""
    zero_dates: ZeroDates = "null"
    """`0000-00-00`: `null` reads and counts it as NULL, `quarantine` sets the row aside, `error`
    fails the table."""
    null_cursors: NullCursors = "skip"
    """Rows without a cursor value: `skip` skips and counts them, `error` fails the table."""
    walk_from_rows: Rows = 1_000_000
    """First loads of tables with at least this many rows read in primary key order."""
    tables_at_once: Few | None = None
    """Tables read in parallel with `--strategy inter-table`; by default as many as Spark runs tasks
    at once, from 4 to 64, and as the connections to their sources suffice for."""


class LoadingSettings(Struct, frozen=True, kw_only=True):
    """Size of load transactions, limits of the quarantine, and adoption of older files."""

    batch_mb: Megabytes = 1024
    """Maximum MB of Parquet per transaction. A first load that replaces an empty table is one
    transaction of any size."""
    spread_mb: Megabytes = 64
    """From this many MB of Parquet on, Spark workers copy files into PostgreSQL in parallel."""
    quarantine_limit: Count = 100
    """Maximum rows per transaction to quarantine; with more, the load fails."""
    adopt_hours: Annotated[float, Meta(gt=0, le=8760)] = 10.0
    """Without a manual watermark, `sync --adopt` takes files within this many hours of the last
    extraction."""
    adopt_mb: Megabytes = 4096
    """`sync --adopt` refuses files larger than this, compressed or uncompressed."""
