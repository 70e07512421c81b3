"""Logins: wrong passwords, unresponsive networks, certificates."""

import gc
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from floodmark.cli import sync_every
from floodmark.cli.signals import Terminated
from floodmark.config.logins import LOGINS
from floodmark.config.models import (
    LakeSettings,
    MysqlConnection,
    PostgresConnection,
    RedshiftConnection,
)
from floodmark.config.secret import Secret
from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.errors import FloodmarkError
from floodmark.mysql.connection import MysqlSession, connect
from floodmark.storage.memory import MemoryObjectStore
from floodmark.tunnels.tunnel import Tunnels
from floodmark.warehouse.factory import open_target
from floodmark.warehouse.redshift import session
from floodmark.warehouse.redshift.session import RedshiftSession
from pipelines import Pipeline, ask_once, use_redshift
from servers.ministack import Ministack
from servers.postgres import PrivatePostgres
from servers.redshift import RedshiftStandIn
from servers.seaweedfs import SeaweedFS
from servers.sshd import PrivateSshd

pytestmark = [
    pytest.mark.enough_on("mysql"),  # it is about the target, or the same on both
    # The drivers leave their sockets behind when they are refused.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:ssl:DeprecationWarning"),  # of the driver
]

LAKE = LakeSettings(url="s3://nowhere")
TABLES = [f"t{number}" for number in range(6)]


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    LOGINS.forget()
    yield
    LOGINS.forget()
    gc.collect()


def test_a_run_tries_a_wrong_password_once(
    postgres: PrivatePostgres, seaweedfs: SeaweedFS, pipeline: Callable[..., Pipeline]
) -> None:
    synced = pipeline(dict.fromkeys(TABLES, "{cursor: id}"), lake="seaweedfs")
    for table in TABLES:
        ask_once(synced, f"CREATE TABLE {table} (id INT PRIMARY KEY) AS SELECT 1 AS id")
    with RedshiftStandIn(postgres, seaweedfs) as server:
        use_redshift(synced, server, password="wrong")
        for strategy in ("sequential", "inter-table"):
            server.forget()
            failed = synced.call("sync", "-p", "main", "--strategy", strategy, "--json")
            assert failed.code == 1
            assert server.logins.tried == 1
            errors = [table["error"] for table in failed.value["tables"]]
            assert len(errors) == len(TABLES)
            assert all("password authentication failed" in error for error in errors)
        use_redshift(synced, server)
        assert synced.call("sync", "-p", "main", "--json").code == 0


@pytest.mark.parametrize("broken", ["source", "target"])
def test_rounds_do_not_lock_a_user(
    redshift: RedshiftStandIn,
    pipeline: Callable[..., Pipeline],
    monkeypatch: pytest.MonkeyPatch,
    broken: str,
) -> None:
    synced = pipeline({"t": "{cursor: id}"}, lake="ministack")
    ask_once(synced, "CREATE TABLE t (id INT PRIMARY KEY) AS SELECT 1 AS id")
    redshift.forget()
    use_redshift(synced, redshift, password="wrong" if broken == "target" else None)
    if broken == "source":
        text = Path(synced.config).read_text()
        Path(synced.config).write_text(text.replace(synced.source["password"], "wrong"))
    pauses = iter(range(7))

    def pause(_: float) -> None:
        if next(pauses, None) is None:
            raise Terminated

    clock = SimpleNamespace(sleep=pause, monotonic=time.monotonic)
    monkeypatch.setattr(sync_every, "time", clock)
    ended = synced.call("sync", "-p", "main", "--every", "1s")
    assert ended.code == 0, ended
    first, *later = [line for line in ended.err.splitlines() if " error: " in line]
    assert len(later) == 7
    assert all("the next attempt is not before" in error for error in later)
    if broken == "target":
        assert "password authentication failed" in first
        assert redshift.logins.tried == 1
        use_redshift(synced, redshift)
        assert synced.call("sync", "-p", "main", "--json").code == 0


def test_many_at_once_try_a_wrong_password_once(redshift: RedshiftStandIn) -> None:
    redshift.forget()
    wrong = redshift.connection(password=Secret("wrong"))

    def refused(_: int) -> str:
        with pytest.raises(FloodmarkError) as caught:
            RedshiftSession(wrong)
        return caught.value.message

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(refused, range(8)))) == 1
    assert redshift.logins.tried == 1
    RedshiftSession(redshift.connection()).close()


