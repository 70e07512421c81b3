"""`floodmark drill`: rehearse recovery on a copy of the state."""

import click

from floodmark.cli.app import App, command_options, complete, table_option
from floodmark.cli.terminal import Column, entry, mark, table
from floodmark.model.formatting import counted

_COLUMNS = [
    Column(title="", right=False),
    Column(title="TABLE", least=12),
    Column(title="DAMAGE", least=12),
    Column(title="SECONDS", right=True, spare=1),
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
    rows, lines = [], []
    for one in found.tables:
        if one.error:
            lines.append(entry("failed", f"{one.table_name}: {one.error}"))
        elif not one.rehearsals:
            lines.append(entry("note", f"{one.table_name}: never synced"))
        for rehearsal in one.rehearsals:
            state = {True: "ok", False: "failed", None: "note"}[rehearsal.recovered]
            words = {True: "recovered", False: "not recovered", None: "not tried"}
            what = words[rehearsal.recovered]
            detail = f"{what}: {rehearsal.detail}" if rehearsal.detail else what
            seconds = "" if rehearsal.recovered is None else f"{rehearsal.seconds:.2f}"
            rows.append([mark(state), one.table_name, rehearsal.name, seconds, detail])
    if rows:
        lines.insert(0, table(_COLUMNS, rows))
    lines.append(f"{counted(len(found.tables), 'table')} in {found.seconds:.1f} s")
    app.print("\n".join(lines), found)
    found.raise_for_failures()
