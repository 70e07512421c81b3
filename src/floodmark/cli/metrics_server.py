"""Serve metrics to Prometheus over HTTP; beyond the loopback interface with a token only."""

import os
from collections.abc import Callable
from http import HTTPStatus

from floodmark.cli.http_access import Access, find_address, find_token
from floodmark.cli.http_server import LOOPBACK, HttpServer, Request, Response, failure

VARIABLE = "FLOODMARK_METRICS_TOKEN"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricsServer:
    """Serves a text at `/metrics`; port 0 takes any free port."""

    def __init__(
        self, host: str | None, port: int, token_path: str | None, text: Callable[[], str]
    ) -> None:
        address = find_address(LOOPBACK if host is None else host, "--metrics-host")
        access = Access(
            find_token(
                address, token_path, os.environ, variable=VARIABLE, option="--metrics-token-file"
            )
        )

        def answer(request: Request) -> Response:
            if refused := access.refuse(request):
                return refused
            if request.path != "/metrics":
                return failure(HTTPStatus.NOT_FOUND, "see /metrics")
            return Response(body=text().encode(), type=CONTENT_TYPE)

        self._server = HttpServer(address, port, answer, "metrics")
        self.address = f"{self._server.address}metrics"

    def stop(self) -> None:
        """Stop serving."""
        self._server.stop()
