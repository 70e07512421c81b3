"""Find the tables of a server, and propose how to read each of them."""

from collections import Counter
from collections.abc import Mapping

from msgspec import structs

from floodmark.config.models import MysqlConnection
from floodmark.errors import FloodmarkError
from floodmark.model.cursor import CursorChoice
from floodmark.model.proposal import Proposal
from floodmark.model.schema import SourceTable
from floodmark.model.table import TableName, split_name
from floodmark.mysql.catalog import SYSTEM_VERSIONED, read_table
from floodmark.mysql.connection import MysqlSession, query, translated
from floodmark.mysql.predicates import relation
from floodmark.mysql.types import plan_columns
from floodmark.planning.cursor import choose_cursor

# Larger tables without a cursor are not included by default.
LARGE_ROWS = 100_000

_TABLES = ("BASE TABLE", SYSTEM_VERSIONED)


def discover(
    session: MysqlSession, tables: Mapping[TableName, str], connection: MysqlConnection
) -> list[Proposal]:
    """Propose how to read each table, given its kind."""
    found = [_look(session, table, kind, connection) for table, kind in tables.items()]
    return with_target_names(found)


def propose(source: SourceTable, choice: CursorChoice) -> Proposal:
    """Propose the cursor that the schema suggests."""
    large = choice.cursor.kind == "none" and source.estimated_rows >= LARGE_ROWS
    reasons = list(choice.reasons)
    if large:
        reasons.append("it is left out because every sync would read it in full")
    return Proposal(
        table=source.name.unscoped,
        schema=source.name.schema,
        rows=source.estimated_rows,
        cursor=choice.cursor.columns,
        included=not large,
        reason="; ".join(reasons).removeprefix("found: "),
        warnings=choice.warnings,
        left_out="large without a cursor" if large else None,
    )


def with_target_names(proposals: list[Proposal]) -> list[Proposal]:
    """Give tables of the same name in different schemas different target names."""
    names = Counter(_name(proposal) for proposal in proposals if proposal.included)
    return [
        structs.replace(proposal, target_name=_with_schema(proposal))
        if names[_name(proposal)] > 1
        else proposal
        for proposal in proposals
    ]


def _look(
    session: MysqlSession, table: TableName, kind: str, connection: MysqlConnection
) -> Proposal:
    try:
        split_name(table.unscoped)  # a name that a configuration cannot spell
        source = read_table(session, table)
        names = ", ".join(column.expression for column in plan_columns(source))
        with translated(connection):
            query(session, f"SELECT {names} FROM {relation(source)} LIMIT 0")  # noqa: S608
        if kind in _TABLES:
            return _noted(propose(source, choose_cursor(source, None)), kind)
    except FloodmarkError as error:
        return _left_out(table, error.message, "cannot be read")
    what = kind.lower()
    why = f"a {what}, not a table: if you include it, every sync reads it in full"
    return structs.replace(_left_out(table, why, what), cursor=())


def _noted(proposal: Proposal, kind: str) -> Proposal:
    if kind != SYSTEM_VERSIONED:
        return proposal
    note = "the table keeps earlier versions of its rows: only the current ones are read"
    return structs.replace(proposal, warnings=(*proposal.warnings, note))


def _left_out(table: TableName, reason: str, why: str) -> Proposal:
    return Proposal(
        table=table.unscoped,
        schema=table.schema,
        rows=0,
        cursor=None,
        included=False,
        reason=reason,
        left_out=why,
    )


def _name(proposal: Proposal) -> str:
    return "" if proposal.cursor is None else split_name(proposal.table)[2].lower()


def _with_schema(proposal: Proposal) -> str:
    _, schema, table = split_name(proposal.table)
    return f"{schema}_{table}".replace(".", "_")
