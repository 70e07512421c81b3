"""Which statements the stand-in takes, and what PostgreSQL is asked to do for them.

What is not known to be right in Redshift is refused: by its documented grammar where there is one.
"""

from dataclasses import dataclass, field

from servers.redshift.column_types import VARCHAR
from servers.redshift.copy_command import CopyCommand, parse_copy
from servers.redshift.definitions import Definition, alter_table, create_table
from servers.redshift.refusals import Refused, syntax_error
from servers.redshift.tokens import Tokens, has, render, split, starts, table_name, tokenize
from servers.redshift.unload_command import UnloadCommand, parse_unload

_TRANSACTIONS = ("BEGIN", "COMMIT", "ROLLBACK")
_OTHERS = ("SELECT", "SET", "SHOW", "INSERT", "UPDATE", "DROP", "DECLARE", "FETCH", "GRANT")

# Functions that exist on the leader node only, and thus not where tables are.
_LEADER_ONLY = ("CURRENT_TIMESTAMP", "NOW", "LOCALTIMESTAMP", "CURRENT_TIME")
# Settings that PostgreSQL does not know.
_SETTINGS = ("JSON_PARSE_DEDUP_ATTRIBUTES", "QUERY_GROUP")
_MOST_FETCHED = 1000
_PRIVILEGES = (
    ("SELECT",), ("INSERT",), ("UPDATE",), ("DELETE",), ("DROP",), ("REFERENCES",), ("ALL",),
)  # fmt: skip
_NOT_IN_REDSHIFT = (
    ("ON", "CONFLICT"),
    ("RETURNING",),
    ("FOR", "UPDATE"),
    ("DISTINCT", "ON"),
    ("FILTER", "("),
    ("LATERAL",),
)


@dataclass(frozen=True)
class Statement:
    """A statement as it is run: in PostgreSQL, or as a COPY by the stand-in itself."""

    kind: str
    definition: Definition = field(default_factory=lambda: Definition(""))
    copy: CopyCommand | None = None
    unload: UnloadCommand | None = None
    written: str = ""
    """The table whose rows it changes."""

    @property
    def sql(self) -> str:
        """What PostgreSQL is asked to do."""
        return self.definition.sql


def translate(sql: str, *, in_transaction: bool) -> Statement:
    """Turn a statement for Redshift into one for PostgreSQL; Refused if Redshift would not."""
    tokens = tokenize(sql)
    if not tokens:
        return Statement("EMPTY", Definition(""))
    if len(split(tokens, ";")) > 1:
        raise Refused("cannot insert multiple commands into a prepared statement", "42601")
    kind = tokens[0]
    if kind == "COPY":
        command = parse_copy(tokens)
        return Statement(kind, copy=command, written=command.table)
    if kind == "UNLOAD":
        unload = parse_unload(tokens)
        query = translate(unload.query, in_transaction=in_transaction)
        return Statement(kind, query.definition, unload=unload)
    if kind == "FETCH":
        _check_fetch(tokens)
    definition = _definition(kind, tokens, in_transaction=in_transaction)
    return Statement(kind, definition, written=_written(tokens))


def _written(tokens: Tokens) -> str:
    for words in (("INSERT", "INTO"), ("DELETE", "FROM"), ("DELETE",), ("UPDATE",)):
        if starts(tokens, *words):
            return render(table_name(tokens[len(words) :])[0])
    return ""


def _definition(kind: str, tokens: Tokens, *, in_transaction: bool) -> Definition:
    for words in _NOT_IN_REDSHIFT:
        if has(tokens, *words):
            raise syntax_error(words[0].lower())
    if kind in ("INSERT", "UPDATE", "DELETE"):
        _check_functions(tokens)
    if kind == "CREATE":
        return _create(tokens)
    if starts(tokens, "ALTER", "TABLE"):
        return alter_table(tokens, in_transaction=in_transaction)
    if kind == "DELETE":
        _check_delete(tokens)
    elif kind == "LOCK":
        _check_lock(tokens)
    elif kind == "TRUNCATE":
        if len(table_name(tokens[1 + (tokens[1:2] == ("TABLE",)) :])[1]):
            raise syntax_error(tokens[-1])
    elif kind == "ANALYZE":
        if table_name(tokens[1:])[1]:
            raise syntax_error(tokens[-1])
    elif kind == "GRANT":
        return Definition(render(_granted(tokens)))
    elif kind not in _TRANSACTIONS and kind not in _OTHERS:
        raise syntax_error(kind)
    elif kind == "DROP" and tokens[1:2] not in (("TABLE",), ("SCHEMA",), ("VIEW",)):
        raise syntax_error(tokens[1])
    return Definition(render(_in_postgres(tokens)))


