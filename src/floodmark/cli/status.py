"""`floodmark status`: the state of every table, from the lake alone."""

import shutil
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import click
import msgspec

from floodmark.api.project import Project
from floodmark.api.status import STATES, TableStatus
from floodmark.cli.app import App, command_options, complete, table_option
from floodmark.cli.terminal import (
    Column,
    fold,
    name_some,
    print_text,
    style,
    used_columns,
    width,
    without_name,
)
from floodmark.cli.terminal import table as table_of
from floodmark.errors import ExitCode, StorageError, UsageError
from floodmark.model.durations import parse_duration
from floodmark.model.formatting import brief, counted
from floodmark.model.table import TableName
from floodmark.model.timestamps import stamped

WATCH_SECONDS = 2.0
WITH_CAUSE = ("failing", "differs", "held back")
"""States of which the same reason is shown once for all its tables."""

_COLORS = {
    "failing": "red",
    "differs": "red",
    "held back": "yellow",
    "behind": "yellow",
    "never synced": "yellow",
    "in step": "green",
}
_COLUMNS = [
    Column(title="TABLE", least=16),
    Column(title="STATE"),
    Column(title="FRESH", right=True),
    Column(title="SINCE", right=True, spare=2),
    Column(title="ROWS TODAY", right=True, spare=4),
    Column(title="VERIFIED", right=True, spare=5),
    Column(title="RECONCILED", right=True, spare=6),
    Column(title="WHY", least=16, spare=1),
]


@click.command()
@table_option(required=False)
@click.option(
    "-p",
    "--pipeline",
    "pipelines",
    multiple=True,
    shell_complete=complete("pipelines"),
    help="Only tables of this pipeline; may be repeated.",
)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(STATES),
    help="Only tables in this state; may be repeated.",
)
@click.option(
    "--older-than",
    "age_text",
    metavar="SPAN",
    help="Only tables whose data is older than 30m, 1h, 2d …; exit code 6 if there are any.",
)
@click.option(
    "--watch",
    is_flag=True,
    help="Show it again every two seconds, or less often if the lake answers slowly, until Ctrl-C.",
)
@click.option("--html", "page", metavar="FILE", help="Write a page with these tables instead.")
@command_options
def status(
    app: App,
    names: tuple[str, ...],
    pipelines: tuple[str, ...],
    states: tuple[str, ...],
    age_text: str | None,
    page: str | None,
    *,
    watch: bool,
) -> int:
    """Show the state of every table, worst first, from the lake alone.

    FRESH is the age of the data in the warehouse: everything that was in the source at that time
    is there. SINCE is how long a table has been in its state. A table is behind if rows in the lake
    are not loaded, or if its last complete run is too long ago: three intervals of 'sync --every',
    'behind_hours' of its pipeline, or 24 hours.
    """
    age = parse_duration(age_text, like="30m, 1h or 2d") if age_text is not None else None
    if watch and (app.as_json or page):
        raise UsageError(f"--watch and {'--html' if page else '--json'} cannot be combined")
    chosen = (names or None, pipelines or None)

    def look() -> tuple[list[TableStatus], datetime]:
        found, now = app.project.status(*chosen), app.now()
        return [seen for seen in found if _is_wanted(seen, states, age, now)], now

    everything = not (names or pipelines or states or age)

    def show(found: list[TableStatus], now: datetime) -> str:
        return _show(found, now, _safety(app.project, now) if everything else [])

    if watch:
        with suppress(KeyboardInterrupt):
            _watch(app, lambda: show(*look()))
        return ExitCode.DONE
    found, now = look()
    if page is not None:
        from floodmark.cli.page.file import write_page

        write_page(app.project, found, page, everything=everything)
    # Cron mails whatever is printed.
    if app.as_json or (page is None and (found or age is None)):
        app.print(show(found, now), [value_of(seen, now) for seen in found])
    return ExitCode.STALE if age is not None and found else ExitCode.DONE


def value_of(seen: TableStatus, now: datetime) -> dict[str, Any]:
    """Return the status of a table as JSON values."""
    value: dict[str, Any] = msgspec.to_builtins(seen)
    del value["watermark"], value["table"]
    known = seen.watermark
    return {
        "table_name": str(seen.table),
        "configured": seen.pipeline is not None,
        **value,
        "behind_after": seen.behind_after.total_seconds(),
        "age_seconds": (now - seen.fresh).total_seconds() if seen.fresh else None,
        "error": seen.error,
        "rows_read": known.mysql_state.total_rows if known else 0,
        "rows_loaded": known.redshift_state.total_rows if known else 0,
    }


def _is_wanted(
    seen: TableStatus, states: tuple[str, ...], age: timedelta | None, now: datetime
) -> bool:
    return (not states or seen.state in states) and (age is None or seen.older_than(age, now))


