"""What the program says on stderr: lines for people, or one JSON object a line for programs."""

import sys
from collections.abc import Callable
from datetime import datetime

import click
import msgspec

from floodmark.api.callbacks import traceback_notice
from floodmark.cli.terminal import labelled
from floodmark.model.notice import Notice, Report
from floodmark.model.timestamps import stamped

_COLOURS = {"error": "red", "warning": "yellow", "info": "green", "debug": "white"}


class Log:
    """Writes remarks; those for debugging only if they are wanted."""

    def __init__(self, clock: Callable[[], datetime], *, as_json: bool) -> None:
        self.as_json = as_json
        self.debug = False
        self.session: Callable[[], str | None] = lambda: None
        self.listeners: list[Report] = []
        self._clock = clock

    def write(self, notice: Notice) -> None:
        """Write a remark, and let those hear it who listen."""
        for listener in self.listeners:
            listener(notice)
        if notice.level == "debug" and not self.debug:
            return
        if self.as_json:
            click.echo(msgspec.json.encode(self._object(notice)), err=True)
            return
        if notice.event == "traceback":
            sys.stderr.write(notice.facts["traceback"])
            return
        bold = notice.level == "error"
        line = labelled(f"{notice.level}:", _COLOURS[notice.level], notice.message, bold=bold)
        click.echo(line, err=True)
        if notice.hint:
            self.hint(notice.hint)

    def hint(self, text: str) -> None:
        """Write what may be tried, for people."""
        click.echo(labelled("hint:", "cyan", text), err=True)

    def traceback(self, error: Exception) -> None:
        """Write where an error came from, if debugging is wanted."""
        if self.debug:
            self.write(traceback_notice(error))

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
