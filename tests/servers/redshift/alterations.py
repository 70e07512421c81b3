"""What Redshift refuses to alter, by what it knows of a column beside its type."""

from servers.redshift.backend import Backend
from servers.redshift.definitions import Alteration, Definition
from servers.redshift.refusals import Refused
from servers.redshift.tokens import plain

_FIXED_ENCODINGS = ("bytedict", "runlength", "text255", "text32k")


def check_alteration(backend: Backend, change: Alteration) -> None:
    """Refused if the table does not allow it. What views forbid, PostgreSQL forbids as well."""
    kept = backend.attributes(change.table)
    column = kept.get(change.column, {})
    if change.action == "drop":
        for key in ("distkey", "sortkey"):
            if column.get(key):
                raise Refused(f'cannot drop {key} column "{change.column}"')
        if column.get("key"):
            raise Refused(
                f"cannot drop column {change.column} because other objects depend on it", "2BP01"
            )
    elif change.action == "drop key":
        name = plain(change.table.rpartition(".")[2].strip()) + "_pkey"
        if change.column != name or not any("primary" in old for old in kept.values()):
            raise Refused(f'constraint "{change.column}" does not exist', "42704")
    elif change.action == "grow":
        kind = backend.columns(change.table).get(change.column, "")
        if not kind.startswith("character varying"):
            raise Refused("ALTER COLUMN TYPE is only supported for VARCHAR columns")
        if column.get("encoding") in _FIXED_ENCODINGS:
            raise Refused(f"cannot alter column with encoding {column['encoding']}")
        if column.get("key") or column.get("default"):
            raise Refused(f'cannot alter column "{change.column}" with a key or a default value')
    elif change.action == "encode":
        for name, new in change.attributes.items():
            if kept.get(name, {}).get("encoding") == new["encoding"]:
                raise Refused(f'column "{name}" is already of the specified encode type')


def keep_attributes(backend: Backend, definition: Definition) -> None:
    """Keep what a statement said of columns, in place of what it changes."""
    if not definition.table:
        return
    replaced = definition.action if isinstance(definition, Alteration) else ""
    if replaced == "drop key":
        for name, old in backend.attributes(definition.table).items():
            if "primary" in old:
                new = {key: value for key, value in old.items() if key not in ("key", "primary")}
                backend.keep(definition.table, name, new)
    if replaced in ("distkey", "sortkey"):
        for name, old in backend.attributes(definition.table).items():
            if replaced in old:
                del old[replaced]
                backend.keep(definition.table, name, old)
    if definition.diststyle:
        backend.keep_style(definition.table, definition.diststyle)
    for name, new in definition.attributes.items():
        old = backend.attributes(definition.table).get(name, {})
        backend.keep(definition.table, name, {**old, **new})
