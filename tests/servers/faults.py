"""A proxy in front of an S3 server that makes chosen requests go wrong."""

import random
import select
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Self
from urllib.parse import urlsplit

from floodmark.subprocesses import LOOPBACK
from servers.threads import Threads


@dataclass(frozen=True)
class Refuse:
    """Answer with an S3 error; the server never sees the request."""

    status: int
    code: str


@dataclass(frozen=True)
class AnswerError:
    """Let the server do its work, but answer with an S3 error: applied, and the client misled."""

    status: int = 500
    code: str = "InternalError"


@dataclass(frozen=True)
class DropAnswer:
    """Let the server do its work, then reset the connection: applied, and no answer."""


@dataclass(frozen=True)
class DropRequest:
    """Reset the connection; the server never sees the request."""


@dataclass(frozen=True)
class Delay:
    """Wait before passing the request on, which then goes its normal way."""

    seconds: float


Fault = Refuse | AnswerError | DropAnswer | DropRequest | Delay

CONFLICT = Refuse(409, "ConditionalRequestConflict")
PRECONDITION_FAILED = Refuse(412, "PreconditionFailed")
SLOW_DOWN = Refuse(503, "SlowDown")
INTERNAL_ERROR = Refuse(500, "InternalError")
ACCESS_DENIED = Refuse(403, "AccessDenied")


@dataclass(frozen=True)
class Request:
    """A request as a plan sees it: `number` counts from 1, the names of `headers` are lower case.

    `path` is as sent: escaped, with bucket and query.
    """

    number: int
    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)

    @property
    def is_conditional_write(self) -> bool:
        """Whether this is a PUT that depends on what is there now."""
        return self.method == "PUT" and not {"if-match", "if-none-match"}.isdisjoint(self.headers)


Plan = Callable[[Request], Fault | None]


def no_faults(_: Request) -> None:
    """Let every request pass."""


def random_faults(seed: int, rate: float) -> Plan:
    """Let a share of the requests fail in passing ways, including applied but answer lost.

    The same seed gives the same sequence of decisions; which request meets which of them depends
    on the order of arrival once there is more than one client.
    """
    generator = random.Random(seed)
    lock = threading.Lock()
    for_all = (SLOW_DOWN, INTERNAL_ERROR, AnswerError(), DropAnswer(), DropRequest(), Delay(0.05))

    def plan(request: Request) -> Fault | None:
        with lock:
            if generator.random() >= rate:
                return None
            return generator.choice(
                (*for_all, CONFLICT) if request.is_conditional_write else for_all
            )

    return plan


class FaultyProxy:
    """An HTTP/1.1 proxy on a loopback port; asks `plan` about each request.

    Requests pass byte for byte, so signatures stay valid: a client signs for the proxy's host
    and port, and the server verifies against the Host header that it receives. Both `plan` and
    `upstream` may be replaced at any time; `plan` must bear being called from many threads.
    """

    def __init__(self, upstream: str, plan: Plan = no_faults) -> None:
        self.upstream = upstream
        self.plan = plan
        self.requests: Counter[str] = Counter()
        """How many requests came, by method."""
        self.faults: Counter[str] = Counter()
        """How many faults were injected, by the kind's name."""
        self._number = 0
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._open: set[socket.socket] = set()
        self._threads = Threads("faulty-proxy")
        self._listener = socket.create_server((LOOPBACK, 0), backlog=256)
        self.endpoint = f"http://{LOOPBACK}:{self._listener.getsockname()[1]}"

    def start(self) -> None:
        """Begin to accept connections."""
        self._threads.start(self._accept)

    def stop(self) -> None:
        """Close every connection and wait until all threads have ended."""
        with self._lock:
            self._stopping.set()
            for connection in (self._listener, *self._open):
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        self._threads.join()
        self._listener.close()

    def reset_counts(self) -> None:
        """Count from zero again, also the requests' numbers."""
        with self._lock:
            self._number = 0
            self.requests.clear()
            self.faults.clear()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._threads.start(_Conversation(self, client).run)

    def opened(self, connection: socket.socket) -> None:
        """Have `stop` interrupt this connection."""
        with self._lock:
            if self._stopping.is_set():
                raise ConnectionAbortedError("the proxy is stopping")
            self._open.add(connection)

    def closed(self, connection: socket.socket) -> None:
        """Forget a connection."""
        with self._lock:
            self._open.discard(connection)

    def decide(self, method: str, path: str, headers: Mapping[str, str]) -> Fault | None:
        """Count a request and ask the plan about it."""
        with self._lock:
            self._number += 1
            self.requests[method] += 1
            request = Request(self._number, method, path, headers)
        fault = self.plan(request)
        if fault is not None:
            with self._lock:
                self.faults[type(fault).__name__] += 1
        return fault

    def pause(self, seconds: float) -> None:
        """Sleep, but not longer than the proxy lives."""
        self._stopping.wait(seconds)