def _in_postgres(tokens: Tokens) -> Tokens:
    """Functions, types and settings of Redshift, by what PostgreSQL has for them."""
    result: list[str] = []
    skipped = 0
    for place, token in enumerate(tokens):
        before = tokens[place - 1] if place else ""
        if skipped:
            skipped -= 1
        elif token == "SYSDATE":
            result.append("(transaction_timestamp() AT TIME ZONE 'UTC')")
        elif token == "JSON_SERIALIZE":
            result.append("jsonb_pretty")
        elif token == "TO_VARBYTE":
            result.append("decode")
        elif token == "MICROSECOND" and tokens[max(0, place - 2) : place] == ("DATEDIFF", "("):
            result.append("'microsecond'")
        elif token == "LEN":
            result.append("length")
        elif token == "VARCHAR" and before in ("AS", "::"):
            result.append(VARCHAR)
        elif token == "VARBYTE" and before in ("AS", "::"):
            result.append("bytea")
            skipped = 3 if tokens[place + 1 : place + 2] == ("(",) else 0  # its length
        elif token in _SETTINGS and before == "SET":
            result.append(f"redshift.{token}")
        else:
            result.append(token)
    return tuple(result)


def _create(tokens: Tokens) -> Definition:
    if tokens[1:2] in (("SCHEMA",), ("VIEW",)):
        return Definition(render(_in_postgres(tokens)))
    size = 2 if tokens[1:2] in (("TEMPORARY",), ("TEMP",)) else 1
    if tokens[size : size + 1] != ("TABLE",):
        raise syntax_error(" ".join(tokens[1:3]).lower())
    rest = tokens[size + 1 :]
    if table_name(rest)[1][:1] == ("AS",):
        return Definition(render(_in_postgres(tokens)))
    return create_table(tokens)


def _check_functions(tokens: Tokens) -> None:
    for word in _LEADER_ONLY:
        if word in tokens:
            raise Refused(
                "Specified types or functions (one per INFO message) not supported on Redshift"
                " tables.",
                detail=word,
            )


def _check_delete(tokens: Tokens) -> None:
    """DELETE [FROM] table [USING table, …] [WHERE …]: there is no place for an alias."""
    rest = tokens[2:] if starts(tokens, "DELETE", "FROM") else tokens[1:]
    rest = table_name(rest)[1]
    if rest[:1] == ("USING",):
        if not starts(tokens, "DELETE", "FROM"):
            raise syntax_error("using")
        rest = table_name(rest[1:])[1]
        while rest[:1] == (",",):
            rest = table_name(rest[1:])[1]
    if rest and rest[0] != "WHERE":
        raise syntax_error(rest[0].lower())


def _granted(tokens: Tokens) -> Tokens:
    """GRANT privilege, … ON [TABLE] table TO [GROUP | ROLE] name, …: PostgreSQL knows no ROLE."""
    privileges, rest = tokens[1 : tokens.index("ON")], tokens[tokens.index("ON") + 1 :]
    for part in split(privileges):
        if part not in _PRIVILEGES:
            raise syntax_error(render(part))
    rest = table_name(rest[rest[:1] == ("TABLE",) :])[1]
    if rest[:1] != ("TO",):
        raise syntax_error(rest[0] if rest else "end of input")
    start = len(tokens) - len(rest)
    return (*tokens[:start], *(token for token in rest if token != "ROLE"))


def _check_fetch(tokens: Tokens) -> None:
    """FETCH FORWARD count FROM cursor: on a single node, neither all rows nor more than 1,000."""
    if "ALL" in tokens or any(token.isdigit() and int(token) > _MOST_FETCHED for token in tokens):
        raise Refused(f"Fetch size is limited to {_MOST_FETCHED} on a single node cluster")


def _check_lock(tokens: Tokens) -> None:
    """LOCK [TABLE] table, …: there are no modes."""
    for part in split(tokens[1 + (tokens[1:2] == ("TABLE",)) :]):
        if rest := table_name(part)[1]:
            raise syntax_error(rest[0].lower())
