"""Commands that show watermarks; they repair damaged copies but change nothing else."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

import click
import msgspec

from floodmark.api.tracked_files import TrackedFile
from floodmark.api.watermarks import WatermarkOverview
from floodmark.cli.app import App, command_options, table_option
from floodmark.cli.terminal import Column, fold, print_text, width
from floodmark.cli.terminal import table as table_of
from floodmark.cli.watermark_text import (
    show_absence,
    show_change,
    show_reconciled,
    show_state,
    show_status,
    show_watermark,
)
from floodmark.errors import FloodmarkError
from floodmark.model.checksummed_json import seal
from floodmark.model.table import TableName
from floodmark.model.timestamps import plain, stamped
from floodmark.model.watermark import Watermark

_LIST = [
    Column(title="TABLE", least=18),
    Column(title="POSITION", least=19, spare=1),
    Column(title="STATE"),
    Column(title="EXTRACT", spare=4),
    Column(title="ROWS READ", right=True, spare=2),
    Column(title="LOAD", spare=5),
    Column(title="ROWS LOADED", right=True, spare=6),
    Column(title="RECONCILED", spare=3),
]
_LEFT_OUT = (
    "Rows left out are older than the start of their table; 'floodmark watermark get -t TABLE'"
    " shows how to read them."
)
_HISTORY = [
    Column(title="ID"),
    Column(title="WHEN"),
    Column(title="WHO", spare=4),
    Column(title="WHAT", least=20),
    Column(title="POSITION AFTER", least=19, spare=1),
    Column(title="ROWS AFTER", right=True, spare=3),
]
_COPIES = [
    Column(title="COPY"),
    Column(title="STATE"),
    Column(title="REVISION", right=True, spare=3),
    Column(title="POSITION", least=19),
    Column(title="KEY", least=18, spare=1),
]
_FILES = [
    Column(title="FILE", least=24),
    Column(title="ROWS", right=True),
    Column(title="BYTES", right=True, spare=3),
    Column(title="LOAD"),
]


@click.command()
@table_option(required=False)
@click.option("--show-files", is_flag=True, help="Also list the data files.")
@command_options
def get(app: App, names: tuple[str, ...], *, show_files: bool) -> None:
    """Show a table's watermark; without -t, the system watermark."""
    if not names:
        _get_system(app)
        return
    marks = app.watermarks
    found = [(table, marks.get(table)) for table in app.tables(names)]
    if app.as_json:
        documents = [_as_json(app, table, watermark) for table, watermark in found]
        if show_files:
            for document, (table, _) in zip(documents, found, strict=True):
                document["files"] = marks.files(table)
                document["quarantine"] = marks.quarantine(table)
        app.print("", documents[0] if len(documents) == 1 else documents)
        return
    texts = []
    for table, watermark in found:
        text = _as_text(app, table, watermark)
        if app.config.mirror is not None:
            text += f"\n\n   🪞 Mirror: {_mirror_as_text(app, table)}"
        if show_files:
            text += "\n\n" + _files_as_text(marks.files(table), app.config.lake_title())
            if files := marks.quarantine(table):
                text += "\n\n" + "\n".join([f"   🚧 Quarantine ({len(files):,}):", *files])
        texts.append(text)
    print_text("\n\n".join(texts))


def _mirror_as_text(app: App, table: TableName) -> str:
    try:
        return str(app.project.mirror_lag(str(table)) or "complete")
    except FloodmarkError as error:
        return f"unknown: {error.message}"


@click.command(name="list")
@command_options
def list_all(app: App) -> None:
    """List all tables, one per line.

    ROWS READ and ROWS LOADED count every version of a row, and every full reload; they are not the
    number of rows in the table.
    """
    now = app.now()
    found = app.watermarks.list()
    if app.as_json:
        app.print("", [_in_list(seen) for seen in found])
        return
    names = _names([seen.table for seen in found])
    rows = []
    for seen in found:
        name, watermark = names[seen.table], seen.watermark
        if watermark is None:
            absence = show_absence(seen.lease, seen.problem, now)
            rows.append([name, seen.problem or "", absence, *[""] * 5])
            continue
        extract, load = watermark.mysql_state, watermark.redshift_state
        manual = " (manual)" if watermark.metadata.manual_watermark else ""
        rows.append(
            [
                name,
                f"{watermark.position}{manual}",
                show_state(watermark, seen.lease, now),
                show_status(extract.status),
                f"{extract.total_rows:,}",
                show_status(load.status),
                f"{load.total_rows:,}",
                show_reconciled(watermark.reconciled_state, now),
            ]
        )
    print_text(table_of(_LIST, rows) if rows else "no tables")
    for seen in found:
        if seen.lease and seen.lease.held_by:
            since = f" since {stamped(seen.lease.held_since)}" if seen.lease.held_since else ""
            held = f"{names[seen.table]}: held back{since}: {seen.lease.held_by}"
            print_text(fold(held, indent=2))
    if any(seen.watermark and seen.watermark.mysql_state.before_start for seen in found):
        print_text(fold(_LEFT_OUT, indent=0))


