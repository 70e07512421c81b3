"""The servers that other tests rely on do what those tests take for granted."""

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import obstore
import pymysql
import pytest
from obstore.exceptions import (
    AlreadyExistsError,
    GenericError,
    PermissionDeniedError,
    PreconditionError,
)
from obstore.store import S3Store

from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.embedded.process import ServerProcess
from floodmark.errors import FloodmarkError
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
    Refuse,
    Request,
    random_faults,
)
from servers.ministack import Ministack
from servers.seaweedfs import SeaweedFS

BUCKET = "servers-test"


def open_store(
    server: S3Server,
    endpoint: str | None = None,
    *,
    prefix: str | None = None,
    secret: str | None = None,
) -> S3Store:
    return S3Store(
        BUCKET,
        prefix=prefix or uuid.uuid4().hex,
        endpoint=endpoint or server.endpoint,
        region="us-east-1",
        access_key_id=server.access_key,
        secret_access_key=secret or server.secret_key,
        virtual_hosted_style_request=False,
        client_options={"allow_http": True, "timeout": timedelta(seconds=5)},
        retry_config={"max_retries": 0},
    )


@pytest.fixture(scope="module", params=["seaweedfs", "ministack"])
def server(request: pytest.FixtureRequest) -> S3Server:
    found: S3Server = request.getfixturevalue(request.param)
    found.create_bucket(BUCKET)
    return found


@pytest.fixture
def proxy(server: S3Server) -> Iterator[FaultyProxy]:
    with FaultyProxy(server.endpoint) as running:
        yield running


def test_failing_server_shows_its_log(tmp_path: Path) -> None:
    command = ["/bin/sh", "-c", "echo no such luck; exit 3"]
    with pytest.raises(FloodmarkError, match=r"(?s)exited with code 3.*no such luck"):
        ServerProcess("broken", command, tmp_path, lambda: False).start()


def test_server_outlives_the_starting_thread(tmp_path: Path) -> None:
    server = ServerProcess("sleeper", ["/bin/sleep", "60"], tmp_path, lambda: True)
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    time.sleep(0.2)
    assert server.pid is not None
    server.stop()
    assert server.pid is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a parent-death signal")
