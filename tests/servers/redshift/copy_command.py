"""The COPY command: what may be said in it when it reads Parquet."""

import re
from dataclasses import dataclass

from servers.redshift.refusals import Refused, syntax_error
from servers.redshift.tokens import Tokens, bracketed, plain, render, split, table_name

_ROLE = re.compile(r"arn:aws(?:-cn|-us-gov)?:iam::\d{12}:role/[\w+=,.@/-]+")
_PAIR = re.compile(r"aws_access_key_id=([^;]+);aws_secret_access_key=([^;]+)(?:;token=[^;]+)?")
_ALONE = ("ACCEPTINVCHARS", "FILLRECORD", "EXPLICIT_IDS")


@dataclass(frozen=True)
class CopyCommand:
    """A COPY of Parquet files that a manifest names, by a role or a pair of keys."""

    table: str
    manifest: str
    role: str | None = None
    keys: tuple[str, str] | None = None
    columns: tuple[str, ...] = ()

    @property
    def target(self) -> str:
        """The table, with the columns that are to be filled."""
        names = ", ".join('"' + name.replace('"', '""') + '"' for name in self.columns)
        return f"{self.table} ({names})" if names else self.table


def parse_copy(tokens: Tokens) -> CopyCommand:
    """Read a COPY; Refused for what Redshift does not support with Parquet."""
    table, rest = table_name(tokens[1:])
    columns: tuple[str, ...] = ()
    if rest[:1] == ("(",):
        inside, rest = bracketed(rest)
        columns = tuple(plain(part[0]) for part in split(inside))
    if rest[:1] != ("FROM",) or not rest[1:2]:
        raise syntax_error(rest[0] if rest else "end of input")
    if not rest[1].startswith("'s3://"):
        raise Refused("COPY from this source is not supported", "0A000")
    source = text_of(rest[1])
    options = _options(rest[2:])
    if "PARQUET" not in options:
        raise Refused("the stand-in reads PARQUET only")
    if "MANIFEST" not in options:
        raise Refused("the stand-in reads what a MANIFEST names only")
    role, credentials = options.get("IAM_ROLE"), options.get("CREDENTIALS")
    if (role is None) == (credentials is None):
        raise Refused("CREDENTIALS argument is required but not found or given twice", "42601")
    keys = credentials_keys(credentials) if credentials else None
    return CopyCommand(render(table), source, role, keys, columns)


def _options(tokens: Tokens) -> dict[str, str]:
    options: dict[str, str] = {}
    while tokens:
        word, tokens = tokens[0], tokens[1:]
        if word == "FORMAT":
            tokens = tokens[tokens[:1] == ("AS",) :]
            word, tokens = (tokens[0], tokens[1:]) if tokens else ("end of input", ())
        if word in ("IAM_ROLE", "CREDENTIALS"):
            tokens = tokens[tokens[:1] == ("AS",) :]
            options[word], tokens = value_of(word, tokens[:1]), tokens[1:]
        elif word == "STATUPDATE":
            tokens = tokens[tokens[:1] in (("ON",), ("OFF",), ("TRUE",), ("FALSE",)) :]
        elif word in ("PARQUET", "MANIFEST", *_ALONE):
            options[word] = ""
        else:
            raise Refused(f"{word} argument is not supported for PARQUET based COPY")
    return options


def value_of(word: str, tokens: Tokens) -> str:
    """What follows IAM_ROLE or CREDENTIALS."""
    if word == "IAM_ROLE" and tokens == ("DEFAULT",):
        return "default"
    if not tokens or not tokens[0].startswith("'"):
        raise syntax_error(tokens[0] if tokens else "end of input")
    value = text_of(tokens[0])
    if word == "IAM_ROLE" and not _ROLE.fullmatch(value):
        raise Refused("Invalid IAM role: it is not an ARN", "22023")
    return value


def credentials_keys(credentials: str) -> tuple[str, str]:
    """The pair of keys in CREDENTIALS."""
    found = _PAIR.fullmatch(credentials)
    if found is None:
        raise Refused("Invalid credentials", "22023")
    return found[1], found[2]


def text_of(literal: str) -> str:
    """The text that a literal stands for."""
    return re.sub(r"\\(.)|''", lambda found: found[1] or "'", literal[1:-1])
