"""Serve metrics to Prometheus over HTTP, on the loopback interface only."""

from collections.abc import Callable
from http import HTTPStatus

from floodmark.cli.http_server import LOOPBACK, HttpServer, Request, Response, failure

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricsServer:
    """Serves a text at `/metrics`; port 0 takes any free port."""

    def __init__(self, port: int, text: Callable[[], str]) -> None:
        def answer(request: Request) -> Response:
            if request.path != "/metrics":
                return failure(HTTPStatus.NOT_FOUND, "see /metrics")
            return Response(body=text().encode(), type=CONTENT_TYPE)

        self._server = HttpServer(LOOPBACK, port, answer, "metrics")
        self.address = f"{self._server.address}metrics"

    def stop(self) -> None:
        """Stop serving."""
        self._server.stop()
