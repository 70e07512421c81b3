"""`floodmark watermark move`: rename a table or a source."""

import click

from floodmark.cli.app import App, command_options, complete, confirm
from floodmark.errors import UsageError
from floodmark.model.formatting import counted
from floodmark.model.table import TableName


@click.command()
@click.option("-t", "--table", "old", metavar="TABLE", help="Old name, as SCOPE:schema.table.")
@click.option("--to", "new", metavar="TABLE", shell_complete=complete("tables"), help="New name.")
@click.option("--from-scope", metavar="SCOPE", help="Old name of a source; moves all its tables.")
@click.option("--to-scope", metavar="SCOPE", help="New name of the source.")
@click.option("--force", is_flag=True, help="Do not ask for confirmation.")
@command_options
def move(
    app: App,
    old: str | None,
    new: str | None,
    from_scope: str | None,
    to_scope: str | None,
    *,
    force: bool,
) -> None:
    """Rename a table, or all tables of a source, without reading or loading them again.

    The new name must be in the configuration. Safe to repeat after an interruption.
    """
    if (old is None or new is None) == (from_scope is None or to_scope is None):
        raise UsageError("nothing to move", hint="use -t and --to, or --from-scope and --to-scope")
    if old and new:
        pairs = [(_old_name(app, old), app.table(new))]
    else:
        pairs = _scope(app, str(from_scope), str(to_scope))
    marks = app.project.watermarks
    pending = [(a, b) for a, b in pairs if marks.can_move(a, b)]
    names = ", ".join(f"{a} to {b}" for a, b in pending)
    if pending:
        confirm(f"move {names}?", force=force, refusal=f"this would move {names}")
    moved = [(a, b) for a, b in pending if marks.move(str(a), str(b))]
    lines = [f"{a} → {b}" for a, b in moved]
    left = len(pairs) - len(moved)
    if left:
        lines.append(f"{counted(left, 'table')} already moved")
    app.print("\n".join(lines), [{"from": str(a), "to": str(b)} for a, b in moved])


def _old_name(app: App, text: str) -> TableName:
    """Resolve a table that may no longer be in the configuration."""
    return TableName.parse(text) if ":" in text else app.table(text)


def _scope(app: App, old: str, new: str) -> list[tuple[TableName, TableName]]:
    tables = [table for table in app.lake.tables() if table.scope == old]
    if not tables:
        raise UsageError(
            f"the lake has no tables of {old!r}", hint="see 'floodmark watermark list'"
        )
    return [(table, TableName(new, table.schema, table.table)) for table in tables]
