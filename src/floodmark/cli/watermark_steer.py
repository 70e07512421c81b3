"""Commands that change a position: set, reset, restore."""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import cast

import click
import msgspec

from floodmark.api.reset_preview import preview_reset, preview_restore
from floodmark.api.set_preview import preview_set
from floodmark.api.watermarks import parse_head
from floodmark.api.watermarks import set_position as set_position_of
from floodmark.cli.app import App, command_options, complete, confirm, table_option
from floodmark.cli.terminal import fold
from floodmark.errors import FloodmarkError, PartialFailure, StateError, UsageError
from floodmark.model.checksummed_json import seal
from floodmark.model.manifest import Reset, Set
from floodmark.model.position import LARGEST_NUMBER, Position
from floodmark.model.presets import preset_moment
from floodmark.model.run import Stage
from floodmark.model.table import TableName
from floodmark.model.timestamps import parse_timestamp, plain
from floodmark.model.watermark import FURTHEST_ZONE, Watermark
from floodmark.state import operator_changes
from floodmark.state.system_watermark import read_system_watermark, write_system_watermark


@click.command(name="set")
@click.argument("preset", required=False, shell_complete=complete("presets"))
@table_option(required=False)
@click.option(
    "--timestamp",
    "moment",
    metavar="TS",
    help="Continue after this time, as stored in the cursor column: '2025-08-09 20:00:01'.",
)
@click.option(
    "--id",
    "identity",
    metavar="N",
    help="Continue after this id, or with --timestamp, after this id at that time.",
)
@click.option("--force", is_flag=True, help="Do not ask for confirmation.")
@command_options
def set_position(
    app: App,
    preset: str | None,
    names: tuple[str, ...],
    moment: str | None,
    identity: str | None,
    *,
    force: bool,
) -> None:
    """Set a table's position; with a PRESET instead of -t, the system watermark.

    The next sync reads the rows after the position. Rows with exactly this timestamp count as
    read; with --id, only up to that id. Asks for confirmation before skipping rows.
    """
    if preset is not None:
        if names or moment or identity:
            raise UsageError(
                "a preset sets the system watermark and cannot be combined with -t, --timestamp or"
                " --id"
            )
        _set_system(app, preset, force=force)
        return
    if not names:
        raise UsageError("nothing to set", hint="name a table with -t, or a preset")
    if moment is None and identity is None:
        raise UsageError("no position given", hint="add --timestamp, --id, or both")
    tables = app.tables(names)
    position = Position(_timestamp(app, moment), _identity(identity))
    before = {table: _position(_current(app, table)) for table in tables}
    previews = {
        table: preview_set(app.context, table, before[table], position, force=force)
        for table in tables
    }
    for table, preview in previews.items():
        operator_changes.refuse_repetition(app.store, table, Set(position=position))
        if preview.question:
            _confirm(preview.question, force=force)
    _apply(
        app,
        tables,
        lambda table: _moved(
            table,
            before[table],
            set_position_of(app.context, table, position),
            outlook=previews[table].outlook,
        ),
    )


@click.command()
@click.argument("preset", required=False, shell_complete=complete("presets"))
@table_option(required=False)
@click.option("--mysql-only", "--extract-only", "extract_only", is_flag=True, help="Only stage 1.")
@click.option("--redshift-only", "--load-only", "load_only", is_flag=True, help="Only stage 2.")
@click.option("--force", is_flag=True, help="Do not ask for confirmation.")
@command_options
def reset(
    app: App,
    preset: str | None,
    names: tuple[str, ...],
    *,
    extract_only: bool,
    load_only: bool,
    force: bool,
) -> None:
    """Reset a table to the start; with a PRESET instead of -t, the system watermark.

    Shows what will be read or loaded again, and asks for confirmation.
    """
    if extract_only and load_only:
        raise UsageError("--mysql-only and --redshift-only cannot be combined")
    if preset is not None:
        if names or extract_only or load_only:
            raise UsageError(
                "a preset resets the system watermark and cannot be combined with -t or a stage"
            )
        _set_system(app, preset, force=force)
        return
    if not names:
        raise UsageError("nothing to reset", hint="name a table with -t, or a preset")
    stages = ["extract"] if extract_only else ["load"] if load_only else ["extract", "load"]
    tables = app.tables(names)
    watermarks = {table: _current(app, table) for table in tables}
    before = {table: _position(watermarks[table]) for table in tables}
    for table in tables if not force else ():
        change = Reset(stages=tuple(cast("list[Stage]", stages)))
        operator_changes.refuse_repetition(app.store, table, change)
        question = preview_reset(app.context, table, watermarks[table], extract=not load_only)
        _confirm(question, force=force)
    _apply(
        app,
        tables,
        lambda table: _moved(
            table,
            before[table],
            operator_changes.reset(app.store, table, cast("list[Stage]", stages)),
            note=f" ({' and '.join(stages)} reset)",
        ),
    )