def test_server_dies_with_a_killed_parent(tmp_path: Path) -> None:
    program = (
        "import os, pathlib, sys, time; from floodmark.embedded.process import ServerProcess\n"
        "here = pathlib.Path(sys.argv[1])\n"
        "server = ServerProcess('sleeper', ['/bin/sleep', '60'], here, lambda: True)\n"
        "server.start(); print(server.pid, flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": _src()}
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert _runs(pid)
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 5
    while _runs(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _runs(pid)


def _src() -> str:
    import floodmark

    return str(Path(floodmark.__file__).parents[1])


def _runs(pid: int) -> bool:
    """Whether the process runs; one that ended may still be listed until somebody reaps it."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("kind", ["mariadb", "mysql"])
def test_a_source_keeps_committed_rows_over_kill_and_restart(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    make = type(request.getfixturevalue(kind))
    with make(tmp_path, {"default_time_zone": "+02:00"}) as source:
        port = source.port
        source.execute("CREATE DATABASE shop")
        source.execute("CREATE TABLE orders (id INT PRIMARY KEY)", database="shop")
        with _connect(source) as connection, connection.cursor() as cursor:
            cursor.execute("INSERT INTO shop.orders VALUES (1), (2)")
            connection.commit()
            cursor.execute("INSERT INTO shop.orders VALUES (3)")
            source.kill()
        assert source.pid is None
        source.start()
        assert source.execute("SELECT id FROM shop.orders") == [(1,), (2,)]
        source.restart()
        assert source.execute("SELECT COUNT(*), @@time_zone FROM shop.orders") == [(2, "+02:00")]
        assert source.port == port


@pytest.mark.parametrize("kind", ["mariadb", "mysql"])
def test_a_source_is_shared_and_closed_to_strangers(
    request: pytest.FixtureRequest, kind: str
) -> None:
    source: PrivateMariaDB = request.getfixturevalue(kind)
    with _connect(source) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT CURRENT_USER()")
        assert cursor.fetchall() == (("floodmark@127.0.0.1",),)
    for user, password in (("floodmark", "wrong"), ("root", "")):
        with pytest.raises(pymysql.err.OperationalError, match="Access denied"):
            pymysql.connect(host=source.host, port=source.port, user=user, password=password)


def _connect(source: PrivateMariaDB) -> "pymysql.Connection[pymysql.cursors.Cursor]":
    return pymysql.connect(
        host=source.host, port=source.port, user=source.user, password=source.password
    )


def test_conditional_writes(server: S3Server) -> None:
    store = open_store(server)
    first = obstore.put(store, "key", b"one", mode="create")
    with pytest.raises(AlreadyExistsError):
        obstore.put(store, "key", b"two", mode="create")
    second = obstore.put(store, "key", b"three", mode={"e_tag": first["e_tag"]})
    with pytest.raises(PreconditionError):
        obstore.put(store, "key", b"four", mode={"e_tag": first["e_tag"]})
    got = obstore.get(store, "key")
    assert got.bytes() == b"three"
    assert got.meta["e_tag"] == second["e_tag"]


def test_one_of_many_creators_wins(server: S3Server) -> None:
    store = open_store(server)

    def create(number: int) -> bool:
        try:
            obstore.put(store, "key", str(number).encode(), mode="create")
        except (AlreadyExistsError, PreconditionError):
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = [number for number, done in enumerate(pool.map(create, range(24))) if done]
    assert len(won) == 1
    assert obstore.get(store, "key").bytes() == str(won[0]).encode()


KEYS = ["a=b/c", "tilde~", "colon:x", "plus+plus", "a space", "ümläut/日本", "per%cent", "a%2Fb"]


@pytest.mark.parametrize("key", KEYS)
def test_unusual_keys_come_back(server: S3Server, key: str) -> None:
    store = open_store(server)
    obstore.put(store, key, key.encode())
    assert [found["path"] for found in obstore.list(store).collect()] == [key]
    assert obstore.get(store, key).bytes() == key.encode()


def test_seaweedfs_refuses_a_wrong_secret(seaweedfs: SeaweedFS) -> None:
    with pytest.raises(PermissionDeniedError):
        obstore.put(open_store(seaweedfs, secret="wrong"), "key", b"x")


@pytest.mark.parametrize("kind", [SeaweedFS, Ministack])
def test_objects_survive_a_killed_server(
    tmp_path: Path, kind: type[SeaweedFS] | type[Ministack]
) -> None:
    with kind(tmp_path) as server:
        server.create_bucket(BUCKET)
        store = open_store(server)
        put = obstore.put(store, "key", b"kept")
        server.restart()
        got = obstore.get(store, "key")
        assert got.bytes() == b"kept"
        assert got.meta["e_tag"] == put["e_tag"]


def test_proxy_passes_everything_unchanged(server: S3Server, proxy: FaultyProxy) -> None:
    store = open_store(server, proxy.endpoint)
    large = os.urandom(3_000_000)
    obstore.put(store, "large", large)
    obstore.put(store, "empty", b"")
    assert obstore.get(store, "large").bytes() == large
    assert obstore.get_range(store, "large", start=5, length=7) == large[5:12]
    assert obstore.head(store, "empty")["size"] == 0
    assert len(obstore.list(store).collect()) == 2
    obstore.delete(store, "large")
    assert proxy.requests == {"PUT": 2, "GET": 3, "HEAD": 1, "POST": 1}
    assert not proxy.faults


FAULTS = [
    (CONFLICT, AlreadyExistsError, False),
    (PRECONDITION_FAILED, AlreadyExistsError, False),
    (SLOW_DOWN, GenericError, False),
    (INTERNAL_ERROR, GenericError, False),
    (ACCESS_DENIED, PermissionDeniedError, False),
    (DropRequest(), GenericError, False),
    (AnswerError(), GenericError, True),
    (DropAnswer(), GenericError, True),
]


@pytest.mark.parametrize(("fault", "error", "applied"), FAULTS)
def test_client_sees_the_fault(
    server: S3Server, proxy: FaultyProxy, fault: Fault, error: type[Exception], applied: bool
) -> None:
    store = open_store(server, proxy.endpoint)
    proxy.plan = lambda request: fault if request.is_conditional_write else None
    with pytest.raises(error) as caught:
        obstore.put(store, "key", b"x", mode="create")
    if isinstance(fault, Refuse | AnswerError):
        assert f" {fault.status} " in str(caught.value)
    assert len(obstore.list(store).collect()) == applied
    assert proxy.requests["PUT"] == 1
    assert proxy.faults == {type(fault).__name__: 1}


def test_delay_is_felt_and_passes(server: S3Server, proxy: FaultyProxy) -> None:
    store = open_store(server, proxy.endpoint)
    proxy.plan = lambda request: Delay(0.3) if request.number == 2 else None
    obstore.put(store, "key", b"x")
    began = time.monotonic()
    assert obstore.get(store, "key").bytes() == b"x"
    assert time.monotonic() - began >= 0.3


def test_proxy_reconnects_to_a_restarted_server(tmp_path: Path) -> None:
    with Ministack(tmp_path) as server, FaultyProxy(server.endpoint) as proxy:
        server.create_bucket(BUCKET)
        store = open_store(server, proxy.endpoint)
        obstore.put(store, "key", b"x")
        server.kill()
        with pytest.raises(GenericError):
            obstore.get(store, "key")
        server.start()
        assert obstore.get(store, "key").bytes() == b"x"


def test_random_faults_repeat_with_their_seed() -> None:
    requests = [Request(number, "PUT", "/b/k", {"if-match": "x"}) for number in range(1000)]
    plan, again, other = random_faults(1, 0.2), random_faults(1, 0.2), random_faults(2, 0.2)
    decisions = [plan(request) for request in requests]
    assert decisions == [again(request) for request in requests]
    assert decisions != [other(request) for request in requests]
    kinds = {type(fault) for fault in decisions if fault}
    assert kinds == {Refuse, AnswerError, DropAnswer, DropRequest, Delay}
    assert 150 < sum(fault is not None for fault in decisions) < 250


def test_no_write_is_lost_among_random_faults(server: S3Server) -> None:
    """Many clients append to one object by compare-and-swap through a bad network."""
    marks = [f"{client}.{number}" for client in range(6) for number in range(5)]
    obstore.put(direct := open_store(server), "log", b"")
    with FaultyProxy(server.endpoint, random_faults(7, 0.2)) as proxy:
        store = open_store(server, proxy.endpoint, prefix=direct.prefix)

        def append(mark: str) -> None:
            while not try_to_append(mark):
                pass

        def try_to_append(mark: str) -> bool:
            try:
                got = obstore.get(store, "log")
                text = bytes(got.bytes()).decode()
                if mark in text.split():  # an earlier try was applied, its answer lost
                    return True
                new = f"{text}{mark} ".encode()
                obstore.put(store, "log", new, mode={"e_tag": got.meta["e_tag"]})
            except (GenericError, PreconditionError, AlreadyExistsError):  # the last for a 409
                return False
            return True

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(append, marks))
        assert proxy.faults.total() > 0
    assert sorted(bytes(obstore.get(direct, "log").bytes()).decode().split()) == sorted(marks)
