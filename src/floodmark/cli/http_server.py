"""Answer GET and HEAD requests over HTTP, in threads; shared by metrics and the status page."""

import socketserver
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6, SHUT_RD, socket
from threading import BoundedSemaphore, Thread, Timer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from msgspec import Struct

from floodmark.errors import UsageError

LOOPBACK = "127.0.0.1"
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
HTML = "text/html; charset=utf-8"
_AT_ONCE = 64
_SILENCE_SECONDS = 20
_REQUEST_SECONDS = 30
"""How long a request may take to arrive; one byte now and then must not keep a connection."""


class Request(Struct, frozen=True, kw_only=True):
    """A request. Of a parameter that is given twice, the last counts."""

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]


class Response(Struct, frozen=True, kw_only=True):
    """A response; no proxy or browser keeps it."""

    body: bytes
    type: str = TEXT
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = {}


Answer = Callable[[Request], Response]


def failure(status: HTTPStatus, text: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response that says in one line what is wrong."""
    return Response(body=f"{text}\n".encode(), status=status, headers=headers or {})


class HttpServer:
    """Serves until it is stopped; port 0 takes any free port."""

    def __init__(self, host: str, port: int, answer: Answer, name: str) -> None:
        try:
            self._server = _Server(host, port, answer)
        except OSError as error:
            raise UsageError(f"{name} port {port} of {host}: {error.strerror}") from error
        shown = f"[{host}]" if ":" in host else host
        self.address = f"http://{shown}:{self._server.server_port}/"
        Thread(target=self._server.serve_forever, args=(0.1,), name=name, daemon=True).start()

    def stop(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    request_queue_size = _AT_ONCE

    def __init__(self, host: str, port: int, answer: Answer) -> None:
        self.address_family = AF_INET6 if ":" in host else AF_INET
        self.answer = answer
        self._free = BoundedSemaphore(_AT_ONCE)
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Bind, without asking DNS for the name of the host as HTTPServer does."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread; close the connection if too many are open."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: socket | tuple[bytes, socket], client_address: Any) -> None:
        """Say nothing: the client is gone, and requests are not logged."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _SILENCE_SECONDS

    def setup(self) -> None:
        super().setup()
        self._deadline = Timer(_REQUEST_SECONDS, self._give_up)
        self._deadline.daemon = True
        self._deadline.start()

    def finish(self) -> None:
        self._deadline.cancel()
        super().finish()

    def _give_up(self) -> None:
        with suppress(OSError):
            self.connection.shutdown(SHUT_RD)

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Refuse a request that is not HTTP, or another method than GET and HEAD."""
        self._send(failure(HTTPStatus(code), HTTPStatus(code).phrase))

    def _answer(self) -> None:
        self._deadline.cancel()
        try:
            parts = urlsplit(self.path)
        except ValueError:
            self.send_error(HTTPStatus.BAD_REQUEST)
            return
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            found = self.server.answer(Request(path=parts.path, query=query, headers=headers))
        except Exception as error:  # noqa: BLE001 - one request must not end the server
            kind = type(error).__name__
            found = failure(HTTPStatus.INTERNAL_SERVER_ERROR, f"unexpected {kind}")
        self._send(found)

    def _send(self, response: Response) -> None:
        self.send_response(response.status)
        headers = {
            "Content-Type": response.type,
            "Content-Length": str(len(response.body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            **response.headers,
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)

    def version_string(self) -> str:
        """Tell nothing about the versions of Python and its library."""
        return "floodmark"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Do not log requests: they are many, and may contain a token."""