@click.command()
@table_option(required=True)
@click.option("--from", "origin", metavar="ID", help="ID shown by 'watermark history'.")
@click.option("--file", "path", metavar="FILE", help="Saved output of 'watermark get --json'.")
@click.option("--force", is_flag=True, help="Do not ask for confirmation.")
@command_options
def restore(
    app: App, names: tuple[str, ...], origin: str | None, path: str | None, *, force: bool
) -> None:
    """Restore an earlier state of a table; shows the effect and asks for confirmation."""
    if (origin is None) == (path is None):
        raise UsageError("nothing to restore from", hint="use either --from ID or --file FILE")
    if len(names) != 1:
        raise UsageError("restore one table at a time")
    table = app.table(names[0])
    before = _position(_current(app, table))

    def agree(after: Position) -> None:
        if not force:
            question = preview_restore(table, before, after, origin or str(path))
            _confirm(question, force=force)

    if path is not None:
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from error
        after = operator_changes.restore_document(app.store, table, data, name=path, agree=agree)
    else:
        after = operator_changes.restore_manifest(
            app.store, table, parse_head(table, str(origin)), agree=agree
        )
    text, value = _moved(table, before, after)
    app.print(text, [value])


def _apply(
    app: App, tables: list[TableName], move: Callable[[TableName], tuple[str, dict[str, object]]]
) -> None:
    """Change each table; raise the errors at the end, after the other tables are done."""
    results: list[tuple[str, dict[str, object]]] = []
    failures: list[FloodmarkError] = []
    for table in tables:
        try:
            results.append(move(table))
        except FloodmarkError as error:
            failures.append(error)
    if results:
        app.print("\n".join(text for text, _ in results), [value for _, value in results])
    if failures and results:
        raise PartialFailure("; ".join(error.message for error in failures), hint=failures[0].hint)
    if failures:
        raise failures[0]


def _set_system(app: App, preset: str, *, force: bool) -> None:
    now = app.run.clock()
    moment = preset_moment(preset, app.config.settings.presets, now)
    if moment > now:
        raise UsageError(f"preset {preset!r} is in the future: {plain(moment)}")
    try:
        current = read_system_watermark(app.store.objects, now=app.run.clock())
    except StateError:
        current = None
    before = plain(current.timestamp) if current else "none"
    text = f"system watermark: {before} → {plain(moment)}"
    confirm(f"{text}?", force=force, refusal=f"this would set the {text}")
    system = write_system_watermark(app.store.objects, moment, preset, app.context.by)
    app.print(text, system)


def _timestamp(app: App, text: str | None) -> datetime | None:
    if text is None:
        return None
    moment = parse_timestamp(text)
    if datetime.fromisoformat(text.strip()).utcoffset():  # positions are printed as UTC
        raise UsageError(
            f"timestamp {text!r} has a time zone",
            hint="write it without one, as stored in the cursor column: '2025-08-09 20:00:01'",
        )
    if moment > app.run.clock() + FURTHEST_ZONE:
        raise UsageError(
            f"timestamp {text!r} is in the future", hint="rows in between would be skipped"
        )
    return moment


def _identity(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        raise UsageError(f"id {text!r} is not a whole number") from None
    if number < 0:
        raise UsageError(f"id {text!r} is negative")
    if number > LARGEST_NUMBER:
        raise UsageError(f"id {text!r} is larger than any id in MySQL")
    return number


def _current(app: App, table: TableName) -> Watermark | None:
    """Return a table's watermark; None if there is none, or it cannot be read."""
    with suppress(StateError):
        return app.store.get(table)
    return None


def _position(watermark: Watermark | None) -> Position | None:
    return watermark.position if watermark else None


def _confirm(what: str, *, force: bool) -> None:
    confirm(f"{what}. Continue?", force=force, refusal=what)


def _moved(
    table: TableName,
    before: Position | None,
    after: Watermark,
    note: str = "",
    outlook: str | None = None,
) -> tuple[str, dict[str, object]]:
    was = "no watermark" if before is None else str(before)
    text = f"{table}: {was} → {after.position}{note}"
    if outlook:
        text += f"\n{fold(outlook, first=4, indent=4)}"
    value: dict[str, object] = {
        "table_name": str(table),
        "before": before,
        "after": after.position,
        "watermark": msgspec.json.decode(seal(after)),
    }
    return text, value | ({"next_sync": outlook} if outlook else {})
