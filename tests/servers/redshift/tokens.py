"""SQL in words: enough to recognise and to rewrite the statements that Floodmark sends."""

import re
from collections.abc import Iterable, Sequence
from string import ascii_uppercase

from servers.redshift.long_names import shortened, shortened_if_known

Tokens = tuple[str, ...]

_CATALOGS = (
    "PG_CLASS", "PG_ATTRIBUTE", "PG_CONSTRAINT", "SVV_REDSHIFT_COLUMNS", "SVV_TABLE_INFO"
)  # fmt: skip

_LOWER = {ord(letter): letter.lower() for letter in ascii_uppercase}

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)
      | (?P<string>'(?:[^'\\]|\\.|'')*')
      | (?P<name>"(?:[^"]|"")*")
      | (?P<word>[A-Za-z_][\w$]*)
      | (?P<number>\$?\d+(?:\.\d+)?)
      | (?P<symbol>::|<=|>=|<>|!=|\|\||.)""",
    re.VERBOSE | re.DOTALL,
)


def tokenize(sql: str) -> Tokens:
    """Split a statement into its words, without spaces and comments.

    Names become lower case, in quotes too: that is what Redshift does with the letters of ASCII.
    Words that stand without quotes become upper case, which means the same.
    Only users keep their case in quotes.
    """
    tokens: list[str] = []
    for found in _TOKEN.finditer(sql.rstrip().removesuffix(";")):
        match found.lastgroup:
            case "space":
                continue
            case "name":
                name = found[0] if _names_user(tokens) else found[0].translate(_LOWER)
                tokens.append(_kept(name))
            case "word":
                tokens.append(_kept(found[0].upper()))
            case _:
                tokens.append(found[0])
    if any(token in _CATALOGS for token in tokens):
        return tuple(_named(token) for token in tokens)
    return tuple(tokens)


def _names_user(before: list[str]) -> bool:
    """Whether a name after these words is that of a user in GRANT … TO."""
    granted = before[:1] == ["GRANT"] and "TO" in before
    return granted and before[-1] not in ("GROUP", "ROLE")


def _kept(name: str) -> str:
    short = shortened(plain(name))
    return name if short == plain(name) else '"' + short.replace('"', '""') + '"'


def _named(token: str) -> str:
    """A literal of a query of the catalog, which may be a name."""
    if not token.startswith("'"):
        return token
    return "'" + shortened_if_known(token[1:-1].replace("''", "'")).replace("'", "''") + "'"


def render(tokens: Iterable[str]) -> str:
    """Words as a statement. Names without quotes are upper case by now; PostgreSQL folds them."""
    return " ".join(tokens)


def has(tokens: Sequence[str], *words: str) -> bool:
    """Whether these words follow each other somewhere."""
    size = len(words)
    return any(tuple(tokens[i : i + size]) == words for i in range(len(tokens) - size + 1))


def starts(tokens: Sequence[str], *words: str) -> bool:
    """Whether the tokens begin with these words."""
    return tuple(tokens[: len(words)]) == words


def split(tokens: Sequence[str], separator: str = ",") -> list[Tokens]:
    """The parts between separators that stand outside of brackets."""
    parts: list[list[str]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token == "(") - (token == ")")
        if token == separator and not depth:
            parts.append([])
        else:
            parts[-1].append(token)
    return [tuple(part) for part in parts]


def bracketed(tokens: Sequence[str]) -> tuple[Tokens, Tokens]:
    """What is inside the brackets that the tokens begin with, and what follows them."""
    depth = 0
    for place, token in enumerate(tokens):
        depth += (token == "(") - (token == ")")
        if not depth:
            return tuple(tokens[1:place]), tuple(tokens[place + 1 :])
    return tuple(tokens[1:]), ()


def table_name(tokens: Sequence[str]) -> tuple[Tokens, Tokens]:
    """The table's name that the tokens begin with, and what follows it."""
    size = 3 if tokens[1:2] == (".",) or list(tokens[1:2]) == ["."] else 1
    return tuple(tokens[:size]), tuple(tokens[size:])


def plain(name: str) -> str:
    """A name without its quotes."""
    return name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()
