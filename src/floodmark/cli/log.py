"""Write notices to stderr, as text or as one JSON object per line."""

import sys
from collections.abc import Callable
from datetime import datetime

import click
import msgspec

from floodmark.api.callbacks import traceback_notice
from floodmark.cli.terminal import labelled
from floodmark.model.notice import Notice, Report
from floodmark.model.timestamps import stamped

_COLORS = {"error": "red", "warning": "yellow", "info": "green", "debug": "white"}


class Log:
    """Writes notices: debug notices only with --debug, and with `quiet` only problems.

    With `timed`, each line of text begins with the time.
    """

    def __init__(self, clock: Callable[[], datetime], *, as_json: bool) -> None:
        self.as_json = as_json
        self.debug = self.quiet = self.timed = False
        self.not_forked: str | None = None
        self.session: Callable[[], str | None] = lambda: None
        self.listeners: list[Report] = []
        self._clock = clock

    def show_details(self) -> None:
        """Write debug notices from now on; first, why no fork server runs this command."""
        self.debug = True
        if self.not_forked is not None:
            self.write(Notice("debug", f"the fork server does not run this: {self.not_forked}"))

    def write(self, notice: Notice) -> None:
        """Write a notice, and pass it to the listeners."""
        for listener in self.listeners:
            listener(notice)
        if notice.level == "debug" and not self.debug:
            return
        if notice.level == "info" and self.quiet:
            return
        if self.as_json:
            click.echo(msgspec.json.encode(self._object(notice)).decode(), err=True)
            return
        if notice.event == "traceback":
            sys.stderr.write(notice.facts["traceback"])
            return
        bold = notice.level == "error"
        label = f"{self._time()}{notice.level}:"
        click.echo(labelled(label, _COLORS[notice.level], notice.message, bold=bold), err=True)
        if notice.hint:
            self.hint(notice.hint)

    def hint(self, text: str) -> None:
        """Write a hint as text."""
        click.echo(labelled(f"{self._time()}hint:", "cyan", text), err=True)

    def traceback(self, error: Exception) -> None:
        """Write the traceback of an error, with --debug."""
        if self.debug:
            self.write(traceback_notice(error))

    def _time(self) -> str:
        return f"{stamped(self._clock().replace(microsecond=0))} " if self.timed else ""

    def _object(self, notice: Notice) -> dict[str, object]:
        known = {
            "time": stamped(self._clock()),
            "level": notice.level,
            "event": notice.event,
            "message": notice.message,
            "hint": notice.hint,
            "table": notice.table,
            "session": self.session(),
        }
        return notice.facts | {key: value for key, value in known.items() if value is not None}