def _safety(project: Project, now: datetime) -> list[str]:
    """Describe the mirror, if there is one, and the last drill, if there was one."""
    lines = []
    if (mirror := project.mirror_state) is not None:
        lines.append(f"mirror: {mirror}")
    if (drill := project.last_drill) is not None:
        lines.append(f"drill: {drill}, {brief(now - drill.at)} ago")
    return lines


def _show(found: list[TableStatus], now: datetime, safety: list[str]) -> str:
    if not found:
        return "no tables"
    names = _names([seen.table for seen in found])
    rows = [
        [
            names[seen.table] + ("" if seen.pipeline else " (not configured)"),
            style(seen.state, _COLORS[seen.state]) + (", running" if seen.running else ""),
            _age(seen.fresh, now),
            _age(seen.since, now),
            "?" if seen.rows_today is None else f"{seen.rows_today:,}",
            _age(seen.verified, now),
            _age(seen.reconciled, now),
            cause_of(seen),
        ]
        for seen in found
    ]
    table = table_of(*used_columns(_COLUMNS, rows, always=3))
    lines = (*_problems(found, names), *_notes(found, names), *safety)
    notes = [fold(line, indent=2) for line in lines]
    return "\n".join([table, *notes, fold(_summary(found), indent=0)])


def _names(tables: list[TableName]) -> dict[TableName, str]:
    """Return display names: on a terminal without the scope, where that is unambiguous."""
    short = Counter(table.unscoped for table in tables) if width() else Counter[str]()
    return {table: table.unscoped if short[table.unscoped] == 1 else str(table) for table in tables}


def _age(moment: datetime | None, now: datetime) -> str:
    return brief(now - moment) if moment else "-"


def _problems(found: list[TableStatus], names: dict[TableName, str]) -> list[str]:
    """Return the reasons that the table may have shortened, each once with its tables.

    A hint follows; for several tables that of the first one.
    """
    if not width():
        return []
    shown = [seen for seen in found if seen.state in WITH_CAUSE or seen.hint]
    # How long each table is behind is in the table.
    texts = [cause_of(seen) if seen.state in WITH_CAUSE else seen.state for seen in shown]
    hints: dict[str, str | None] = {}
    for text, seen in zip(texts, shown, strict=True):
        hints.setdefault(text, seen.hint)
    lines = []
    reasons = _grouped([(text, names[s.table]) for text, s in zip(texts, shown, strict=True)])
    for reason, hint in zip(reasons, hints.values(), strict=True):
        lines += [reason, f"hint: {hint}"] if hint else [reason]
    return lines


def cause_of(seen: TableStatus) -> str:
    """Return why a table is in its state, so that the same reason of many tables is equal."""
    return without_name(seen.reason or "", str(seen.table))


def _notes(found: list[TableStatus], names: dict[TableName, str]) -> list[str]:
    """Return the warnings about schemas, each once with its tables."""
    warnings = [(text, names[seen.table]) for seen in found for text in seen.warnings]
    return [f"note: {line}" for line in _grouped(warnings)]


def _grouped(found: list[tuple[str, str]]) -> list[str]:
    by_text: dict[str, list[str]] = {}
    for text, name in found:
        by_text.setdefault(text, []).append(name)
    return [f"{name_some(tables)}: {text}" for text, tables in by_text.items()]


def _summary(found: list[TableStatus]) -> str:
    counts = Counter(seen.state if seen.pipeline else "not configured" for seen in found)
    kinds = (*STATES, "not configured")
    parts = [f"{counts[kind]:,} {kind}" for kind in kinds if counts[kind]]
    return f"{counted(len(found), 'table')}: {', '.join(parts)}"


def _watch(app: App, look: Callable[[], str]) -> None:
    """Show the tables for ever; while the lake cannot be read, the error and the last ones."""
    last = ""
    while True:
        began = time.monotonic()
        as_of = _moment(app)
        try:
            last = f"{as_of}  {app.project.config.lake.url}\n{look()}"
            text = last
            # Like the page: at most a tenth of the time is spent on reading.
            pause = max(WATCH_SECONDS, 9 * (time.monotonic() - began))
        except StorageError as error:
            hint = f"; hint: {error.hint}" if error.hint else ""
            text = f"{_moment(app)}  the lake cannot be read: {error.message}{hint}\n{last}"
            pause = WATCH_SECONDS  # what failed was tried several times already
        _redraw(text)
        time.sleep(pause)


def _moment(app: App) -> str:
    return stamped(app.now().replace(microsecond=0))


def _redraw(text: str) -> None:
    """Clear the terminal and show the text, its worst tables first; elsewhere only print it."""
    if width():
        click.echo("\x1b[H\x1b[2J", nl=False)
        text = _cut(text.splitlines(), shutil.get_terminal_size().lines - 1)
    print_text(text)


def _cut(lines: list[str], most: int) -> str:
    """Leave out what is before the summary if there are too many lines, not what is at the top."""
    if len(lines) > most:
        kept = max(1, most - 2)
        lines = [*lines[:kept], f"… {len(lines) - kept - 1:,} more lines", lines[-1]]
    return "\n".join(lines)
