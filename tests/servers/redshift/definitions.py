"""Tables as Redshift defines them, rewritten for PostgreSQL.

Types that PostgreSQL lacks are domains of the schema `redshift`, named as Redshift's catalog shows
them. Keys are taken out, for Redshift does not enforce them; so are distribution and sort order.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from servers.redshift.refusals import Refused, syntax_error
from servers.redshift.tokens import Tokens, bracketed, render, split, starts, table_name

_LONGEST_VARCHAR = 65_535
_LONGEST_VARBYTE = 16_777_216
_LONGEST_CHAR = 4096
_MOST_DIGITS = 38

_SIMPLE = {
    ("SMALLINT",): "smallint",
    ("INT2",): "smallint",
    ("INTEGER",): "integer",
    ("INT",): "integer",
    ("INT4",): "integer",
    ("BIGINT",): "bigint",
    ("INT8",): "bigint",
    ("REAL",): "real",
    ("FLOAT4",): "real",
    ("DOUBLE", "PRECISION"): "double precision",
    ("FLOAT",): "double precision",
    ("FLOAT8",): "double precision",
    ("BOOLEAN",): "boolean",
    ("BOOL",): "boolean",
    ("DATE",): "date",
    ("TIMESTAMP", "WITHOUT", "TIME", "ZONE"): "timestamp",
    ("TIMESTAMP", "WITH", "TIME", "ZONE"): "timestamptz",
    ("TIMESTAMP",): "timestamp",
    ("TIMESTAMPTZ",): "timestamptz",
    ("SUPER",): 'redshift."super"',
}
_VARCHAR = (("VARCHAR",), ("CHARACTER", "VARYING"), ("NVARCHAR",), ("TEXT",))
_CHAR = (("CHAR",), ("CHARACTER",), ("NCHAR",), ("BPCHAR",))
_DECIMAL = (("DECIMAL",), ("NUMERIC",))
_VARBYTE = (("VARBYTE",), ("VARBINARY",), ("BINARY", "VARYING"))
_TABLE_CONSTRAINTS = ("PRIMARY", "UNIQUE", "FOREIGN", "CONSTRAINT")

_SIZES = re.compile(r"\d+")


@dataclass(frozen=True)
class Definition:
    """A statement for PostgreSQL, and the VARBYTE lengths that it needs domains for."""

    sql: str
    varbytes: tuple[int, ...] = ()


@dataclass(frozen=True)
class VarcharGrowth(Definition):
    """ALTER COLUMN … TYPE VARCHAR(size); whether it grows, only the table itself can tell."""

    table: str = ""
    column: str = ""
    size: int = 0


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
    columns: list[str] = []
    names: set[str] = set()
    varbytes: list[int] = []
    for part in split(inside):
        if part[0] in _TABLE_CONSTRAINTS:
            continue  # declared, never enforced
        column, found = _column(part)
        columns.append(column)
        varbytes += found
        names.add(part[0].strip('"').lower())
    _check_attributes(attributes, names)
    return Definition(f"{render(head)} {render(name)} ({', '.join(columns)})", tuple(varbytes))


def alter_table(tokens: Tokens, *, in_transaction: bool) -> Definition:
    """Rewrite an ALTER TABLE, of the kinds that are used here."""
    name, action = table_name(tokens[2:])
    if len(split(action)) > 1:
        raise syntax_error(",")
    start = f"ALTER TABLE {render(name)}"
    if starts(action, "ADD"):
        column = action[2:] if starts(action, "ADD", "COLUMN") else action[1:]
        text, varbytes = _column(column)
        return Definition(f"{start} ADD COLUMN {text}", tuple(varbytes))
    if starts(action, "ALTER", "COLUMN") and action[3:4] == ("TYPE",):
        return _grow(start, render(name), action, in_transaction=in_transaction)
    if starts(action, "DROP", "COLUMN") or starts(action, "RENAME"):
        return Definition(render(tokens))
    raise syntax_error(action[0] if action else "end of input")


def _grow(start: str, table: str, action: Tokens, *, in_transaction: bool) -> VarcharGrowth:
    if in_transaction:
        raise Refused("ALTER TABLE ALTER COLUMN cannot run inside a transaction block", "25001")
    kind, rest, _ = _type(action[4:])
    size = _SIZES.search(kind)
    if not kind.startswith("varchar") or size is None or rest:
        raise Refused("ALTER COLUMN TYPE is only supported for VARCHAR columns")
    return VarcharGrowth(
        f"{start} ALTER COLUMN {action[2]} TYPE {kind}",
        table=table,
        column=action[2].strip('"').lower(),
        size=int(size[0]),
    )


def _column(tokens: Tokens) -> tuple[str, list[int]]:
    kind, rest, varbytes = _type(tokens[1:], column=tokens[0])
    kept: list[str] = []
    while rest:
        if starts(rest, "NOT", "NULL"):
            kept += rest[:2]
            rest = rest[2:]
        elif starts(rest, "NULL") or rest[0] in ("UNIQUE", "DISTKEY", "SORTKEY"):
            rest = rest[1:]
        elif starts(rest, "PRIMARY", "KEY") or rest[0] == "ENCODE":
            rest = rest[2:]
        elif rest[0] == "DEFAULT":
            kept += rest
            rest = ()
        else:
            raise syntax_error(rest[0])
    return render((tokens[0], kind, *kept)), varbytes


def _type(tokens: Tokens, column: str = "") -> tuple[str, Tokens, list[int]]:
    """PostgreSQL's type, what follows it, and the length of a VARBYTE."""
    for words, kind in _SIMPLE.items():
        if starts(tokens, *words):
            rest = tokens[len(words) :]
            if rest[:1] == ("(",):
                raise syntax_error("(")
            return kind, rest, []
    for names, default, make in (
        (_VARCHAR, (256,), _varchar),
        (_CHAR, (1,), _char),
        (_DECIMAL, (18, 0), _decimal),
        (_VARBYTE, (64_000,), _varbyte),
    ):
        for words in names:
            if starts(tokens, *words):
                sizes, rest = _sizes(tokens[len(words) :], default)
                return make(sizes), rest, list(sizes) if make is _varbyte else []
    kind = tokens[0].lower() if tokens else ""
    raise Refused(f'Column {column} has unsupported type "{kind}".')


