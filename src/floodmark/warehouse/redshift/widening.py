"""Widen a column in Redshift, and find what prevents it."""

from collections.abc import Sequence

from msgspec import Struct

from floodmark.errors import SchemaConflict
from floodmark.warehouse.redshift.keys import dropping_key
from floodmark.warehouse.redshift.session import literal
from floodmark.warehouse.redshift.types import can_grow
from floodmark.warehouse.sql_dialect import quote

# A column with one of these cannot be altered.
_FIXED_ENCODINGS = {"bytedict", "runlength", "text255", "text32k"}


class Role(Struct, frozen=True, kw_only=True):
    """A column's encoding and keys, and the views that use it."""

    encoding: str
    distkey: bool
    sortkey: tuple[str, ...]
    views: tuple[str, ...]
    constraint: str = ""
    """Name of the primary key that the column is part of."""

    @property
    def keys(self) -> list[str]:
        """Return the keys that prevent the column from being dropped."""
        return ["DISTKEY"] * self.distkey + ["SORTKEY"] * bool(self.sortkey)


def roles_query(schema: str, table: str) -> str:
    """Return the query for the encodings and keys of a table's columns."""
    return (
        "SELECT column_name, encoding, distkey, sortkey FROM svv_redshift_columns"  # noqa: S608
        f" WHERE schema_name = {literal(schema)} AND table_name = {literal(table)}"
    )


def role_of(
    column: str, answer: Sequence[tuple[str, str, bool, int]], views: Sequence[str]
) -> Role | None:
    """Return the role of a column; `sortkey` lists all columns of the sort key."""
    found = {name: (str(encoding).lower(), distkey) for name, encoding, distkey, _ in answer}
    if column not in found:
        return None
    # An interleaved sort key is numbered with alternating signs.
    sorted_by = sorted((abs(place), name) for name, _, _, place in answer if place)
    names = tuple(name for _, name in sorted_by)
    encoding, distkey = found[column]
    return Role(
        encoding=encoding,
        distkey=bool(distkey),
        sortkey=names if column in names else (),
        views=tuple(views),
    )


def views_query(schema: str, table: str, column: str) -> str:
    """Return the query for the views that use a column."""
    return (
        "SELECT DISTINCT v.relname FROM pg_depend AS d"  # noqa: S608
        " JOIN pg_rewrite AS r ON r.oid = d.objid JOIN pg_class AS v ON v.oid = r.ev_class"
        " JOIN pg_class AS t ON t.oid = d.refobjid"
        " JOIN pg_namespace AS n ON n.oid = t.relnamespace"
        " JOIN pg_attribute AS a ON a.attrelid = t.oid AND a.attnum = d.refobjsubid"
        f" WHERE n.nspname = {literal(schema)} AND t.relname = {literal(table)}"
        f" AND a.attname = {literal(column)} AND v.oid <> t.oid"
    )


def grows_in_place(old: str, new: str, role: Role) -> bool:
    """Whether the type can be altered in place, outside of a transaction."""
    return can_grow(old, new) and role.encoding not in _FIXED_ENCODINGS


def check_widening(
    place: str, column: str, old: str, new: str, role: Role, *, in_place: bool = True
) -> None:
    """Raise SchemaConflict, with statements that help, if Redshift would not widen a column.

    `place` is the table's full name, quoted.
    """
    what = f"{place}.{quote(column)} cannot become {new} in Redshift, as the source needs it"
    if role.views:
        names = ", ".join(role.views)
        raise SchemaConflict(
            f"{what}: it is used by {names}",
            hint="drop these views, sync, and create them again; those WITH NO SCHEMA BINDING are"
            " not in the way",
        )
    if in_place and grows_in_place(old, new, role):
        return
    if role.keys:
        undo, redo = _rearrangements(place, column, role)
        raise SchemaConflict(
            f"{what}: it is in its {' and '.join(role.keys)}",
            hint=f"run '{'; '.join(undo)}', sync, and run '{'; '.join(redo)}'; each of these"
            " rewrites the table",
        )


def _rearrangements(place: str, column: str, role: Role) -> tuple[Sequence[str], Sequence[str]]:
    """Return statements that remove a column from its table's keys, and that restore it."""
    start, name = f"ALTER TABLE {place} ALTER", quote(column)
    undo, redo = [], []
    if role.distkey:
        undo.append(f"{start} DISTSTYLE EVEN")
        redo.append(f"{start} DISTKEY {name}")
    if role.sortkey:
        undo.append(f"{start} SORTKEY NONE")
        redo.append(f"{start} SORTKEY ({', '.join(map(quote, role.sortkey))})")
    return undo, redo


def rewriting(place: str, column: str, wider: str, old: str, new: str, role: Role) -> Sequence[str]:
    """Return the statements that widen a column by copying it to another one, `wider`.

    The new column is nullable, so a primary key that includes the old one is dropped.
    """
    wider = quote(wider)
    encode = f" ENCODE {role.encoding.upper()}" if old == new or can_grow(old, new) else ""
    return (
        *([dropping_key(place, role.constraint)] if role.constraint else ()),
        f"ALTER TABLE {place} ADD COLUMN {wider} {new}{encode}",
        f"UPDATE {place} SET {wider} = CAST({quote(column)} AS {new})",  # noqa: S608
        f"ALTER TABLE {place} DROP COLUMN {quote(column)}",
        f"ALTER TABLE {place} RENAME COLUMN {wider} TO {quote(column)}",
    )
