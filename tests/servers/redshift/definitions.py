"""Tables as Redshift defines them, rewritten for PostgreSQL.

Types that PostgreSQL lacks are types of the schema `redshift`, named as Redshift's catalog shows
them. Keys are taken out, for Redshift does not enforce them; so are distribution, sort order and
encodings. All of these are kept beside the table, since they decide what can be altered.
"""

from dataclasses import dataclass, field
from typing import Any

from servers.redshift.column_types import VARCHAR, column_type
from servers.redshift.refusals import Refused, syntax_error
from servers.redshift.tokens import (
    Tokens,
    bracketed,
    plain,
    render,
    split,
    starts,
    table_name,
)

_TABLE_CONSTRAINTS = ("PRIMARY", "UNIQUE", "FOREIGN", "CONSTRAINT")
_SYSTEM_COLUMNS = (
    "oid", "tableoid", "xmin", "xmax", "cmin", "cmax", "ctid", "insertxid", "deletexid"
)  # fmt: skip
# Of these types, no column can distribute a table.
_NO_KEYS = ('redshift."binary varying', 'redshift."super"')


@dataclass(frozen=True)
class Definition:
    """A statement for PostgreSQL, and the VARBYTE lengths that it needs domains for.

    `attributes` is what is to be kept of each column of `table`.
    """

    sql: str
    varbytes: tuple[int, ...] = ()
    table: str = ""
    attributes: dict[str, dict[str, Any]] = field(default_factory=dict)
    diststyle: str = ""


@dataclass(frozen=True)
class Alteration(Definition):
    """A change of one column, or of all: whether it can be done, only the table itself can tell."""

    column: str = ""
    action: str = ""


def create_table(tokens: Tokens) -> Definition:
    """Rewrite a CREATE TABLE with a list of columns."""
    head = tokens[: tokens.index("TABLE") + 1]
    rest = tokens[len(head) :]
    if starts(rest, "IF", "NOT", "EXISTS"):
        head, rest = head + rest[:3], rest[3:]
    name, rest = table_name(rest)
    if rest[:1] != ("(",):
        raise syntax_error(rest[0] if rest else "end of input")
    inside, attributes = bracketed(rest)
    columns: dict[str, _Column] = {}
    keys: list[str] = []
    primary: list[str] = []
    for part in split(inside):
        if part[0] in _TABLE_CONSTRAINTS:
            keys += (named := _constraint_columns(part))  # declared, never enforced
            primary += named if "PRIMARY" in part else []
        else:
            columns[plain(part[0])] = _column(part)
    for key in keys:
        _of(columns, key).attributes["key"] = True
    for place, key in enumerate(primary, 1):
        _be_primary(_of(columns, key), place)
    diststyle = _note_attributes(attributes, columns)
    return Definition(
        f"{render(head)} {render(name)} ({', '.join(c.text for c in columns.values())})",
        tuple(size for column in columns.values() for size in column.varbytes),
        render(name),
        {name: column.attributes for name, column in columns.items() if column.attributes},
        diststyle,
    )


def alter_table(tokens: Tokens, *, in_transaction: bool) -> Definition:
    """Rewrite an ALTER TABLE, of the kinds that are used here."""
    name, action = table_name(tokens[2:])
    if len(split(action)) > 1:
        raise syntax_error(",")
    start = f"ALTER TABLE {render(name)}"
    if starts(action, "ADD"):
        column = action[2:] if starts(action, "ADD", "COLUMN") else action[1:]
        made = _column(column)
        kept = {plain(column[0]): made.attributes} if made.attributes else {}
        return Definition(
            f"{start} ADD COLUMN {made.text}", tuple(made.varbytes), render(name), kept
        )
    if starts(action, "ALTER", "COLUMN") and action[3:4] == ("TYPE",):
        return _grow(start, render(name), action, in_transaction=in_transaction)
    if starts(action, "DROP", "COLUMN"):
        return Alteration(
            render(tokens), table=render(name), column=plain(action[2]), action="drop"
        )
    if starts(action, "DROP", "CONSTRAINT") and len(action) == 3:
        return Alteration(
            "DO $$ BEGIN END $$", table=render(name), column=plain(action[2]), action="drop key"
        )
    if starts(action, "RENAME"):
        return Definition(render(tokens))
    if changed := _rearranged(render(name), action):
        return changed
    raise syntax_error(action[0] if action else "end of input")


def _rearranged(table: str, action: Tokens) -> Alteration | None:
    """Another distribution, sort order or encoding: PostgreSQL has nothing to do for these."""
    nothing = "DO $$ BEGIN END $$"
    if starts(action, "ALTER", "COLUMN") and action[3:4] == ("ENCODE",) and len(action) == 5:
        return Alteration(
            nothing, (), table, {plain(action[2]): {"encoding": action[4].lower()}}, action="encode"
        )
    if starts(action, "ALTER", "DISTSTYLE") and action[2] in ("EVEN", "ALL", "AUTO"):
        style = action[2] if action[2] != "AUTO" else "AUTO(ALL)"
        return Alteration(nothing, table=table, action="distkey", diststyle=style)
    if starts(action, "ALTER", "DISTKEY") and len(action) == 3:
        kept = {plain(action[2]): {"distkey": True}}
        style = f"KEY({plain(action[2])})"
        return Alteration(nothing, (), table, kept, action="distkey", diststyle=style)
    if starts(action, "ALTER", "SORTKEY") and action[2] in ("NONE", "AUTO"):
        return Alteration(nothing, table=table, action="sortkey")
    if starts(action, "ALTER", "SORTKEY", "("):
        names = [plain(part[0]) for part in split(bracketed(action[2:])[0])]
        sorted_by = {name: {"sortkey": place} for place, name in enumerate(names, 1)}
        return Alteration(nothing, (), table, sorted_by, action="sortkey")
    return None