def test_a_login_that_was_accepted_does_not_wait_for_others(redshift: RedshiftStandIn) -> None:
    right = redshift.connection()
    first, second = RedshiftSession(right), RedshiftSession(right)
    assert first.run("SELECT 1") == second.run("SELECT 1")
    first.close()
    second.close()


def test_mysql_and_postgresql_are_asked_once(
    server: PrivateMariaDB, postgres: PrivatePostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def counted(name: str, really: Callable[..., Any]) -> Callable[..., Any]:
        def connect(*arguments: Any, **options: Any) -> Any:
            tried.append(name)
            return really(*arguments, **options)

        return connect

    monkeypatch.setattr(psycopg, "connect", counted("pg", psycopg.connect))
    monkeypatch.setattr(MysqlSession, "connect", counted("mysql", MysqlSession.connect))
    wrong = PostgresConnection(
        host=postgres.host,
        port=postgres.port,
        database=postgres.database,
        user=postgres.user,
        password=Secret("wrong"),
    )
    source = MysqlConnection(
        host=server.host, port=server.port, user=server.user, password=Secret("wrong")
    )
    for _ in range(2):
        with pytest.raises(FloodmarkError, match="password authentication failed"):
            open_target(wrong, MemoryObjectStore(), LAKE)
        with pytest.raises(FloodmarkError, match="refuses user"), connect(source):
            pass
    LOGINS.begin_run()
    for _ in range(2):
        with pytest.raises(FloodmarkError, match=r"rejected user .* next attempt is not before"):
            open_target(wrong, MemoryObjectStore(), LAKE)
        with (
            pytest.raises(FloodmarkError, match=r"rejected user .* next attempt is not"),
            connect(source),
        ):
            pass
    assert sorted(tried) == ["mysql", "pg"]


def test_a_silent_connection_is_kept_alive(redshift: RedshiftStandIn) -> None:
    session = RedshiftSession(redshift.connection())
    options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    made = session._connection._usock
    assert [made.getsockopt(socket.IPPROTO_TCP, option) for option in options] == [30, 10, 3]
    assert made.gettimeout() is None
    session.close()


def test_a_server_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "CONNECT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        connection = RedshiftConnection(
            host="127.0.0.1", port=silent.getsockname()[1], database="d", user="u", ssl=False
        )
        with pytest.raises(FloodmarkError, match="cannot connect to Redshift"):
            RedshiftSession(connection)


def test_the_settings_of_a_session(redshift: RedshiftStandIn) -> None:
    session = RedshiftSession(
        redshift.connection(
            query_group="it's", statement_timeout=90.0, application_name="warehouse loads"
        )
    )
    assert session.run("SHOW statement_timeout") == [("90s",)]
    assert session.run("SHOW application_name") == [("warehouse loads",)]
    assert redshift.executed[-3].sql == "SET statement_timeout TO 90000"
    assert "SET query_group TO 'it''s'" in [execution.sql for execution in redshift.executed]
    session.close()


# Certificates


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that is its own authority, for another host."""
    file = tmp_path_factory.mktemp("certificate") / "server.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", "/CN=elsewhere", "-addext", "subjectAltName=DNS:elsewhere.example.com",
         "-keyout", str(file.with_suffix(".key")), "-out", str(file)],
        check=True, capture_output=True,
    )  # fmt: skip
    return file


@pytest.fixture
def encrypted(
    postgres: PrivatePostgres, ministack: Ministack, certificate: Path
) -> Iterator[RedshiftStandIn]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    with RedshiftStandIn(postgres, ministack, tls=context) as server:
        yield server


def test_the_certificate_must_be_trusted(encrypted: RedshiftStandIn) -> None:
    for mode in (True, "verify-ca"):
        with pytest.raises(FloodmarkError, match="a certificate that cannot be verified"):
            RedshiftSession(encrypted.connection(ssl=mode))


def test_the_certificate_must_be_for_this_host(
    encrypted: RedshiftStandIn, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with pytest.raises(FloodmarkError, match="a certificate that is not for"):
        RedshiftSession(encrypted.connection(ssl=True))
    session = RedshiftSession(encrypted.connection(ssl="verify-ca"))
    assert session.run("SELECT 1") == [(1,)]
    session.close()


def test_through_a_tunnel_the_certificate_alone_is_checked(
    encrypted: RedshiftStandIn,
    certificate: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with PrivateSshd(tmp_path) as sshd, Tunnels(str(tmp_path)) as tunnels:
        connection = encrypted.connection(ssl=True, tunnel=sshd.settings)
        with tunnels.through(connection) as local:
            session = RedshiftSession(local)
            assert session.run("SELECT 1") == [(1,)]
            session.close()
