"""Redshift's types, and PostgreSQL's for them."""

from collections.abc import Sequence

from servers.redshift.refusals import Refused, syntax_error
from servers.redshift.tokens import Tokens, bracketed, split, starts

_LONGEST_VARCHAR = 65_535
_LONGEST_VARBYTE = 16_777_216
_LONGEST_CHAR = 4096
_MOST_DIGITS = 38
_LARGEST_SCALE = 37

VARCHAR = 'redshift."character varying"'

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


def column_type(tokens: Tokens, column: str = "") -> tuple[str, Tokens, list[int]]:
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
    return f"{VARCHAR}({_within(sizes[0], _LONGEST_VARCHAR, 'varchar')})"


def _char(sizes: Sequence[int]) -> str:
    return f"char({_within(sizes[0], _LONGEST_CHAR, 'char')})"


def _varbyte(sizes: Sequence[int]) -> str:
    return varbyte_domain(_within(sizes[0], _LONGEST_VARBYTE, "varbyte"))


def _decimal(sizes: Sequence[int]) -> str:
    digits, scale = sizes
    if not 1 <= digits <= _MOST_DIGITS or not 0 <= scale <= digits:
        raise Refused(f"DECIMAL precision {digits} must be between 1 and {_MOST_DIGITS}", "22023")
    if scale > _LARGEST_SCALE:
        raise Refused(f"DECIMAL scale {scale} must be between 0 and {_LARGEST_SCALE}", "22023")
    return f"numeric({digits},{scale})"


def varbyte_domain(size: int) -> str:
    """The domain that stands for VARBYTE(size)."""
    return f'redshift."binary varying({size})"'


def _within(size: int, most: int, kind: str) -> int:
    if not 1 <= size <= most:
        raise Refused(f"length for type {kind} cannot exceed {most}", "22023")
    return size
