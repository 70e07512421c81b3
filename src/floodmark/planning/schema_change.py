"""Compare a table's columns with those that it had when it was last read."""

from collections.abc import Iterable, Sequence

from msgspec import Struct, structs

from floodmark.errors import FloodmarkError
from floodmark.model.manifest import Column
from floodmark.model.schema_change import Mismatch
from floodmark.model.table import TableName
from floodmark.planning.value_change import exchanged

ACCEPT_HINT = (
    "to accept that, set 'schema_changes: follow' for the table, sync, and set it back to 'stop'"
)


class ColumnChange(Struct, frozen=True, kw_only=True):
    """A column that was added, dropped or altered.

    `renamed` is the column that it may have been, or may have become: at the same place and of the
    same type. MySQL does not record renames, so it is treated as dropped and added.
    """

    name: str
    before: Column | None = None
    now: Column | None = None
    renamed: str | None = None

    def __str__(self) -> str:
        before, now = (column and _shown(column) for column in (self.before, self.now))
        if before is None:
            perhaps = f", perhaps {self.renamed} under a new name" if self.renamed else ""
            return f"{self.name} ({now}) is new{perhaps}"
        if now is None:
            perhaps = f", perhaps renamed to {self.renamed}" if self.renamed else ""
            return f"{self.name} ({before}) is gone{perhaps}"
        return f"{self.name} was {before} and is now {now}"


def column_changes(before: Sequence[Column], now: Sequence[Column]) -> list[ColumnChange]:
    """Return every column that differs; case and order of the names do not matter."""
    old, new = ({column.name.lower(): column for column in each} for each in (before, now))
    renamed = possible_renames(before, now)
    became = {gone: new[name].name for name, gone in renamed.items()}
    was = {name: old[gone].name for name, gone in renamed.items()}
    return [
        *(
            ColumnChange(name=column.name, before=old.get(key), now=column, renamed=was.get(key))
            for key, column in new.items()
            if key not in old or _altered(old[key], column)
        ),
        *(
            ColumnChange(name=column.name, before=column, renamed=became.get(key))
            for key, column in old.items()
            if key not in new
        ),
    ]


def possible_renames(before: Sequence[Column], now: Sequence[Column]) -> dict[str, str]:
    """Return new columns and the gone ones at the same place and of the same type, in lower case.

    Places are counted among the columns that only one side has and between those that both have.
    """
    kept = {c.name.lower() for c in before} & {c.name.lower() for c in now}
    old, new = _places(before, kept), _places(now, kept)
    return {
        name: old[place][0]
        for place, (name, column) in new.items()
        if place in old and not _altered(old[place][1], column)
    }


def _places(columns: Iterable[Column], kept: set[str]) -> dict[tuple[str, int], tuple[str, Column]]:
    """Return the columns that are not kept, by the kept one before them and the distance to it."""
    found, after, distance = {}, "", 0
    for column in columns:
        name, distance = column.name.lower(), distance + 1
        if name in kept:
            after, distance = name, 0
        else:
            found[after, distance] = (name, column)
    return found


def refuse_changes(table: TableName, before: Sequence[Column], now: Sequence[Column]) -> None:
    """Raise FloodmarkError if a table that must stop at changes has any."""
    if not before:
        return
    changes = list(map(str, column_changes(before, now)))
    if moved := exchanged(before, now):
        changes.append(f"{' and '.join(sorted(moved))} have changed places")
    if changes:
        raise FloodmarkError(
            f"{table}: its columns have changed since it was last read, and 'schema_changes' is"
            f" 'stop': {'; '.join(changes)}",
            hint=ACCEPT_HINT,
        )


def read_again_hint(table: TableName, *, keyed: bool) -> str:
    """Return how to bring new values of rows that were read before into the target."""
    stage = " --extract-only" if keyed else ""
    return f"'floodmark watermark reset -t {table}{stage} --force', then sync, reads them again"


def _altered(before: Column, now: Column) -> bool:
    """Return whether a column's type changed; older versions did not record that of a hash."""
    source = before.source and now.source and before.source != now.source
    types = (before.type, before.arrow, before.nullable) != (now.type, now.arrow, now.nullable)
    return types or bool(source)


def _shown(column: Column) -> str:
    return f"{column.source or column.type}{'' if column.nullable else ' NOT NULL'}"


def before_loads(mismatch: Mismatch) -> Mismatch:
    """Add what to do about a mismatch while no rows of the table are in the lake."""
    if not mismatch.stops:
        return mismatch
    change = f"change {mismatch.column} to {mismatch.source} in the target"
    hint = f"{change}, or let a sync load the table under another 'target_name'"
    return structs.replace(mismatch, hint=mismatch.hint or mismatch.cure or hint)
