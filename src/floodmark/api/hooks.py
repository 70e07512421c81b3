"""Call the configured commands and webhooks after a run.

One message per run and event, whatever the number of tables. Which failures were reported is kept
in the lake (`watermarks/alerts.json`), so that each is reported once, also by runs of cron. It is
saved after a message was delivered: a crash in between leads to a second message, never to none.
If the lake cannot be read, what this process has reported counts.
"""

import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec

from floodmark.api.context import RunContext
from floodmark.api.hook_calls import call
from floodmark.config.hook_settings import Event, Hook, Hooks
from floodmark.errors import FloodmarkError, ObjectNotFound, WriteConflict
from floodmark.model import lake_layout
from floodmark.model.alerts import RUN, Alerts, news_of, reported, table_of
from floodmark.model.formatting import counted
from floodmark.model.notice import Notice
from floodmark.model.run_record import RunRecord
from floodmark.model.table import TableName
from floodmark.state.lease import read_lease

_SHOWN = 5
_SYMBOLS: dict[Event, str] = {"failure": "❌", "recovery": "✅", "success": "✅"}
_CONFLICTS = 5


class RunHooks:
    """Calls the hooks of runs; kept between the rounds of a process."""

    pause = staticmethod(time.sleep)
    """How to wait between tries; tests replace it."""

    def __init__(self) -> None:
        self._alerts = Alerts()

    def after(self, run: RunContext, record: RunRecord, save: Callable[[], None]) -> None:
        """Call the hooks that a finished run calls for; never raise.

        `save` saves the record, if it is not yet: a message of failures names it.
        """
        hooks = run.config.settings.hooks
        try:
            if hooks.need_state:
                self._report_failures(run, hooks, record, save)
            names = [table.table_name for table in record.tables if table.has_changed]
            if names:
                self._send(run, hooks, "success", names, record)
        except Exception as error:  # noqa: BLE001 - a hook never fails a run
            _warn(run, f"hooks were not called: unexpected {type(error).__name__}")

    def _report_failures(
        self, run: RunContext, hooks: Hooks, record: RunRecord, save: Callable[[], None]
    ) -> None:
        now, repeat = run.run.clock(), timedelta(hours=hooks.repeat_hours)
        known, etag = self._read(run)
        news = news_of(known, record, now, repeat, partial(_failing_stages, run))
        if news.failing:
            save()
        # What is not delivered is tried again by the next run.
        failed = self._send(run, hooks, "failure", _tables(news.failing), record)
        recovered = self._send(run, hooks, "recovery", _tables(news.recovered), record)
        for _ in range(_CONFLICTS):
            self._alerts = reported(known, record, now, news, failed=failed, recovered=recovered)
            if self._alerts == known or self._saved(run, self._alerts, etag):
                return
            known, etag = self._read(run)  # another run has reported, too

    def _read(self, run: RunContext) -> tuple[Alerts, str | None]:
        try:
            stored = run.store.objects.get(lake_layout.ALERTS)
            return msgspec.json.decode(stored.data, type=Alerts), stored.etag
        except ObjectNotFound:
            return Alerts(), None
        except msgspec.MsgspecError:
            return Alerts(), stored.etag
        except FloodmarkError:
            return self._alerts, None

    def _saved(self, run: RunContext, alerts: Alerts, etag: str | None) -> bool:
        objects, data = run.store.objects, msgspec.json.encode(alerts)
        try:
            if etag is None:
                objects.put_if_absent(lake_layout.ALERTS, data)
            else:
                objects.put_if_match(lake_layout.ALERTS, data, etag)
        except WriteConflict:
            return False
        except FloodmarkError as error:
            _warn(run, f"what was reported is not recorded: {error.message}")
        return True

    def _send(
        self, run: RunContext, hooks: Hooks, event: Event, names: list[str], record: RunRecord
    ) -> bool:
        """Call all hooks of an event, if it names anything; return whether each was delivered."""
        if not names:
            return True
        message = {
            "event": event,
            "text": text_of(event, names, record),
            "tables": [name for name in names if name != RUN],
            "run": msgspec.to_builtins(record),
        }
        delivered = [self._deliver(run, hook, message) for hook in hooks.of(event)]
        return all(delivered)

    def _deliver(self, run: RunContext, hook: Hook, message: dict[str, Any]) -> bool:
        for attempt in range(hook.tries):
            if attempt:
                self.pause(2.0 ** (attempt - 1))
            problem = call(hook, message)
            if problem is None:
                return True
        what = f"command {hook.command[0]}" if hook.command else "webhook"
        _warn(run, f"the {what} for {message['event']} failed: {problem}")
        return False


def _tables(keys: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(map(table_of, keys)))


def _failing_stages(run: RunContext, name: str) -> set[str]:
    """Return the stages of a table that fail, or found a difference, by its state in the lake."""
    try:
        table = TableName.parse(name)
        lease = read_lease(run.store.objects, table)
        watermark = run.store.get(table, write_back=False)
    except FloodmarkError:
        return {"extract", "load", "reconcile", "verify"}  # what cannot be read is not over
    stages: set[str] = {failure.stage for failure in lease.failures} if lease else set()
    if watermark is not None and watermark.verified_state.status == "failed":
        stages.add("verify")
    if watermark is not None and watermark.reconciled_state.left:
        stages.add("reconcile")
    return stages


def text_of(event: Event, names: list[str], record: RunRecord) -> str:
    """Format a message for people: what happened, where, and the first tables."""
    where = f"{', '.join(record.pipelines) or record.command} on {record.host}"
    tables = [name for name in names if name != RUN]
    what = {
        "failure": _failed(tables, record),
        "recovery": f"{counted(len(tables), 'table')} recovered",
        "success": _loaded(record),
    }[event]
    if not tables:
        what = "the run failed" if event == "failure" else "runs succeed again"
    lines = [f"{_SYMBOLS[event]} floodmark {where}: {what}"]
    if event == "failure" and record.error and RUN in names:
        lines.append(record.error)
    for name in tables[:_SHOWN] if event != "success" else ():
        table = record.of(name)
        lines.append(f"{name}: {table.error}" if table and table.error else name)
    if event != "success" and len(tables) > _SHOWN:
        lines.append(f"and {len(tables) - _SHOWN:,} more")
    if event == "failure":
        known = [record.of(name) for name in tables[:_SHOWN]]
        hints = [record.hint if RUN in names else None, *(t.hint for t in known if t)]
        lines += [f"hint: {hint}" for hint in dict.fromkeys(filter(None, hints))]
        lines.append(f"floodmark runs show {record.run_id}")
    return "\n".join(lines)


def _loaded(record: RunRecord) -> str:
    text = f"{counted(record.loaded_rows, 'row')} loaded"
    if record.deleted_rows:
        text += f", {record.deleted_rows:,} deleted"
    failed = [table.table_name for table in record.failures]
    return f"{text}; {_failed(failed, record)}" if failed else text


def _failed(names: list[str], record: RunRecord) -> str:
    found = [record.of(name) for name in names]
    differ = sum(table is not None and table.status == "differs" for table in found)
    parts = []
    if failed := len(names) - differ:
        parts.append(f"{counted(failed, 'table')} failed")
    if differ:
        parts.append(f"{counted(differ, 'table')} {'differs' if differ == 1 else 'differ'}")
    return ", ".join(parts)


def _warn(run: RunContext, message: str) -> None:
    run.report(Notice("warning", message, "hook"))