def _sizes(tokens: Tokens, default: tuple[int, ...]) -> tuple[tuple[int, ...], Tokens]:
    if tokens[:1] != ("(",):
        return default, tokens
    inside, rest = bracketed(tokens)
    if inside == ("MAX",):
        return (_LONGEST_VARCHAR,), rest
    sizes = tuple(int(part[0]) for part in split(inside))
    return sizes + default[len(sizes) :], rest


def _varchar(sizes: Sequence[int]) -> str:
    return f"varchar({_within(sizes[0], _LONGEST_VARCHAR, 'varchar')})"


def _char(sizes: Sequence[int]) -> str:
    return f"char({_within(sizes[0], _LONGEST_CHAR, 'char')})"


def _varbyte(sizes: Sequence[int]) -> str:
    return varbyte_domain(_within(sizes[0], _LONGEST_VARBYTE, "varbyte"))


def _decimal(sizes: Sequence[int]) -> str:
    digits, scale = sizes
    if not 1 <= digits <= _MOST_DIGITS or not 0 <= scale <= digits:
        raise Refused(f"DECIMAL precision {digits} must be between 1 and {_MOST_DIGITS}", "22023")
    return f"numeric({digits},{scale})"


def varbyte_domain(size: int) -> str:
    """The domain that stands for VARBYTE(size)."""
    return f'redshift."binary varying({size})"'


def _within(size: int, most: int, kind: str) -> int:
    if not 1 <= size <= most:
        raise Refused(f"length for type {kind} cannot exceed {most}", "22023")
    return size


def _check_attributes(tokens: Tokens, columns: set[str]) -> None:
    """Read what follows the columns: it must be right, and has no meaning in PostgreSQL."""
    while tokens:
        word, tokens = tokens[0], tokens[1:]
        if word in ("COMPOUND", "INTERLEAVED") and tokens[:1] == ("SORTKEY",):
            continue
        if word in ("DISTSTYLE", "BACKUP", "ENCODE"):
            tokens = tokens[1:]
        elif word in ("DISTKEY", "SORTKEY") and tokens[:1] == ("(",):
            inside, tokens = bracketed(tokens)
            keys = [part[0].strip('"').lower() for part in split(inside)]
            if word == "DISTKEY" and len(keys) > 1:
                raise syntax_error(",")
            for key in keys:
                if key not in columns:
                    raise Refused(f'column "{key}" named in key does not exist', "42703")
        else:
            raise syntax_error(word)
