"""Failing requests to S3: which error is raised, and what a retry does."""

import inspect
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from threading import Thread
from typing import ClassVar

import obstore
import obstore.exceptions
import pytest

from floodmark.errors import (
    AccessDenied,
    ObjectNotFound,
    StorageError,
    StorageUnavailable,
    WriteConflict,
)
from floodmark.storage.objects import ObjectStore
from floodmark.storage.retrying import Backoff, RetryingObjectStore
from floodmark.storage.s3 import S3ObjectStore
from servers import S3Server
from servers.faults import (
    ACCESS_DENIED,
    CONFLICT,
    INTERNAL_ERROR,
    PRECONDITION_FAILED,
    SLOW_DOWN,
    AnswerError,
    Delay,
    DropAnswer,
    DropRequest,
    Fault,
    FaultyProxy,
    Plan,
    Refuse,
    Request,
    random_faults,
)
from servers.ministack import Ministack
from servers.seaweedfs import SeaweedFS

BUCKET = "storage-faults"
GONE = Refuse(404, "NoSuchKey")


@pytest.fixture(autouse=True)
def aws_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", S3Server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", S3Server.secret_key)


@pytest.fixture(scope="module")
def server(ministack: Ministack) -> S3Server:
    ministack.create_bucket(BUCKET)
    return ministack


@pytest.fixture
def proxy(server: S3Server) -> Iterator[FaultyProxy]:
    with FaultyProxy(server.endpoint) as running:
        yield running


@pytest.fixture
def prefix() -> str:
    return uuid.uuid4().hex


@pytest.fixture
def direct(server: S3Server, prefix: str) -> ObjectStore:
    """The store without faults."""
    return S3ObjectStore(BUCKET, prefix, endpoint=server.endpoint)


@pytest.fixture
def faulty(proxy: FaultyProxy, prefix: str) -> ObjectStore:
    """The same store through the proxy."""
    return S3ObjectStore(BUCKET, prefix, endpoint=proxy.endpoint)


