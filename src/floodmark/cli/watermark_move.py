"""The command that gives a table another name: `watermark move`."""

import click

from floodmark.cli.app import App, command_options, complete, confirm
from floodmark.errors import UsageError
from floodmark.model.formatting import counted
from floodmark.model.table import TableName


@click.command()
@click.option("-t", "--table", "old", metavar="TABLE", help="SCOPE:schema.table, as it was.")
@click.option(
    "--to", "new", metavar="TABLE", shell_complete=complete("tables"), help="Its name from now on."
)
@click.option("--from-scope", metavar="SCOPE", help="All tables of a source, as it was called.")
@click.option("--to-scope", metavar="SCOPE", help="What the source is called from now on.")
@click.option("--force", is_flag=True, help="Do not ask.")
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
    """Give a table, or all of a source, another name; nothing is read or loaded again.

    The new name must be in the configuration. May be repeated if it was interrupted.
    """
    if (old is None or new is None) == (from_scope is None or to_scope is None):
        raise UsageError(
            "say what to move", hint="with -t and --to, or --from-scope and --to-scope"
        )
    if old and new:
        pairs = [(_old_name(app, old), app.table(new))]
    else:
        pairs = _scope(app, str(from_scope), str(to_scope))
    marks = app.project.watermarks
    wanted = [(a, b) for a, b in pairs if marks.can_move(a, b)]
    names = ", ".join(f"{a} to {b}" for a, b in wanted)
    if wanted:
        confirm(f"move {names}?", force=force, refusal=f"this would move {names}")
    moved = [(a, b) for a, b in wanted if marks.move(str(a), str(b))]
    lines = [f"{a} → {b}" for a, b in moved]
    left = len(pairs) - len(moved)
    if left:
        lines.append(f"{counted(left, 'table')} moved before")
    app.print("\n".join(lines), [{"from": str(a), "to": str(b)} for a, b in moved])


def _old_name(app: App, text: str) -> TableName:
    """A table that need not be in the configuration any more."""
    return TableName.parse(text) if ":" in text else app.table(text)


def _scope(app: App, old: str, new: str) -> list[tuple[TableName, TableName]]:
    tables = [table for table in app.store.log.tables() if table.scope == old]
    if not tables:
        raise UsageError(f"nothing is known of {old!r}", hint="see 'floodmark watermark list'")
    return [(table, TableName(new, table.schema, table.table)) for table in tables]
