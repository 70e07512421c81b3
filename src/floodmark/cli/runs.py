"""`floodmark runs`: list the recorded runs, or show one."""

from datetime import datetime

import click

from floodmark.cli.app import App, command_options, complete, shared_options
from floodmark.cli.log import Log
from floodmark.cli.terminal import Column, fold, style, used_columns, width, without_name
from floodmark.cli.terminal import table as table_of
from floodmark.model.formatting import brief, size
from floodmark.model.run_record import RunRecord, TableRun
from floodmark.model.timestamps import plain, stamped

_COLORS = {
    "running": "yellow",
    "success": "green",
    "busy": "yellow",
    "interrupted": "yellow",
}
_FLAGS = {"tables": "-t", "pipelines": "-p", "verify": "--verify-data"}
_FLAGS |= {"start": "--from", "end": "--to", "seconds": "--budget", "segments": "--budget"}
_RUNS = [
    Column(title="ID"),
    Column(title="STARTED", spare=5),
    Column(title="TOOK", right=True),
    Column(title="STATUS"),
    Column(title="TABLES", right=True, spare=3),
    Column(title="FAILED", right=True, spare=2),
    Column(title="ROWS READ", right=True),
    Column(title="LOADED", right=True, spare=4),
    Column(title="WHO", spare=6),
    Column(title="WHAT", least=12, spare=1),
]
_TABLES = [
    Column(title="TABLE", least=18),
    Column(title="STATUS"),
    Column(title="ROWS READ", right=True),
    Column(title="BYTES", right=True, spare=4),
    Column(title="LOADED", right=True),
    Column(title="DELETED", right=True, spare=4),
    Column(title="EXTRACT", right=True, spare=3),
    Column(title="LOAD", right=True, spare=3),
    Column(title="RECONCILE", right=True, spare=5),
    Column(title="VERIFY", right=True, spare=5),
    Column(title="WHY", least=16, spare=1),
]


@click.group(invoke_without_command=True)
@click.option(
    "-p",
    "--pipeline",
    "pipelines",
    multiple=True,
    shell_complete=complete("pipelines"),
    help="Only runs with tables of this pipeline; may be repeated.",
)
@click.option("--failed", is_flag=True, help="Only runs that failed or did not finish.")
@click.option(
    "--most",
    type=click.IntRange(1, 100_000),
    default=20,
    show_default=True,
    help="Show at most this many.",
)
@shared_options
def runs(
    config_path: str | None,
    pipelines: tuple[str, ...],
    most: int,
    *,
    failed: bool,
    log: Log,
    as_json: bool,
) -> None:
    """List the recorded runs, newest first, or show one.

    Every run leaves a record in the lake. Of the rounds of 'sync --every', those in which something
    happened do, and one an hour.
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    app = App(config_path, log, as_json=as_json)
    found = list(app.project.runs(pipelines=pipelines or None, failed=failed, most=most))
    rows = [_row(record, app.now()) for record in found]
    app.print(table_of(_RUNS, rows) if rows else "no runs", found)


@runs.command()
@click.argument("run_id", metavar="ID")
@command_options
def show(app: App, run_id: str) -> None:
    """Show one run: what it did with each table, its errors and notices.

    ID may be the beginning of an ID that 'floodmark runs' lists.
    """
    record = app.project.run(run_id)
    app.print(_show(record, app.now()), record)


def _row(record: RunRecord, now: datetime) -> list[str]:
    return [
        record.run_id,
        _when(record.started_at),
        brief((record.ended_at or now) - record.started_at)
        if record.ended_at or record.status == "running"
        else "-",
        style(record.status, _COLORS.get(record.status, "red")),
        f"{record.table_count:,}",
        f"{len(record.failures):,}" if record.failures else "",
        f"{record.rows:,}",
        f"{record.loaded_rows:,}",
        f"{record.user}@{record.host}",
        what(record),
    ]


def what(record: RunRecord) -> str:
    """Return the command of a run with its options, as on the command line."""
    parts = [record.command]
    for name, value in record.options.items():
        flag = _FLAGS.get(name, f"--{name.replace('_', '-')}")
        values = value if isinstance(value, list) else [value]
        parts += [flag if one is True else f"{flag} {one}" for one in values]
    if record.every_seconds:
        parts.append(f"--every {record.every_seconds:g}s")
    return " ".join(parts)


def _show(record: RunRecord, now: datetime) -> str:
    ended = _when(record.ended_at) if record.ended_at else f"last seen {_when(record.seen_at)}"
    facts: dict[str, str] = {
        "Run": record.run_id,
        "Status": style(record.status, _COLORS.get(record.status, "red")),
        "What": what(record),
        "Who": f"{record.user}@{record.host}, floodmark {record.program}",
        "When": f"{_when(record.started_at)} to {ended}",
        "Tables": f"{record.table_count:,} ({len(record.unchanged):,} unchanged,"
        f" {len(record.failures):,} failed)",
        "Rows": f"{record.rows:,} read, {record.loaded_rows:,} loaded"
        + (f", {record.deleted_rows:,} deleted" if record.deleted_rows else ""),
    }
    if record.status == "running":
        facts["When"] = f"since {_when(record.started_at)} ({brief(now - record.started_at)})"
    lines = [f"{name + ':':<8} {text}" for name, text in facts.items()]
    if record.error:
        lines.append(fold(f"Error:   {record.error}", indent=9))
    if record.hint:
        lines.append(fold(f"Hint:    {record.hint}", indent=9))
    if record.tables:
        rows = [_table_row(table) for table in record.tables]
        lines += ["", table_of(*used_columns(_TABLES, rows, always=5))]
    if record.notices:
        lines += ["", *(fold(f"{n.level}: {n.message}", indent=4) for n in record.notices)]
    return "\n".join(lines)


def _table_row(table: TableRun) -> list[str]:
    failed = table.status in ("failed", "differs")
    color = "red" if failed else "green" if table.status == "success" else "yellow"
    return [
        table.table_name,
        style(table.status.replace("_", " "), color),
        f"{table.rows:,}",
        size(table.bytes) if table.bytes else "",
        f"{table.loaded_rows:,}",
        f"{table.deleted_rows:,}" if table.deleted_rows else "",
        *(
            f"{seconds:.1f} s" if seconds else ""
            for seconds in (
                table.seconds,
                table.load_seconds,
                table.reconcile_seconds,
                table.verify_seconds,
            )
        ),
        without_name(table.error or table.held_back or _found(table), table.table_name),
    ]


def _found(table: TableRun) -> str:
    return "".join(f", {count:,} {kind}" for kind, count in table.found.items())[2:]


def _when(moment: datetime) -> str:
    """Format a time; on a terminal without fractions and zone."""
    return plain(moment.replace(microsecond=0)) if width() else stamped(moment)