def _grow(start: str, table: str, action: Tokens, *, in_transaction: bool) -> Alteration:
    if in_transaction:
        raise Refused("ALTER TABLE ALTER COLUMN cannot run inside a transaction block", "25001")
    kind, rest, _ = column_type(action[4:])
    if not kind.startswith(VARCHAR) or rest:
        raise Refused("ALTER COLUMN TYPE is only supported for VARCHAR columns")
    return Alteration(
        f"{start} ALTER COLUMN {action[2]} TYPE {kind}",
        table=table,
        column=plain(action[2]),
        action="grow",
    )


@dataclass
class _Column:
    text: str
    kind: str
    varbytes: list[int]
    attributes: dict[str, Any]


def _column(tokens: Tokens) -> _Column:
    if plain(tokens[0]) in _SYSTEM_COLUMNS:
        raise Refused(f"column name {tokens[0]} conflicts with a system column name", "42701")
    kind, rest, varbytes = column_type(tokens[1:], column=tokens[0])
    made = _Column("", kind, varbytes, {})
    kept: list[str] = []
    primary = False
    while rest:
        if starts(rest, "NOT", "NULL"):
            kept += rest[:2]
            rest = rest[2:]
        elif starts(rest, "NULL"):
            rest = rest[1:]
        elif rest[0] == "UNIQUE" or starts(rest, "PRIMARY", "KEY"):
            made.attributes["key"] = True
            primary = rest[0] == "PRIMARY"
            rest = rest[1 + primary :]
        elif rest[0] in ("DISTKEY", "SORTKEY"):
            _note_keys(rest[0], [plain(tokens[0])], {plain(tokens[0]): made})
            rest = rest[1:]
        elif rest[0] == "ENCODE":
            made.attributes["encoding"] = rest[1].lower()
            rest = rest[2:]
        elif rest[0] == "DEFAULT":
            kept += rest
            made.attributes["default"] = True
            rest = ()
        else:
            raise syntax_error(rest[0])
    made.text = render((tokens[0], kind, *kept))
    if primary:
        _be_primary(made, 1)
    return made


def _be_primary(column: _Column, place: int) -> None:
    """A column of a primary key takes no NULL, which is enforced."""
    column.attributes["primary"] = place
    if "NOT NULL" not in column.text:
        column.text += " NOT NULL"


def _constraint_columns(tokens: Tokens) -> list[str]:
    inside = bracketed(tokens[tokens.index("(") :])[0] if "(" in tokens else ()
    return [plain(part[0]) for part in split(inside) if part]


def _note_attributes(tokens: Tokens, columns: dict[str, _Column]) -> str:
    """Read what follows the columns: it has no meaning in PostgreSQL, and is kept.

    Returns the distribution style as svv_table_info shows it.
    """
    style = ""
    while tokens:
        word, tokens = tokens[0], tokens[1:]
        if word in ("COMPOUND", "INTERLEAVED") and tokens[:1] == ("SORTKEY",):
            continue
        if word == "DISTSTYLE":
            style, tokens = (tokens[0], tokens[1:]) if tokens else ("", ())
            if style not in ("AUTO", "EVEN", "KEY", "ALL"):
                raise syntax_error(style or "end of input")
        elif word in ("BACKUP", "ENCODE"):
            tokens = tokens[1:]
        elif word in ("DISTKEY", "SORTKEY") and tokens[:1] == ("(",):
            inside, tokens = bracketed(tokens)
            _note_keys(word, [plain(part[0]) for part in split(inside)], columns)
        else:
            raise syntax_error(word)
    distkeys = [name for name, column in columns.items() if column.attributes.get("distkey")]
    if distkeys and style not in ("", "KEY"):
        raise Refused(f"DISTSTYLE {style} is incompatible with column DISTKEY", "42601")
    if style == "KEY" and not distkeys:
        raise Refused("DISTSTYLE KEY requires a DISTKEY column", "42601")
    if distkeys:
        return f"KEY({distkeys[0]})"
    return style if style not in ("", "AUTO") else "AUTO(ALL)"


def _note_keys(word: str, names: list[str], columns: dict[str, _Column]) -> None:
    if word == "DISTKEY" and len(names) > 1:
        raise syntax_error(",")
    for place, name in enumerate(names, 1):
        column = _of(columns, name)
        if word == "DISTKEY" and column.kind.startswith(_NO_KEYS):
            raise Refused(f'column "{name}" has a type that cannot be a distribution key')
        column.attributes[word.lower()] = True if word == "DISTKEY" else place


def _of(columns: dict[str, _Column], name: str) -> _Column:
    if name not in columns:
        raise Refused(f'column "{name}" named in key does not exist', "42703")
    return columns[name]