@click.command()
@table_option(required=True)
@click.option(
    "--most",
    type=click.IntRange(1, 100_000),
    default=20,
    show_default=True,
    help="Show at most this many.",
)
@command_options
def history(app: App, names: tuple[str, ...], most: int) -> None:
    """Show a table's earlier states, newest first; 'restore' takes their IDs."""
    texts, documents = [], []
    for table in app.tables(names):
        manifests = app.watermarks.history(table, most)
        rows = [
            [
                str(manifest.head),
                _when(manifest.created_at),
                manifest.author,
                show_change(manifest),
                str(manifest.standing.mysql_state.position),
                f"{manifest.standing.mysql_state.total_rows:,}",
            ]
            for manifest in manifests
        ]
        body = table_of(_HISTORY, rows) if rows else "no history yet"
        texts.append(f"{table}\n{body}")
        documents += [
            {"id": str(manifest.head), **msgspec.to_builtins(manifest)} for manifest in manifests
        ]
    app.print("\n\n".join(texts), documents)


@click.command()
@table_option(required=True)
@command_options
def backups(app: App, names: tuple[str, ...]) -> None:
    """Show the backup copies of a table's watermark, and past recoveries."""
    texts, documents = [], []
    for table in app.tables(names):
        copies = app.watermarks.copies(table)
        recoveries = app.watermarks.recoveries(table)
        rows = [
            [
                copy.place,
                "valid" if copy.watermark else "damaged",
                str(copy.watermark.revision) if copy.watermark else "",
                str(copy.watermark.position) if copy.watermark else copy.problem or "",
                copy.key,
            ]
            for copy in copies
        ]
        body = table_of(_COPIES, rows)
        lines = [f"{table}", body if rows else "no copies", "", f"recoveries: {len(recoveries)}"]
        lines += [
            f"  {stamped(event.at)}  from {event.source} in {event.seconds:.2f} s: {event.reason}"
            for event in recoveries
        ]
        texts.append("\n".join(lines))
        documents.append(
            {
                "table_name": str(table),
                "copies": [
                    {
                        "place": copy.place,
                        "key": copy.key,
                        "valid": copy.watermark is not None,
                        "revision": copy.watermark.revision if copy.watermark else None,
                        "problem": copy.problem,
                    }
                    for copy in copies
                ],
                "recoveries": recoveries,
            }
        )
    app.print("\n\n".join(texts), documents[0] if len(documents) == 1 else documents)


def _in_list(seen: WatermarkOverview) -> dict[str, object]:
    lease = seen.lease
    held = {
        "held_back": lease.held_by if lease else None,
        "held_back_since": stamped(lease.held_since) if lease and lease.held_since else None,
    }
    if seen.watermark is None:
        return {"table_name": str(seen.table), "problem": seen.problem, "watermark": None, **held}
    document: dict[str, object] = msgspec.json.decode(seal(seen.watermark))
    return {**document, **held}


def _names(tables: list[TableName]) -> dict[TableName, str]:
    """Return display names: on a terminal without the scope, where that is unambiguous."""
    short = Counter(table.unscoped for table in tables) if width() else Counter[str]()
    return {table: table.unscoped if short[table.unscoped] == 1 else str(table) for table in tables}


def _when(moment: datetime) -> str:
    """Format a time; on a terminal without fractions and zone."""
    return plain(moment.replace(microsecond=0)) if width() else stamped(moment)


def _show_start(start: datetime | str) -> str:
    return "all rows" if isinstance(start, str) else plain(start)


def _get_system(app: App) -> None:
    system = app.watermarks.get_system()
    default = app.config.settings.default_start
    if system is None:
        text = f"No system watermark found, will start from default: {_show_start(default)}"
        value = default if default == "all" else stamped(default)
        app.print(text, {"timestamp": None, "default_start": value})
        return
    how = f"preset {system.preset}" if system.preset else f"from {system.author}"
    when = f", set {stamped(system.set_at)} by {system.author}" if system.set_at else ""
    text = f"📅 System Watermark: {plain(system.timestamp)} ({how}{when})"
    app.print(text, system)


def _as_text(app: App, table: TableName, watermark: Watermark | None) -> str:
    marks = app.watermarks
    next_start = marks.next_start(table)
    position, by = next_start.position, next_start.by
    shown = _show_start(position.timestamp or "all")
    if watermark is None:
        return f"No watermark found, will start from {by}: {shown}"
    if by == "watermark":
        start = str(position) if position.base.is_start else f"rows after {position}"
    elif by == "whole table":
        start = "the start (the whole table is read every time)"
    else:
        start = f"{shown} ({by})"
    now = app.now() if width() else None
    how = marks.how_to_read_rest(table)
    return show_watermark(
        table,
        watermark,
        start,
        now,
        marks.lease(table),
        how,
        lake=app.config.lake_title(),
        warehouse=app.config.warehouse_title(table),
    )


def _as_json(app: App, table: TableName, watermark: Watermark | None) -> dict[str, object]:
    if watermark is not None:
        document: dict[str, object] = msgspec.json.decode(seal(watermark))
        return document
    start = app.watermarks.next_start(table)
    moment = start.position.timestamp
    return {
        "table_name": str(table),
        "revision": 0,
        "next_start": stamped(moment) if moment else "all",
        "next_start_by": start.by,
    }


def _files_as_text(files: Sequence[TrackedFile], lake: str) -> str:
    rows = [
        [file.path, f"{file.rows:,}", f"{file.bytes:,}", "loaded" if file.loaded else "pending"]
        for file in files
    ]
    title = f"   📁 {'S3 Files' if lake == 'S3' else 'Files in Lake'} ({len(files):,}):"
    return f"{title}\n{table_of(_FILES, rows)}" if rows else title