class _Conversation:
    """One client's connection, with a connection of its own to the server."""

    def __init__(self, proxy: FaultyProxy, client: socket.socket) -> None:
        self._proxy = proxy
        self._client = _Peer(client, proxy)
        self._server: _Peer | None = None

    def run(self) -> None:
        """Serve requests until either side hangs up."""
        with ExitStack() as stack, suppress(OSError):
            stack.callback(self._close_server)
            client = stack.enter_context(self._client)
            while (request := client.read_message()) is not None and self._serve(client, request):
                pass

    def _serve(self, client: "_Peer", request: "_Message") -> bool:
        """Deal with one request; returns whether the connection stays open."""
        method, path, _ = request.first_line.split(" ", 2)
        fault = self._proxy.decide(method, path, request.headers)
        match fault:
            case Refuse(status, code):
                client.send(_error(status, code, method))
            case AnswerError(status, code):
                self._forward(request, method)
                client.send(_error(status, code, method))
            case DropAnswer():
                self._forward(request, method)
                client.reset()
                return False
            case DropRequest():
                client.reset()
                return False
            case Delay(seconds):
                self._proxy.pause(seconds)
        if fault is None or isinstance(fault, Delay):
            answer = self._forward(request, method)
            client.send(answer.raw)
            return not (answer.wants_close or request.wants_close)
        return not request.wants_close

    def _forward(self, request: "_Message", method: str) -> "_Message":
        server = self._connect()
        server.send(request.raw)
        answer = server.read_message(answer_to=method)
        if answer is None:
            raise ConnectionResetError("the server closed the connection")
        return answer

    def _connect(self) -> "_Peer":
        """The connection to the server; a new one if it closed the last, as after a restart."""
        if self._server is not None and self._server.is_closed():
            self._close_server()
        if self._server is None:
            address = urlsplit(self._proxy.upstream)
            connection = socket.create_connection((address.hostname, address.port))
            self._server = _Peer(connection, self._proxy).__enter__()
        return self._server

    def _close_server(self) -> None:
        if self._server is not None:
            self._server.__exit__()
            self._server = None


@dataclass(frozen=True)
class _Message:
    """A request or an answer, with all its bytes as they came."""

    first_line: str
    headers: Mapping[str, str]
    raw: bytes

    @property
    def wants_close(self) -> bool:
        return self.headers.get("connection", "").lower() == "close"


class _Peer:
    """A connection that carries HTTP messages."""

    def __init__(self, connection: socket.socket, proxy: FaultyProxy) -> None:
        self._connection = connection
        self._proxy = proxy
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = connection.makefile("rb")

    def __enter__(self) -> Self:
        try:
            self._proxy.opened(self._connection)
        except ConnectionAbortedError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._proxy.closed(self._connection)
        self._reader.close()
        self._connection.close()

    def send(self, data: bytes) -> None:
        self._connection.sendall(data)

    def reset(self) -> None:
        """Make closing send a reset instead of an orderly end."""
        linger = struct.pack("ii", 1, 0)
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    def is_closed(self) -> bool:
        """Whether the other side hung up; between messages there is nothing else to read."""
        return bool(select.select([self._connection], [], [], 0)[0])

    def read_message(self, answer_to: str | None = None) -> _Message | None:
        """Read a request, or the answer to a request by that method; None at the end."""
        while True:
            message = self._read_head()
            if message is None:
                return None
            interim = answer_to is not None and message.first_line.split(" ")[1].startswith("1")
            if not interim:
                break
        if message.headers.get("expect", "").lower() == "100-continue":
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = self._read_body(message, answer_to)
        return _Message(message.first_line, message.headers, message.raw + body)

    def _read_head(self) -> _Message | None:
        lines = [self._reader.readline()]
        if not lines[0]:
            return None
        while lines[-1] not in (b"\r\n", b""):
            lines.append(self._reader.readline())
        headers = {}
        for line in lines[1:-1]:
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        return _Message(lines[0].decode("latin-1").rstrip(), headers, b"".join(lines))

    def _read_body(self, head: _Message, answer_to: str | None) -> bytes:
        if answer_to is not None:
            status = head.first_line.split(" ")[1]
            if answer_to == "HEAD" or status in ("204", "304"):
                return b""
        if head.headers.get("transfer-encoding", "").lower() == "chunked":
            return b"".join(self._read_chunks())
        if "content-length" in head.headers:
            return self._read_exactly(int(head.headers["content-length"]))
        # A request without a length has no body; an answer without one lasts until the end.
        return b"" if answer_to is None else self._reader.read()

    def _read_chunks(self) -> Iterator[bytes]:
        while True:
            line = self._reader.readline()
            yield line
            size = int(line.split(b";")[0], 16)
            if size == 0:
                break
            yield self._read_exactly(size + len(b"\r\n"))
        while True:  # trailers, up to and including an empty line
            line = self._reader.readline()
            yield line
            if line in (b"\r\n", b""):
                return

    def _read_exactly(self, size: int) -> bytes:
        data = self._reader.read(size)
        if len(data) < size:
            raise ConnectionResetError("the connection ended within a message")
        return data


def _error(status: int, code: str, method: str) -> bytes:
    body = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<Error><Code>{code}</Code><Message>injected</Message><RequestId>0</RequestId></Error>"
    ).encode()
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
        f"Content-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    return head if method == "HEAD" else head + body
