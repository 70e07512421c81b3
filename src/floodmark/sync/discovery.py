"""Find the tables of a server, and how each of them could be read."""

from collections import Counter
from collections.abc import Iterable

from msgspec import structs

from floodmark.errors import FloodmarkError
from floodmark.model.cursor import CursorChoice
from floodmark.model.proposal import Proposal
from floodmark.model.schema import SourceTable
from floodmark.model.table import TableName, split_name
from floodmark.planning.cursor import choose_cursor
from floodmark.sources.catalog import read_table
from floodmark.sources.connection import MysqlSession
from floodmark.sources.projection import plan_columns

# What is larger is not read whole with every sync unless somebody says so.
LARGE_ROWS = 100_000


def discover(session: MysqlSession, tables: Iterable[TableName]) -> list[Proposal]:
    """Look at each table and propose how to read it."""
    return with_target_names([_look(session, table) for table in tables])


def propose(source: SourceTable, choice: CursorChoice) -> Proposal:
    """Propose the cursor that the schema suggests."""
    reasons, warnings = list(choice.reasons), choice.warnings
    if not source.primary_key and choice.cursor.kind != "none":
        reasons = ["no primary key: changed rows could not replace what was loaded of them"]
        choice = choose_cursor(source, ())
        warnings = ()
    whole = choice.cursor.kind == "none"
    return Proposal(
        table=source.name.unscoped,
        rows=source.estimated_rows,
        cursor=choice.cursor.columns,
        included=not whole or source.estimated_rows < LARGE_ROWS,
        reason="; ".join(reasons).removeprefix("found: "),
        warnings=warnings,
    )


def with_target_names(proposals: list[Proposal]) -> list[Proposal]:
    """Tell tables of one name in different schemas apart in the warehouse."""
    names = Counter(_name(proposal) for proposal in proposals if proposal.included)
    return [
        structs.replace(proposal, target_name=proposal.table.replace(".", "_"))
        if names[_name(proposal)] > 1
        else proposal
        for proposal in proposals
    ]


def _look(session: MysqlSession, table: TableName) -> Proposal:
    try:
        split_name(table.unscoped)  # a name that a configuration cannot spell
        source = read_table(session, table)
        plan_columns(source)
        return propose(source, choose_cursor(source, None))
    except FloodmarkError as error:
        return Proposal(
            table=table.unscoped, rows=0, cursor=None, included=False, reason=error.message
        )


def _name(proposal: Proposal) -> str:
    return proposal.table.partition(".")[2].lower()
