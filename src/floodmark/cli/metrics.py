"""Metrics of `floodmark sync`: on a loopback port, and in a file for node_exporter."""

import os
from collections.abc import Sequence
from contextlib import suppress
from tempfile import mkstemp
from typing import TYPE_CHECKING, Self

from floodmark.api.metrics import Metrics, measure_tables
from floodmark.api.results import TableResult
from floodmark.cli.app import App
from floodmark.errors import ExitCode, FloodmarkError, UsageError
from floodmark.model.notice import Notice
from floodmark.model.table import TableName

if TYPE_CHECKING:
    from floodmark.cli.metrics_server import MetricsServer

_READABLE = 0o644  # by node_exporter, which runs as somebody else


class Meter:
    """Keeps the metrics of some tables, and gives them out. Does nothing if nobody wants them."""

    def __init__(
        self, app: App, tables: Sequence[TableName], *, path: str | None, port: int | None
    ) -> None:
        self._app = app
        self._tables = tables
        self._path = path
        self._wanted = path is not None or port is not None
        self._metrics = Metrics()
        if self._wanted:
            for table in tables:
                self._metrics.add("floodmark_conflicts_total", 0, table=str(table))
                self._metrics.add("floodmark_failures_total", 0, table=str(table))
            app.log.listeners.append(self._hear)
        if path is not None:
            self._recall(path)
        self._server = self._serve(port) if port is not None else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.stop()

    def measure(self, results: Sequence[TableResult]) -> None:
        """Take in what a round did, and write the file; whatever fails here stops nothing."""
        if not self._wanted:
            return
        metrics, now = self._metrics, self._app.run.clock().timestamp()
        metrics.add("floodmark_rounds_total", 1)
        metrics.set("floodmark_last_round_timestamp_seconds", now)
        for result in results:
            table = result.table_name
            metrics.add(
                "floodmark_work_seconds_total", result.seconds, table=table, stage="extract"
            )
            metrics.add(
                "floodmark_work_seconds_total", result.load_seconds, table=table, stage="load"
            )
            if result.held_back:
                pass  # neither a success nor a failure: the table grows stale
            elif not result.failed:
                metrics.set("floodmark_last_success_timestamp_seconds", now, table=table)
            elif result.exit_code == ExitCode.BUSY:
                metrics.add("floodmark_conflicts_total", 1, table=table)
            else:
                metrics.add("floodmark_failures_total", 1, table=table)
        try:
            measure_tables(self._app.context, self._tables, metrics)
        except FloodmarkError as error:  # the values of before stay
            self._app.report(Notice("debug", f"metrics are not up to date: {error.message}"))
        if self._path is not None:
            self._save(self._path)

    def _hear(self, notice: Notice) -> None:
        if notice.event == "conflict" and notice.table:
            self._metrics.add("floodmark_conflicts_total", 1, table=notice.table)

    def _recall(self, path: str) -> None:
        if not os.access(os.path.dirname(os.path.abspath(path)), os.W_OK):
            raise UsageError(f"metrics file {path!r}: its folder cannot be written to")
        with suppress(FileNotFoundError), open(path, encoding="utf-8", errors="replace") as file:
            self._metrics.recall(file.read(), map(str, self._tables))

    def _save(self, path: str) -> None:
        """Write the file beside its place, and then move it there: nobody reads half of it."""
        beside = None
        try:
            # A name that nobody can foresee, and so put a link there; `.prom` is what is collected.
            descriptor, beside = mkstemp(".tmp", ".floodmark-", os.path.dirname(path) or ".")
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(self._text())
                os.fchmod(descriptor, _READABLE)
            os.replace(beside, path)
        except OSError as error:
            self._app.warn(f"metrics were not written to {path}: {error.strerror}")
            if beside is not None:
                with suppress(OSError):
                    os.unlink(beside)

    def _text(self) -> str:
        return self._metrics.write(self._app.run.clock().timestamp())

    def _serve(self, port: int) -> "MetricsServer":
        from floodmark.cli.metrics_server import MetricsServer

        server = MetricsServer(port, self._text)
        self._app.report(Notice("info", f"metrics are at {server.address}", "metrics"))
        return server
