"""Commands that change a position: set, reset, restore."""

from collections.abc import Sequence
from datetime import datetime

import click
import msgspec

from floodmark.api.changes import PreparedChange
from floodmark.cli.app import App, command_options, complete, confirm, table_option
from floodmark.cli.terminal import fold
from floodmark.errors import FloodmarkError, PartialFailure, UsageError
from floodmark.model.checksummed_json import seal
from floodmark.model.run import Stage
from floodmark.model.timestamps import parse_timestamp, plain
from floodmark.model.watermark import FURTHEST_ZONE, Watermark


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
    timestamp, number = _timestamp(app, moment), _identity(identity)
    marks = app.watermarks
    changes = [
        marks.prepare_set(table, timestamp=timestamp, id=number, force=force) for table in tables
    ]
    _confirm_and_commit(app, changes)


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
    stages: list[Stage] = ["extract"] if not load_only else []
    stages += ["load"] if not extract_only else []
    tables = app.tables(names)
    changes = [app.watermarks.prepare_reset(t, stages=stages, force=force) for t in tables]
    _confirm_and_commit(app, changes, note=f" ({' and '.join(stages)} reset)")


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
    state: str | bytes = str(origin)
    if path is not None:
        try:
            with open(path, "rb") as file:
                state = file.read()
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from error
    change = app.watermarks.prepare_restore(table, state, name=path)
    _confirm(change, force=force)
    text, value = _moved(change, change.commit())
    app.print(text, [value])


def _confirm_and_commit(app: App, changes: Sequence[PreparedChange], note: str = "") -> None:
    """Change each table; raise the errors at the end, after the other tables are done."""
    for change in changes:
        _confirm(change)
    results: list[tuple[str, dict[str, object]]] = []
    failures: list[FloodmarkError] = []
    for change in changes:
        try:
            results.append(_moved(change, change.commit(), note))
        except FloodmarkError as error:
            failures.append(error)
    if results:
        app.print("\n".join(text for text, _ in results), [value for _, value in results])
    if failures and results:
        raise PartialFailure("; ".join(error.message for error in failures), hint=failures[0].hint)
    if failures:
        raise failures[0]


def _set_system(app: App, preset: str, *, force: bool) -> None:
    change = app.watermarks.prepare_system(preset)
    before = plain(change.before.timestamp) if change.before else "none"
    text = f"system watermark: {before} → {plain(change.timestamp)}"
    confirm(f"{text}?", force=force, refusal=f"this would set the {text}")
    app.print(text, change.commit())


def _timestamp(app: App, text: str | None) -> datetime | None:
    if text is None:
        return None
    moment = parse_timestamp(text)
    if datetime.fromisoformat(text.strip()).utcoffset():  # positions are printed as UTC
        raise UsageError(
            f"timestamp {text!r} has a time zone",
            hint="write it without one, as stored in the cursor column: '2025-08-09 20:00:01'",
        )
    if moment > app.now() + FURTHEST_ZONE:
        raise UsageError(
            f"timestamp {text!r} is in the future", hint="rows in between would be skipped"
        )
    return moment


def _identity(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        raise UsageError(f"id {text!r} is not a whole number") from None


def _confirm(change: PreparedChange, *, force: bool = False) -> None:
    if change.question:
        confirm(f"{change.question}. Continue?", force=force, refusal=change.question)


def _moved(
    change: PreparedChange, after: Watermark, note: str = ""
) -> tuple[str, dict[str, object]]:
    before, outlook = change.before, change.outlook
    was = "no watermark" if before is None else str(before)
    text = f"{change.table}: {was} → {after.position}{note}"
    if outlook:
        text += f"\n{fold(outlook, first=4, indent=4)}"
    value: dict[str, object] = {
        "table_name": str(change.table),
        "before": before,
        "after": after.position,
        "watermark": msgspec.json.decode(seal(after)),
    }
    return text, value | ({"next_sync": outlook} if outlook else {})
