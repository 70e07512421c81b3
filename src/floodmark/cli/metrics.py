"""Metrics of `floodmark sync`: on a loopback port, and in a file for node_exporter."""

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from floodmark.api.results import TableResult
from floodmark.cli.app import App
from floodmark.errors import ExitCode, FloodmarkError, UsageError
from floodmark.model.notice import Notice
from floodmark.model.table import TableName
from floodmark.state import layout
from floodmark.state.lease import read_lease
from floodmark.sync.metrics import Metrics

if TYPE_CHECKING:
    from floodmark.cli.metrics_server import MetricsServer

_READABLE = 0o644


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
            self._look()
        except FloodmarkError as error:  # the values of before stay
            self._app.report(Notice("debug", f"metrics are not up to date: {error.message}"))
        if self._path is not None:
            self._save(self._path)

    def _look(self) -> None:
        """Take in what watermarks and leases say."""
        store, metrics = self._app.store, self._metrics
        recovered = [info.key for info in store.objects.list_objects(layout.RECOVERIES)]
        for table in self._tables:
            name, watermark = str(table), store.known(table)
            recoveries = sum(key.startswith(layout.recoveries(table)) for key in recovered)
            metrics.set("floodmark_recoveries_total", recoveries, table=name)
            lease = read_lease(store.objects, table)
            since = lease.held_since if lease else None
            held = (self._app.run.clock() - since).total_seconds() if since else 0.0
            metrics.set("floodmark_held_back_seconds", max(0.0, held), table=name)
            if watermark is None:
                continue
            extracted, loaded = watermark.mysql_state, watermark.redshift_state
            rows = (("extract", extracted.total_rows), ("load", loaded.total_rows))
            for stage, count in rows:
                metrics.set("floodmark_rows_total", count, table=name, stage=stage)
            metrics.set("floodmark_files_total", extracted.s3_file_count, table=name)
            metrics.set("floodmark_file_bytes_total", extracted.s3_bytes, table=name)
            metrics.set("floodmark_quarantined_rows_total", loaded.quarantined_rows, table=name)
            in_step = lease.in_step_at if lease else None
            behind = watermark.loaded_head < watermark.head
            fresh = (("extract", in_step), ("load", loaded.last_load_time if behind else in_step))
            for stage, moment in fresh:
                if moment is not None:
                    family, seconds = "floodmark_fresh_timestamp_seconds", moment.timestamp()
                    metrics.set(family, seconds, table=name, stage=stage)

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
        beside = f"{path}.{os.getpid()}.tmp"
        try:
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _READABLE)
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(self._text())
            os.replace(beside, path)
        except OSError as error:
            self._app.warn(f"metrics were not written to {path}: {error.strerror}")
            with suppress(OSError):
                os.unlink(beside)

    def _text(self) -> str:
        return self._metrics.write(self._app.run.clock().timestamp())

    def _serve(self, port: int) -> "MetricsServer":
        from floodmark.cli.metrics_server import MetricsServer

        server = MetricsServer(port, self._text)
        self._app.report(Notice("info", f"metrics are at {server.address}", "metrics"))
        return server
