"""Expose the metrics of `floodmark sync` on a port, and in a file for node_exporter."""

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

_READABLE = 0o644  # by node_exporter, which runs as another user


class Meter:
    """Collects and exposes the metrics of tables; does nothing without a path or a port."""

    def __init__(
        self,
        app: App,
        tables: Sequence[TableName],
        *,
        path: str | None,
        port: int | None,
        host: str | None = None,
        token_path: str | None = None,
    ) -> None:
        self._app = app
        self._tables = tables
        self._path = path
        self._enabled = path is not None or port is not None
        self._metrics = Metrics()
        if self._enabled:
            for table in tables:
                self._metrics.add("floodmark_conflicts_total", 0, table=str(table))
                self._metrics.add("floodmark_failures_total", 0, table=str(table))
            app.log.listeners.append(self._count_conflict)
        if path is not None:
            self._restore_counters(path)
        self._server = self._serve(host, port, token_path) if port is not None else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.stop()

    def measure(self, results: Sequence[TableResult]) -> None:
        """Record a round and write the file; errors here never stop a sync."""
        if not self._enabled:
            return
        metrics, now = self._metrics, self._app.now().timestamp()
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
                pass  # neither a success nor a failure: the last success stays
            elif not result.failed:
                metrics.set("floodmark_last_success_timestamp_seconds", now, table=table)
            elif result.exit_code == ExitCode.BUSY:
                metrics.add("floodmark_conflicts_total", 1, table=table)
            else:
                metrics.add("floodmark_failures_total", 1, table=table)
        try:
            measure_tables(self._app.project, self._tables, metrics)
        except FloodmarkError as error:  # keep the previous values
            self._app.report(Notice("debug", f"metrics are out of date: {error.message}"))
        if self._path is not None:
            self._save(self._path)

    def _count_conflict(self, notice: Notice) -> None:
        if notice.event == "conflict" and notice.table:
            self._metrics.add("floodmark_conflicts_total", 1, table=notice.table)

    def _restore_counters(self, path: str) -> None:
        if not os.access(os.path.dirname(os.path.abspath(path)), os.W_OK):
            raise UsageError(f"metrics file {path!r}: its folder is not writable")
        with suppress(FileNotFoundError), open(path, encoding="utf-8", errors="replace") as file:
            self._metrics.recall(file.read(), map(str, self._tables))

    def _save(self, path: str) -> None:
        """Write a temporary file and rename it, so that readers never see half of it."""
        temporary = None
        try:
            # An unpredictable name, so that nobody can plant a link; only `.prom` is collected.
            descriptor, temporary = mkstemp(".tmp", ".floodmark-", os.path.dirname(path) or ".")
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(self._text())
                os.fchmod(descriptor, _READABLE)
            os.replace(temporary, path)
        except OSError as error:
            self._app.warn(f"cannot write metrics to {path}: {error.strerror}")
            if temporary is not None:
                with suppress(OSError):
                    os.unlink(temporary)

    def _text(self) -> str:
        return self._metrics.write(self._app.now().timestamp())

    def _serve(self, host: str | None, port: int, token_path: str | None) -> "MetricsServer":
        from floodmark.cli.metrics_server import MetricsServer

        server = MetricsServer(host, port, token_path, self._text)
        self._app.report(Notice("info", f"serving metrics at {server.address}", "metrics"))
        return server
