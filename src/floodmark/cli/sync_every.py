"""`floodmark sync --every`: sync at a fixed interval."""

import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import count

import click
import msgspec

from floodmark.api.results import HELD_BACK, SyncResult, TableResult, failure_of, notices_of
from floodmark.api.schedule import Round, next_tick
from floodmark.cli.app import App
from floodmark.cli.metrics import Meter
from floodmark.cli.signals import Terminated
from floodmark.cli.sync_result import Errors, HeldBack
from floodmark.errors import ExitCode, FloodmarkError, UsageError
from floodmark.model.notice import Level, Notice
from floodmark.model.timestamps import stamped


def sync_every(app: App, run: Callable[[], SyncResult], meter: Meter, every: timedelta) -> int:
    """Sync at each tick until SIGTERM or Ctrl-C; retry failures in the next round.

    SIGTERM is the normal end, so the exit code is then 0.
    """
    began = time.monotonic()
    app.log.timed = True
    known: set[str] = set()
    try:
        for number in count():
            done = _round(app, run, first=number == 0)
            meter.measure(done.tables)
            app.project.rest()
            now = time.monotonic()
            pause = next_tick(began, every.total_seconds(), now) - now
            known = _report_round(app, done, app.now() + timedelta(seconds=pause), known)
            time.sleep(pause)
    except Terminated:
        app.report(Notice("info", "stopped", "stopped"))
    return ExitCode.DONE


def _round(app: App, run: Callable[[], SyncResult], *, first: bool) -> Round:
    """Run a round; turn any error into its result."""
    began = time.monotonic()
    results: Sequence[TableResult] = ()
    error: FloodmarkError | None = None
    try:
        results = run().tables
    except UsageError as usage:
        if first:
            raise  # another round will not fix it
        error = usage
    except FloodmarkError as failure:
        app.log.traceback(failure)
        error = failure
    except Exception as unexpected:  # noqa: BLE001 - even a bug may not recur
        app.log.traceback(unexpected)
        error = FloodmarkError(f"unexpected {type(unexpected).__name__}: {unexpected}")
    return Round(
        session_id=app.project.session_id,
        seconds=round(time.monotonic() - began, 3),
        tables=results,
        error=error.message if error else None,
        hint=error.hint if error else None,
    )


def _report_round(app: App, done: Round, next_at: datetime, known: set[str]) -> set[str]:
    """Report what a round did, and return the messages of its notices.

    Notices of the previous round (`known`) are not repeated, except for held-back tables, of which
    those with the same cause share a line.
    """
    found = [(result, notice) for result in done.tables for notice in notices_of(result)]
    held = HeldBack()
    for result, notice in found:
        if notice.event == HELD_BACK:
            if held.add(result) or app.log.as_json:
                app.report(notice)
        elif notice.message not in known:
            app.report(notice)
    if not app.log.as_json:
        held.report(app)
    errors = Errors()
    for result in done.tables:
        if (reconciled := result.reconciliation) and not result.failed:
            message = f"{result.table_name}: {reconciled}"
            app.report(Notice("info", message, "reconciled", result.table_name))
        if result.failed and (errors.add(result) or app.log.as_json):
            app.report(failure_of(result))
    for reason, names in errors.repeated() if not app.log.as_json else ():
        app.report(Notice("error", f"{names}: {reason}", "failed"))
    if app.as_json:
        click.echo(msgspec.json.encode(done))
    when = stamped(next_at.replace(microsecond=0))
    message = f"{done}; next round at {when}"
    level: Level = "error" if done.error else "info"
    facts = done.counts | {"seconds": done.seconds, "next_round": when}
    app.report(Notice(level, message, "round", hint=done.hint, facts=facts))
    return {notice.message for _, notice in found}
