"""Show progress: a live bar on a terminal, a plain line every few seconds elsewhere."""

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING

import click

from floodmark.cli.log import Log
from floodmark.cli.terminal import cells, shorten
from floodmark.model.formatting import counted, size, span
from floodmark.model.notice import Notice
from floodmark.model.table import TableName

if TYPE_CHECKING:
    from floodmark.api.results import Progress

PLAIN_SECONDS = 5.0
LIVE_SECONDS = 0.2
BAR = 20
LEAST_NAME = 16


class ProgressLine:
    """Shows the progress of tables on stderr."""

    def __init__(self, log: Log, *, as_json: bool) -> None:
        self._live = sys.stderr.isatty() and not as_json and not log.as_json
        self._log = log
        self._report = log.write
        self._shown = time.monotonic()
        self._lock = Lock()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Show progress within this, and clear the line afterwards."""
        self._shown = time.monotonic()
        try:
            yield
        finally:
            self.clear()

    def clear(self) -> None:
        """Clear the line, so that other text can be printed."""
        if self._live:
            click.echo("\r\x1b[K", err=True, nl=False)

    def show(self, table: TableName, progress: "Progress") -> None:
        """Show a table's progress, at most every so many seconds."""
        with self._lock:
            now = time.monotonic()
            if self._log.quiet:
                return
            if now - self._shown < (LIVE_SECONDS if self._live else PLAIN_SECONDS):
                return
            self._shown = now
            if self._live:
                text = progress_line(table, progress, shutil.get_terminal_size().columns - 1)
                click.echo(f"\r\x1b[K{text}", err=True, nl=False)
            else:
                message = f"{table}: {describe(progress)}"
                facts = {key: getattr(progress, key) for key in ("rows", "bytes", "seconds")}
                self._report(Notice("info", message, "progress", str(table), facts=facts))


def progress_line(table: TableName, progress: "Progress", most: int) -> str:
    """Return name, bar, rows, speed, bytes and time left, as far as they fit."""
    name, facts = table.unscoped, facts_of(progress)
    while True:
        line = f" {bar(progress.share)} {', '.join(facts)}"
        room = most - cells(line)
        if room >= min(cells(name), LEAST_NAME) or len(facts) == 1:
            return shorten(name, max(1, room)) + line
        facts.pop(-2 if len(facts) > 2 else 1)  # keep the time left


def bar(share: float) -> str:
    """Draw a share of the work as a bar."""
    done = round(share * BAR)
    return f"{'█' * done}{'░' * (BAR - done)} {share:4.0%}"


def describe(progress: "Progress") -> str:
    """Describe rows, speed, bytes and time left in one line."""
    return ", ".join(facts_of(progress))


def facts_of(progress: "Progress") -> list[str]:
    """Return rows read and, once known, speed, bytes in the lake, rows loaded and time left."""
    rows = counted(progress.read_rows, "row")
    facts = [f"about {rows}" if progress.slices_done else rows]
    if progress.read_rows and progress.seconds:
        facts.append(f"{progress.read_rows / progress.seconds:,.0f} rows/s")
        if progress.bytes:
            facts.append(size(progress.bytes))
        if progress.loaded_rows:
            facts.append(f"{progress.loaded_rows:,} loaded")
        if 0 < progress.share < 1:
            left = progress.seconds * (1 - progress.share) / progress.share
            facts.append(f"about {span(timedelta(seconds=left))} left")
    return facts