class Sleeps(list[float]):
    """Waits that are noted and not waited."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


@pytest.fixture
def sleeps() -> Sleeps:
    return Sleeps()


@pytest.fixture
def retrying(faulty: ObjectStore, sleeps: Sleeps) -> ObjectStore:
    return RetryingObjectStore(faulty, Backoff(tries=3), sleep=sleeps, random=Random(1))


def only(method: str, fault: Fault, *, times: int = 1) -> Plan:
    """Let the first requests by a method meet a fault."""
    left = times

    def plan(request: Request) -> Fault | None:
        nonlocal left
        if request.method != method or left == 0:
            return None
        left -= 1
        return fault

    return plan


READS: dict[str, Callable[[ObjectStore], object]] = {
    "get": lambda store: store.get("a/b"),
    "list_objects": lambda store: list(store.list_objects("a/")),
    "list_folders": lambda store: store.list_folders("a/"),
}
PLAIN_WRITES: dict[str, Callable[[ObjectStore], object]] = {
    "put": lambda store: store.put("a/b", b"new"),
    "delete": lambda store: store.delete("a/b"),
}
CONDITIONAL_WRITES: dict[str, Callable[[ObjectStore], object]] = {
    "put_if_absent": lambda store: store.put_if_absent("a/c", b"new"),
    "put_if_match": lambda store: store.put_if_match("a/b", b"new", '"etag"'),
}
ALL = {**READS, **PLAIN_WRITES, **CONDITIONAL_WRITES}
PASSING = [
    SLOW_DOWN,
    INTERNAL_ERROR,
    Refuse(429, "TooManyRequests"),
    Refuse(408, "RequestTimeout"),
    Refuse(400, "RequestTimeout"),
    Refuse(502, "BadGateway"),
    Refuse(504, "GatewayTimeout"),
    AnswerError(),
    DropRequest(),
    DropAnswer(),
]


@pytest.mark.parametrize("method", ALL)
@pytest.mark.parametrize("fault", PASSING, ids=str)
def test_passing_faults_are_unavailable(
    proxy: FaultyProxy, faulty: ObjectStore, fault: Fault, method: str
) -> None:
    proxy.plan = lambda _: fault
    with pytest.raises(StorageUnavailable, match="s3://storage-faults/"):
        ALL[method](faulty)
    assert proxy.requests.total() == 1  # the caller decides about another try


@pytest.mark.parametrize("method", ["get", "put", "put_if_match", "list_objects"])
def test_slow_answer_is_unavailable(proxy: FaultyProxy, method: str) -> None:
    impatient = S3ObjectStore(BUCKET, endpoint=proxy.endpoint, timeout_seconds=0.2)
    proxy.plan = lambda _: Delay(5)
    with pytest.raises(StorageUnavailable):
        ALL[method](impatient)


@pytest.mark.parametrize("fault", [CONFLICT, PRECONDITION_FAILED, GONE], ids=str)
@pytest.mark.parametrize("method", CONDITIONAL_WRITES)
def test_conflict_has_three_statuses_and_one_error(
    proxy: FaultyProxy,
    retrying: ObjectStore,
    direct: ObjectStore,
    fault: Fault,
    method: str,
) -> None:
    direct.put("a/b", b"old")
    proxy.plan = lambda request: fault if request.is_conditional_write else None
    with pytest.raises(WriteConflict):
        CONDITIONAL_WRITES[method](retrying)
    assert proxy.faults == {"Refuse": 1}
    assert [info.key for info in direct.list_objects("")] == ["a/b"]
    assert direct.get("a/b").data == b"old"


@pytest.mark.parametrize("fault", [CONFLICT, PRECONDITION_FAILED], ids=str)
@pytest.mark.parametrize(("method", "sent"), [("put", "PUT"), ("delete", "POST")])
def test_conflict_on_a_plain_write_is_tried_again(
    proxy: FaultyProxy,
    faulty: ObjectStore,
    retrying: ObjectStore,
    fault: Fault,
    method: str,
    sent: str,
) -> None:
    proxy.plan = only(sent, fault)
    with pytest.raises(StorageUnavailable):
        PLAIN_WRITES[method](faulty)
    proxy.plan = only(sent, fault)
    PLAIN_WRITES[method](retrying)


@pytest.mark.parametrize("method", ALL)
@pytest.mark.parametrize(
    "fault",
    [ACCESS_DENIED, Refuse(401, "Unauthorized"), Refuse(400, "ExpiredToken")],
    ids=str,
)
def test_denied_is_not_tried_again(
    proxy: FaultyProxy, retrying: ObjectStore, sleeps: Sleeps, fault: Fault, method: str
) -> None:
    proxy.plan = lambda _: fault
    with pytest.raises(AccessDenied) as caught:
        ALL[method](retrying)
    assert "credentials" in (caught.value.hint or "")
    assert sleeps == []


@pytest.mark.parametrize("method", ALL)
@pytest.mark.parametrize(
    "fault",
    [Refuse(301, "PermanentRedirect"), Refuse(400, "AuthorizationHeaderMalformed")],
    ids=str,
)
def test_wrong_region_is_a_clear_error(
    proxy: FaultyProxy, retrying: ObjectStore, sleeps: Sleeps, fault: Fault, method: str
) -> None:
    proxy.plan = lambda _: fault
    with pytest.raises(StorageError, match="another region") as caught:
        ALL[method](retrying)
    assert "region" in (caught.value.hint or "")
    assert sleeps == []


@pytest.mark.parametrize("method", ALL)
@pytest.mark.parametrize("status", [400, 405, 411, 416])
def test_other_refusals_are_final(
    proxy: FaultyProxy, retrying: ObjectStore, sleeps: Sleeps, status: int, method: str
) -> None:
    proxy.plan = lambda _: Refuse(status, "InvalidRequest")
    with pytest.raises(StorageError, match=f"status {status}, InvalidRequest") as caught:
        ALL[method](retrying)
    assert type(caught.value) is StorageError
    assert sleeps == []


def test_unreachable_endpoint_is_unavailable(direct: ObjectStore) -> None:
    nobody = S3ObjectStore(BUCKET, endpoint="http://127.0.0.1:1")
    for attempt in ALL.values():
        with pytest.raises(StorageUnavailable):
            attempt(nobody)


# A second try


@pytest.mark.parametrize("method", [*READS, *PLAIN_WRITES])
@pytest.mark.parametrize("fault", PASSING, ids=str)
def test_passing_faults_pass(
    proxy: FaultyProxy,
    direct: ObjectStore,
    retrying: ObjectStore,
    sleeps: Sleeps,
    fault: Fault,
    method: str,
) -> None:
    direct.put("a/b", b"old")
    proxy.plan = lambda request: fault if request.number < 3 else None
    {**READS, **PLAIN_WRITES}[method](retrying)
    assert proxy.requests.total() == 3
    assert len(sleeps) == 2
    assert 0 <= sleeps[0] <= 0.1
    assert 0 <= sleeps[1] <= 0.2


@pytest.mark.parametrize("method", ALL)
def test_lasting_faults_end_after_three_tries(
    proxy: FaultyProxy, retrying: ObjectStore, sleeps: Sleeps, method: str
) -> None:
    proxy.plan = lambda _: SLOW_DOWN
    with pytest.raises(StorageUnavailable, match="status 503, SlowDown"):
        ALL[method](retrying)
    assert proxy.requests.total() == 3
    assert len(sleeps) == 2


@pytest.mark.parametrize("fault", PASSING, ids=str)
def test_put_if_absent_succeeds_exactly_once(
    proxy: FaultyProxy, direct: ObjectStore, retrying: ObjectStore, fault: Fault
) -> None:
    proxy.plan = only("PUT", fault)
    etag = retrying.put_if_absent("a", b"ours")
    assert direct.get("a").data == b"ours"
    assert direct.get("a").etag == etag
    proxy.plan = only("PUT", fault)
    with pytest.raises(WriteConflict):
        retrying.put_if_absent("a", b"another's")
    assert direct.get("a").data == b"ours"


@pytest.mark.parametrize("fault", PASSING, ids=str)
def test_put_if_match_succeeds_exactly_once(
    proxy: FaultyProxy, direct: ObjectStore, retrying: ObjectStore, fault: Fault
) -> None:
    first = direct.put("a", b"before")
    proxy.plan = only("PUT", fault)
    etag = retrying.put_if_match("a", b"ours", first)
    assert direct.get("a").data == b"ours"
    assert direct.get("a").etag == etag
    proxy.plan = only("PUT", fault)
    with pytest.raises(WriteConflict):
        retrying.put_if_match("a", b"another's", first)
    assert direct.get("a").data == b"ours"


@pytest.mark.parametrize("fault", [DropAnswer(), AnswerError()], ids=str)
def test_lost_answer_and_failing_look_still_succeed(
    proxy: FaultyProxy, direct: ObjectStore, retrying: ObjectStore, fault: Fault
) -> None:
    first = direct.put("a", b"before")
    faults: dict[int, Fault] = {1: fault, 3: SLOW_DOWN}  # the write, and the look at what is there
    proxy.plan = lambda request: faults.get(request.number)
    retrying.put_if_match("a", b"ours", first)
    assert direct.get("a").data == b"ours"


def test_object_deleted_after_a_lost_answer_is_a_conflict(
    proxy: FaultyProxy, direct: ObjectStore, faulty: ObjectStore
) -> None:
    first = direct.put("a", b"before")
    proxy.plan = only("PUT", DropAnswer())

    def delete_meanwhile(_: float) -> None:
        direct.delete("a")

    retrying = RetryingObjectStore(faulty, Backoff(), sleep=delete_meanwhile, random=Random(1))
    with pytest.raises(WriteConflict):
        retrying.put_if_match("a", b"ours", first)
    with pytest.raises(ObjectNotFound):
        direct.get("a")


def test_interrupted_listing_is_resumed(
    proxy: FaultyProxy, direct: ObjectStore, retrying: ObjectStore
) -> None:
    expected = [f"many/{number // 1700}/{number:05d}" for number in range(2100)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda key: direct.put(key, b""), expected))
    # One page, a lost one, the second page, two lost ones, the last page.
    faults: dict[int, Fault] = {2: SLOW_DOWN, 4: DropAnswer(), 5: DropRequest()}
    proxy.plan = lambda request: faults.get(request.number)
    assert [info.key for info in retrying.list_objects("many/")] == expected
    assert proxy.requests.total() == 6
    proxy.reset_counts()
    proxy.plan = lambda request: SLOW_DOWN if request.number > 2 else None
    with pytest.raises(StorageUnavailable):
        list(retrying.list_objects("many/"))
    assert proxy.requests.total() == 5


@pytest.mark.parametrize("kind", ["ministack", "seaweedfs"])
def test_many_writers_over_a_bad_network_lose_nothing(
    request: pytest.FixtureRequest, server: S3Server, prefix: str, kind: str
) -> None:
    """Eight writers add their marks to one object while a third of the requests fail."""
    behind: S3Server = request.getfixturevalue(kind)
    if isinstance(behind, SeaweedFS):
        behind.create_bucket(BUCKET)
    marks = [f"{writer}.{number}" for writer in range(8) for number in range(4)]
    with FaultyProxy(behind.endpoint, random_faults(11, 0.3)) as bad_network:
        inner = S3ObjectStore(BUCKET, prefix, endpoint=bad_network.endpoint)
        store = RetryingObjectStore(
            inner, Backoff(20, 0.001, 0.01), sleep=lambda _: None, random=Random(1)
        )
        store.put("log", b"")

        def add(mark: str) -> None:
            while True:
                found = store.get("log")
                if mark in found.data.decode().split():
                    return
                try:
                    store.put_if_match("log", found.data + f"{mark} ".encode(), found.etag)
                except WriteConflict:
                    continue
                return

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(add, marks))
        assert bad_network.faults.total() > 10
        assert sorted(store.get("log").data.decode().split()) == sorted(marks)


# Answers that no server of ours sends


class Answer(BaseHTTPRequestHandler):
    """Answers everything with what the test has chosen."""

    protocol_version = "HTTP/1.1"
    body: ClassVar[bytes] = b""
    headers_sent: ClassVar[dict[str, str]] = {}

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.send_response(200)
        for name, value in {"Content-Length": str(len(self.body)), **self.headers_sent}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(self.body)
        self.close_connection = True

    do_GET = do_PUT = do_POST = answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield S3ObjectStore(BUCKET, endpoint=f"http://127.0.0.1:{server.server_port}")
        server.shutdown()


@pytest.mark.parametrize(
    ("code", "error"), [("AccessDenied", AccessDenied), ("InternalError", StorageUnavailable)]
)
def test_delete_that_failed_within_a_good_answer(
    odd: ObjectStore, monkeypatch: pytest.MonkeyPatch, code: str, error: type[StorageError]
) -> None:
    body = f"<DeleteResult><Error><Key>a</Key><Code>{code}</Code></Error></DeleteResult>"
    body = body.replace("</Error>", "<Message>no</Message></Error>")
    monkeypatch.setattr(Answer, "body", body.encode())
    with pytest.raises(error):
        odd.delete("a")


def test_truncated_answer_is_unavailable(odd: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Answer, "body", b"half of it")
    monkeypatch.setattr(Answer, "headers_sent", {"ETag": '"x"', "Content-Length": "20"})
    with pytest.raises(StorageUnavailable):
        odd.get("a")


def test_store_without_etags_is_refused(odd: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Answer, "body", b"data")
    with pytest.raises(StorageError, match="ETag"):
        odd.get("a")


@pytest.mark.parametrize("method", ["list_objects", "list_folders", "delete"])
def test_garbage_is_unavailable(
    odd: ObjectStore, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(Answer, "body", b"please log in")
    with pytest.raises(StorageUnavailable):
        ALL[method](odd)


# Every error of the client

CLIENT_ERRORS = [
    error
    for _, error in inspect.getmembers(obstore.exceptions, inspect.isclass)
    if issubclass(error, Exception)
]
EXPECTED: dict[str, type[StorageError]] = {
    "AlreadyExistsError": StorageError,
    "BaseError": StorageError,
    "GenericError": StorageUnavailable,
    "InvalidPathError": StorageError,
    "JoinError": StorageUnavailable,
    "NotFoundError": ObjectNotFound,
    "NotModifiedError": StorageError,
    "NotSupportedError": StorageError,
    "PermissionDeniedError": AccessDenied,
    "PreconditionError": StorageError,
    "UnauthenticatedError": AccessDenied,
    "UnknownConfigurationKeyError": StorageError,
}


@pytest.mark.parametrize("method", ALL)
@pytest.mark.parametrize("error", CLIENT_ERRORS)
def test_no_error_of_the_client_escapes(
    direct: ObjectStore,
    monkeypatch: pytest.MonkeyPatch,
    error: type[Exception],
    method: str,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error("injected")

    for name in ("get", "put", "list", "list_with_delimiter", "delete"):
        monkeypatch.setattr(obstore, name, fail)
    conflict = error.__name__ in ("AlreadyExistsError", "PreconditionError", "NotFoundError")
    if method in CONDITIONAL_WRITES and conflict:
        expected: type[StorageError] = WriteConflict
    else:
        expected = EXPECTED[error.__name__]
    if method == "delete" and expected is ObjectNotFound:
        ALL[method](direct)
        return
    with pytest.raises(StorageError) as caught:
        ALL[method](direct)
    assert type(caught.value) is expected
    assert type(caught.value.__cause__) is error


def test_every_error_of_the_client_is_expected() -> None:
    assert {error.__name__ for error in CLIENT_ERRORS} == EXPECTED.keys()
