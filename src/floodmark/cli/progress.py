"""Progress of long work: a live bar on a terminal, a plain line now and then elsewhere."""

import shutil
import sys
import time
from threading import Lock

import click

from floodmark.cli.app import App
from floodmark.model.table import TableName
from floodmark.sync.extraction import Progress

PLAIN_SECONDS = 5.0
LIVE_SECONDS = 0.2
BAR = 20


class ProgressLine:
    """Shows how far each table has come, on stderr."""

    def __init__(self, app: App) -> None:
        self._live = sys.stderr.isatty() and not app.as_json
        self._shown = time.monotonic()
        self._lock = Lock()

    def show(self, table: TableName, progress: Progress) -> None:
        """Show a table's progress, if it is time to."""
        with self._lock:
            now = time.monotonic()
            if now - self._shown < (LIVE_SECONDS if self._live else PLAIN_SECONDS):
                return
            self._shown = now
            if self._live:
                text = f"{table.unscoped} {bar(progress.share)} {describe(progress)}"
                width = shutil.get_terminal_size().columns - 1
                click.echo(f"\r\x1b[K{text[:width]}", err=True, nl=False)
            else:
                click.echo(f"{table}: {describe(progress)}", err=True)

    def end(self) -> None:
        """Leave a clean line behind."""
        if self._live:
            click.echo("\r\x1b[K", err=True, nl=False)


def bar(share: float) -> str:
    """A share of the work as a bar."""
    done = round(share * BAR)
    return f"{'█' * done}{'░' * (BAR - done)} {share:4.0%}"


def describe(progress: Progress) -> str:
    """Rows, speed, bytes and time left, in one line."""
    parts = [f"{progress.rows:,} rows"]
    if progress.rows and progress.seconds:
        speed = progress.rows / progress.seconds
        parts.append(f"{speed:,.0f} rows/s")
        parts.append(f"{progress.bytes / 1_000_000:,.1f} MB")
        if 0 < progress.share < 1:
            left = progress.seconds * (1 - progress.share) / progress.share
            parts.append(f"about {left:,.0f} s left")
    return ", ".join(parts)
