"""`floodmark drill`: rehearse recovery on a copy of the state."""

from collections.abc import Sequence

import click

from floodmark.api.drill import Rehearsal, TableDrill
from floodmark.cli.app import App, command_options, complete, table_option
from floodmark.cli.terminal import Column, entry, mark, name_some, table
from floodmark.model.formatting import counted

_COLUMNS = [
    Column(title="", right=False),
    Column(title="DAMAGE", least=12),
    Column(title="TABLES", least=12),
    Column(title="SLOWEST", right=True, spare=1),
    Column(title="RESULT", least=12),
]


@click.command()
@table_option(required=False)
@click.option(
    "-p",
    "--pipeline",
    "pipelines",
    multiple=True,
    metavar="PIPELINE",
    shell_complete=complete("pipelines"),
    help="All tables of a pipeline; may be repeated.",
)
@click.option(
    "--target",
    is_flag=True,
    help="Also load a sample of the data files into a scratch schema of the warehouse.",
)
@command_options
def drill(app: App, names: tuple[str, ...], pipelines: tuple[str, ...], *, target: bool) -> None:
    """Rehearse recovery: damage a copy of the state in every way, recover it, and compare.

    By default for all tables. The state itself is only read.
    """
    found = app.project.drill(names or None, pipelines or None, target=target)
    lines = _lines(found.tables)
    lines.append(f"{counted(len(found.tables), 'table')} in {found.seconds:.1f} s")
    app.print("\n".join(lines), found)
    found.raise_for_failures()


def _lines(tables: Sequence[TableDrill]) -> list[str]:
    """Return a line for each damage and outcome, not for each table."""
    groups: dict[tuple[str, bool | None, str], list[tuple[str, Rehearsal]]] = {}
    for one in tables:
        for each in one.rehearsals:
            key = (each.name, each.recovered, "" if each.recovered else each.detail)
            groups.setdefault(key, []).append((one.table_name, each))
    rows = [_row(group) for group in groups.values()]
    lines = [table(_COLUMNS, rows)] if rows else []
    lines += [entry("failed", f"{one.table_name}: {one.error}") for one in tables if one.error]
    if never := [one.table_name for one in tables if not one.error and not one.rehearsals]:
        lines.append(entry("note", f"{name_some(never)}: never synced"))
    return lines


def _row(group: list[tuple[str, Rehearsal]]) -> list[str]:
    names = [name for name, _ in group]
    recovered, details = group[0][1].recovered, {each.detail for _, each in group}
    state = {True: "ok", False: "failed", None: "note"}[recovered]
    result = {True: "recovered", False: "not recovered", None: "not tried"}[recovered]
    if len(details) == 1 and (detail := details.pop()):
        result = f"{result}: {detail}"
    many = len(names) > 1 and recovered is not False
    shown = counted(len(names), "table") if many else name_some(names)
    seconds = "" if recovered is None else f"{max(each.seconds for _, each in group):.2f}"
    return [mark(state), group[0][1].name, shown, seconds, result]
