"""Answer the requests of `floodmark serve`: pages and values, read-only, from the lake alone.

    /                 the page
    /status.json      all tables and runs; 204 if the reader has this reading (`?seen=AS_OF`)
    /table.json       one table, with its stages and its history (`?name=SCOPE:schema.table`)
    /run.json         one run, with its tables (`?id=RUN`)
    /metrics          the metrics of all tables, for Prometheus
    /healthz          200, or 503 if the lake cannot be read

A name or an id is looked up in the last reading. No part of a request becomes a key in the lake.
"""

import gzip
import os
from collections.abc import Callable
from http import HTTPStatus
from threading import Lock
from typing import Any

import msgspec

from floodmark.api.project import Project
from floodmark.api.status_metrics import measure_status
from floodmark.cli.http_access import Access
from floodmark.cli.http_server import HTML, JSON, Request, Response, failure
from floodmark.cli.metrics_server import CONTENT_TYPE
from floodmark.cli.page.document import Overview, Reader, run_values
from floodmark.cli.page.render import render
from floodmark.cli.page.snapshots import Snapshot, Snapshots, pause_after
from floodmark.errors import StorageError
from floodmark.model.timestamps import stamped, utc_now

_PAGE_HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}
_WORTH_PACKING = 1400


class Site:
    """Answers requests."""

    def __init__(
        self,
        project: Project,
        access: Access,
        *,
        pause: Callable[[float], float] = pause_after,
    ) -> None:
        self._project = project
        self._access = access
        self._reader = Reader(project)
        self._reading = Lock()
        self._snapshots = Snapshots(self._read, pause=pause)
        self._pages: dict[str, Callable[[Request, Overview, Snapshot], Response]] = {
            "/": self._page,
            "/status.json": self._status,
            "/table.json": self._table,
            "/run.json": self._run,
            "/metrics": self._metrics,
        }

    def answer(self, request: Request) -> Response:
        """Answer a request."""
        if request.path == "/healthz":
            return self._health(request)
        refused = self._access.refuse(request)
        if refused is not None:
            return refused
        page = self._pages.get(request.path)
        if page is None:
            return failure(HTTPStatus.NOT_FOUND, "there is no such page")
        known = self._snapshots.get()
        if known.overview is None:
            return failure(
                HTTPStatus.SERVICE_UNAVAILABLE, f"the lake cannot be read: {known.problem}"
            )
        return _packed(page(request, known.overview, known), request)

    def _read(self) -> Overview:
        lake = self._project.config.lake
        if not lake.is_s3 and not os.path.isdir(lake.url):  # every table would be never synced
            raise StorageError(f"the folder {lake.url} does not exist")
        found = self._project.status()
        with self._reading:
            return self._reader.overview(found)

    def _health(self, request: Request) -> Response:
        """Answer probes, which may have no token; only others see the reason."""
        problem = self._snapshots.problem()
        if problem is None:
            return Response(body=b"ok\n")
        shown = f": {problem}" if self._access.refuse(request) is None else ""
        return failure(HTTPStatus.SERVICE_UNAVAILABLE, f"the lake cannot be read{shown}")

    def _page(self, _request: Request, overview: Overview, known: Snapshot) -> Response:
        body = render(_values(overview, known), live=True)
        return Response(body=body, type=HTML, headers=_PAGE_HEADERS)

    def _status(self, request: Request, overview: Overview, known: Snapshot) -> Response:
        seen = request.query.get("seen")
        if known.problem is None and seen == stamped(overview.values["as_of"]):
            return Response(body=b"", type=JSON, status=HTTPStatus.NO_CONTENT)
        return _json(_values(overview, known))

    def _table(self, request: Request, overview: Overview, _known: Snapshot) -> Response:
        status = overview.statuses.get(request.query.get("name", ""))
        if status is None:
            return failure(HTTPStatus.NOT_FOUND, "there is no such table")
        with self._reading:
            return _json(self._reader.table(status, overview))

    def _run(self, request: Request, overview: Overview, _known: Snapshot) -> Response:
        record = overview.records.get(request.query.get("id", ""))
        if record is None:
            return failure(HTTPStatus.NOT_FOUND, "there is no such run among the last ones")
        return _json(run_values(record))

    def _metrics(self, _request: Request, overview: Overview, known: Snapshot) -> Response:
        if known.problem is not None:  # old values would look like new ones
            reason = f"the lake cannot be read: {known.problem}"
            return failure(HTTPStatus.SERVICE_UNAVAILABLE, reason)
        now = utc_now()
        found = measure_status(
            overview.statuses.values(), now, mirror=overview.mirror, drill=overview.drill
        )
        return Response(body=found.write(now.timestamp()).encode(), type=CONTENT_TYPE)


def _values(overview: Overview, known: Snapshot) -> dict[str, Any]:
    if known.problem is None:
        return overview.values
    return overview.values | {"problem": f"The lake cannot be read: {known.problem}"}


def _json(values: dict[str, Any]) -> Response:
    return Response(body=msgspec.json.encode(values), type=JSON, headers=_PAGE_HEADERS)


def _packed(response: Response, request: Request) -> Response:
    """Compress a long response if the client can unpack it."""
    if len(response.body) < _WORTH_PACKING or "gzip" not in request.headers.get(
        "accept-encoding", ""
    ):
        return response
    body = gzip.compress(response.body, 3)
    headers = {**response.headers, "Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    return msgspec.structs.replace(response, body=body, headers=headers)
