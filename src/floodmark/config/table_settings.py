"""Settings of pipelines and tables."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from floodmark.config.connection_settings import GrantSettings
from floodmark.config.value_types import Column, Count, Encoding, Rows, Seconds, Share, Text
from floodmark.model.extraction import ColumnChoices
from floodmark.model.reconcile_policy import Deletes
from floodmark.model.schema_change import SchemaChanges


class BudgetSettings(Struct, frozen=True, kw_only=True):
    """The most that one run spends on reconciling a table; the next run continues there."""

    seconds: Seconds | None = None
    """Seconds of comparing; the interval of the key that is being compared is finished."""
    segments: Rows | None = None
    """Intervals of the key to compare."""


class ReconcileSettings(Struct, frozen=True, kw_only=True):
    """How a table is reconciled with its source; a key of a table overrides the pipeline's."""

    every: Text | None = None
    """Reconcile with the first sync after this time (`12h`, `1d`, `1w`); `never` to override a
    pipeline. By default only when asked."""
    deletes: Deletes | None = None
    """Rows that were deleted in the source: `hard` removes them from the target, `soft` marks them,
    `report` only reports them, with exit code 5. By default `report`: nothing is removed unless you
    ask for it."""
    deleted_at: Column | None = None
    """With `soft`: the column that is set when a row is found deleted, and NULL again if it comes
    back; `_deleted_at` by default."""
    max_deletes: Share | Count | None = None
    """Most rows to delete in a pass: a number, or a share of the table (`5%`). With more, the table
    stops and nothing is changed. By default `10%` of the table or 1,000 rows, whichever is more,
    and none if the source has no rows left."""
    budget: BudgetSettings | None = None
    """The most that one run spends, see below; by default there is no limit."""


class TableSettings(Struct, frozen=True, kw_only=True):
    """How one table is read and loaded; defaults come from its schema."""

    cursor: Column | Annotated[list[Column], Meta(min_length=1)] | None = None
    """`[update_at, id]`, `id`, `update_at`, or `none` for full reloads; by default chosen from the
    schema at the first sync, and then kept."""
    exclude: list[Column] = []
    """Columns to leave out."""
    hash: list[Column] = []
    """Columns to replace with their SHA-256 in hexadecimal, computed by MySQL: of the UTF-8 text,
    or of the bytes of a binary column. Rows already read keep their values until `watermark
    reset`."""
    booleans: list[Column] = []
    """TINYINT columns to read as booleans; a value other than 0 and 1 fails the table."""
    target_name: Text | None = None
    """Name of the table in the warehouse, if different."""
    schema_changes: SchemaChanges | None = None
    """When columns change: `follow` adds and widens columns in the warehouse; `freeze` leaves new
    columns out, and never alters the table there; `stop` stops the table before rows are read. By
    default that of the pipeline."""
    distkey: Column | None = None
    """Redshift: distribution key of a new table."""
    diststyle: Literal["all", "even", "key", "auto"] | None = None
    """Redshift: distribution style of a new table; `key` needs a `distkey`, the others allow none.
    Redshift's default is `auto`."""
    sortkey: Column | Annotated[list[Column], Meta(min_length=1)] | None = None
    """Redshift: sort key of a new table, one column or a list."""
    encode: dict[Column, Encoding] = {}
    """Redshift: compression of columns in a new table, such as `{column: zstd}`. Redshift chooses
    if no column is listed."""
    grant: GrantSettings | None = None
    """Privileges to grant on the new table, instead of those of the connection: `{select: [analyst,
    "group bi"]}`, or `{}` for none."""
    reconcile: ReconcileSettings = ReconcileSettings()
    """How to find and apply deletes, and to repair rows; see below."""

    @property
    def sort_columns(self) -> tuple[str, ...]:
        """The columns of `sortkey`; may be empty."""
        if self.sortkey is None:
            return ()
        return (self.sortkey,) if isinstance(self.sortkey, str) else tuple(self.sortkey)

    @property
    def choices(self) -> ColumnChoices:
        """Columns to exclude, to hash, or to read as booleans."""
        return ColumnChoices(
            exclude=tuple(self.exclude), hash=tuple(self.hash), booleans=tuple(self.booleans)
        )

    @property
    def cursor_columns(self) -> tuple[str, ...] | None:
        """The columns of the cursor; None to choose from the schema, empty for full reloads."""
        if self.cursor is None:
            return None
        if isinstance(self.cursor, str):
            return () if self.cursor == "none" else (self.cursor,)
        return tuple(self.cursor)


class Pipeline(Struct, frozen=True, kw_only=True):
    """Tables to sync from one source to one target."""

    source: str
    """Name of a MySQL connection."""
    target: str
    """Name of a connection to a warehouse."""
    schema_changes: SchemaChanges = "follow"
    """`schema_changes` of tables that do not have their own."""
    tables: dict[str, TableSettings]
    """`schema.table: {…}`, one line per table. Write a name that contains a dot or a colon in
    backticks, and the whole key in quotes."""
    behind_hours: Annotated[float, Meta(gt=0, le=8760)] | None = None
    """`status` reports a table as behind if its data is older than this. By default after three
    intervals of `sync --every`, and after 24 hours without."""
    reconcile: ReconcileSettings = ReconcileSettings()
    """How to find and apply deletes, and to repair rows; tables can override each key."""
