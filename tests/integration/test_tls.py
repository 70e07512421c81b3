"""Encrypted connections to MySQL, with a private authority: both readers, and what is refused."""

import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from floodmark.config.models import LakeSettings, MysqlConnection, Tls, TlsSettings
from floodmark.config.secret import Secret
from floodmark.config.tls_errors import NO_TLS, UNVERIFIED
from floodmark.config.tls_errors import OTHER_NAME as NAMES
from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.errors import ConfigError, FloodmarkError
from floodmark.model.cursor import Cursor
from floodmark.model.encryption import Encryption
from floodmark.model.extraction import ColumnPlan, Window
from floodmark.model.position import START
from floodmark.model.table import TableName
from floodmark.mysql.connection import connect
from floodmark.mysql.offer import Offer, find_offer
from floodmark.worker.job import ExtractionJob
from floodmark.worker.mysql_reader import read_batches
from pipelines import Pipeline, ask_once, numbers
from servers.certificates import make_certificates
from servers.impostor import Impostor
from servers.mysql import PrivateMySQL

USER, PASSWORD = "secure", "only encrypted"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def encrypted(
    server: PrivateMariaDB, certificates: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PrivateMariaDB]:
    options = {
        "ssl-ca": str(certificates / "ca.pem"),
        "ssl-cert": str(certificates / "server.pem"),
        "ssl-key": str(certificates / "server.key"),
    }
    with type(server)(tmp_path_factory.mktemp("encrypted"), options) as running:
        running.execute(f"CREATE USER {USER} IDENTIFIED BY '{PASSWORD}' REQUIRE SSL")
        running.execute(f"GRANT ALL ON *.* TO {USER}")
        yield running


@pytest.fixture(scope="module")
def unencrypted(
    server: PrivateMariaDB, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PrivateMariaDB]:
    """MariaDB has no certificate unless it is given one; MySQL makes its own."""
    if not isinstance(server, PrivateMySQL):
        yield server
        return
    with PrivateMySQL(tmp_path_factory.mktemp("unencrypted"), {"tls-version": ""}) as running:
        yield running


def source(server: PrivateMariaDB, tls: Tls | None) -> MysqlConnection:
    return MysqlConnection(
        host=server.host, port=server.port, user=USER, password=Secret(PASSWORD), tls=tls
    )


def job_for(server: PrivateMariaDB, connection: MysqlConnection) -> ExtractionJob:
    """A worker's job: to ask what its connection is encrypted with."""
    place = "performance_schema" if isinstance(server, PrivateMySQL) else "information_schema"
    return ExtractionJob(
        table=TableName("S", "a", "b"),
        session_id="20250809_200001_abcd",
        sequence=1,
        source=connection,
        relation=f"{place}.session_status",
        columns=(ColumnPlan(name="v", expression="VARIABLE_VALUE", arrow="string", nullable=True),),
        cursor=Cursor(kind="none"),
        lake=LakeSettings(url="/nowhere"),
    )


WINDOW = Window(part=1, start=START, end=START, predicate="VARIABLE_NAME = 'Ssl_cipher'")


def cipher(server: PrivateMariaDB, connection: MysqlConnection, *, streamed: bool) -> str:
    """What a worker's connection is encrypted with."""
    window = structs.replace(WINDOW, streamed=streamed)
    (batch,) = read_batches(job_for(server, connection), window)
    return str(batch.column(0)[0].as_py())


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("verify", ["identity", "ca", "none"])
def test_both_readers_are_encrypted(
    encrypted: PrivateMariaDB, certificates: Path, verify: Any, streamed: bool
) -> None:
    ca = None if verify == "none" else str(certificates / "ca.pem")
    connection = source(encrypted, TlsSettings(ca=ca, verify=verify))
    assert "AES" in cipher(encrypted, connection, streamed=streamed)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_certificate_for_another_name_is_enough_if_names_are_not_compared(
    encrypted: PrivateMariaDB, certificates: Path, streamed: bool
) -> None:
    tls = TlsSettings(ca=str(certificates / "ca.pem"), verify="ca")
    elsewhere = structs.replace(source(encrypted, tls), host="localhost")
    assert "AES" in cipher(encrypted, elsewhere, streamed=streamed)


@pytest.mark.parametrize("streamed", [False, True])
def test_this_machine_is_not_encrypted_without_tls(
    encrypted: PrivateMariaDB, streamed: bool
) -> None:
    """PyMySQL alone would encrypt, since the server can."""
    login = {"user": encrypted.user, "password": Secret(encrypted.password)}
    for host in (encrypted.host, "localhost"):
        plain = structs.replace(source(encrypted, None), host=host, **login)
        assert cipher(encrypted, plain, streamed=streamed) == ""
        with connect(plain) as session:
            assert session.encryption == Encryption()


UNTRUSTED = "has a certificate that cannot be verified: self-signed certificate"
OTHER_NAME = "has a certificate that is not for 'localhost'"
REFUSED = {
    "other authority": (TlsSettings(ca="other ca.pem"), "127.0.0.1", UNTRUSTED, UNVERIFIED),
    "the same, by name": (TlsSettings(ca="other ca.pem"), "localhost", UNTRUSTED, UNVERIFIED),
    "other ca": (TlsSettings(ca="other ca.pem", verify="ca"), "127.0.0.1", UNTRUSTED, UNVERIFIED),
    "system": (TlsSettings(), "127.0.0.1", UNTRUSTED, UNVERIFIED),
    "name": (TlsSettings(ca="ca.pem"), "localhost", OTHER_NAME, NAMES),
}


def untrusted(name: str, server: PrivateMariaDB, certificates: Path) -> MysqlConnection:
    tls, host, _, _ = REFUSED[name]
    ca = tls.ca and str(certificates / tls.ca)
    return structs.replace(source(server, structs.replace(tls, ca=ca)), host=host)


@pytest.mark.follows_hint("set the CA that issued it with 'tls: {ca: FILE}'")
@pytest.mark.follows_hint("set 'host' to a name in the certificate")
@pytest.mark.parametrize("name", REFUSED)
def test_a_server_that_is_not_trusted(
    encrypted: PrivateMariaDB, certificates: Path, name: str
) -> None:
    """What the hints name is accepted: see the tests above."""
    wrong, (_, _, says, hint) = untrusted(name, encrypted, certificates), REFUSED[name]
    with pytest.raises(FloodmarkError, match=says) as caught, connect(wrong):
        pass
    assert caught.value.hint == hint
    with pytest.raises(FloodmarkError, match=rf"reading .* failed: .*{says}") as caught:
        cipher(encrypted, wrong, streamed=True)
    assert caught.value.hint == hint


def without_tls(server: PrivateMariaDB, tls: Tls | None) -> MysqlConnection:
    login = {"user": server.user, "password": Secret(server.password)}
    return structs.replace(source(server, tls), **login)


@pytest.mark.enough_on("mariadb")
@pytest.mark.follows_hint("set up TLS on the server, or set 'tls: off'")
def test_a_server_without_encryption_is_refused(unencrypted: PrivateMariaDB) -> None:
    wrong = without_tls(unencrypted, TlsSettings(verify="none"))
    with pytest.raises(FloodmarkError, match="offers no encryption") as caught, connect(wrong):
        pass
    assert caught.value.hint == NO_TLS
    with pytest.raises(FloodmarkError, match=r"reading .* failed: .* offers no encryption"):
        cipher(unencrypted, wrong, streamed=True)
    with connect(without_tls(unencrypted, "off")) as session:
        assert session.encryption == Encryption()


# connectorx tries for half a minute, so these wait together, each in a process as a worker is. What
# they read comes pickled.

READ = """
import pickle, sys
from floodmark.worker.mysql_reader import read_batches
from floodmark.errors import FloodmarkError
job, window = pickle.load(sys.stdin.buffer)
try:
    print([batch.to_pydict() for batch in read_batches(job, window)])
except FloodmarkError as error:
    print("refused:", error.message, "hint:", error.hint)
"""


class Reading:
    """connectorx running in a process of its own."""

    def __init__(self, job: ExtractionJob, **environment: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", READ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **environment},
        )
        assert self._process.stdin
        with self._process.stdin as stdin:
            stdin.write(pickle.dumps((job, WINDOW)))

    def said(self) -> str:
        assert self._process.stdout
        with self._process.stdout as stdout, self._process:
            return stdout.read().decode()


@pytest.mark.enough_on("mariadb")
def test_connectorx_refuses_the_same(
    encrypted: PrivateMariaDB, unencrypted: PrivateMariaDB, certificates: Path
) -> None:
    def start(connection: MysqlConnection, **environment: str) -> Reading:
        return Reading(job_for(encrypted, connection), **environment)

    # What the system trusts does not count beside `ca`, as it does not for PyMySQL.
    system = {"SSL_CERT_FILE": str(certificates / "ca.pem")}
    other = untrusted("other ca", encrypted, certificates)
    names = ("other authority", "system", "name")
    with Impostor("mysql_clear_password") as clear:
        readings = {
            **{name: start(untrusted(name, encrypted, certificates)) for name in names},
            "beside the system": start(other, **system),
            "by the system": start(source(encrypted, TlsSettings()), **system),
            "no TLS": start(without_tls(unencrypted, TlsSettings(verify="none"))),
            "asked": start(structs.replace(source(encrypted, "off"), port=clear.port)),
        }
        said = {name: reading.said() for name, reading in readings.items()}
    assert "AES" in said["by the system"]
    for name in names:
        assert REFUSED[name][2] in said[name]
        assert REFUSED[name][3] in said[name]
    assert UNTRUSTED in said["beside the system"]
    assert "offers no encryption" in said["no TLS"]
    assert "refused:" in said["asked"]
    assert len(clear.heard) >= 1
    assert PASSWORD.encode() not in b"".join(clear.heard)


@pytest.mark.enough_on("mariadb")
@pytest.mark.follows_hint("the password is only sent to a verified server")
@pytest.mark.parametrize("plugin", ["mysql_clear_password", "dialog", "mysql_old_password"])
@pytest.mark.parametrize("tls", [None, "off"])
def test_password_is_not_sent_to_an_unverified_server(
    server: PrivateMariaDB, plugin: str, tls: Tls | None
) -> None:
    """With a certificate that is verified the plugin is not refused: see the unit tests."""
    with Impostor(plugin, b"\x02Password: ") as fake:
        asked = structs.replace(source(server, tls), port=fake.port)
        refused = pytest.raises(FloodmarkError, match="asks for the password in clear")
        with refused as caught, connect(asked):
            pass
        assert "tls: {ca: FILE}" in str(caught.value.hint)
        with pytest.raises(FloodmarkError, match="asks for the password in clear"):
            cipher(server, asked, streamed=True)
    assert len(fake.heard) >= 2
    assert PASSWORD.encode() not in b"".join(fake.heard)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_file_that_a_worker_lacks(encrypted: PrivateMariaDB, streamed: bool) -> None:
    wrong = source(encrypted, TlsSettings(ca="/nowhere/ca.pem"))
    with pytest.raises(ConfigError) as caught:
        cipher(encrypted, wrong, streamed=streamed)
    message = f"tls.ca: /nowhere/ca.pem cannot be used on {socket.gethostname()}"
    assert caught.value.message.startswith(message)
    assert "workers need it at the same path" in str(caught.value.hint)


def test_a_certificate_file_that_is_none(encrypted: PrivateMariaDB, certificates: Path) -> None:
    for name in ("missing.pem", "names"):
        wrong = source(encrypted, TlsSettings(ca=str(certificates / name)))
        with pytest.raises(ConfigError, match=r"tls\.ca"), connect(wrong):
            pass


def test_what_a_server_offers_is_found_without_a_login(
    encrypted: PrivateMariaDB, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = structs.replace(source(encrypted, None), user="nobody")
    found = find_offer(stranger)
    assert found.tls == TlsSettings(verify="none")
    assert found.reason.startswith("self-signed certificate")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "ca.pem"))
    assert find_offer(stranger) == Offer(TlsSettings())
    assert find_offer(structs.replace(stranger, host="localhost")).tls == found.tls
    with Impostor("mysql_clear_password") as fake:
        offered = find_offer(structs.replace(stranger, port=fake.port))
    assert offered == Offer("off", "the server offers no encryption")


def test_a_sync(
    pipeline: Callable[..., Pipeline], encrypted: PrivateMariaDB, certificates: Path
) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"}, server=encrypted)
    ask_once(it, "CREATE TABLE t (id INT PRIMARY KEY, update_at DATETIME, KEY (update_at, id))")
    ask_once(it, f"INSERT INTO t SELECT seq, '2025-06-01' FROM {numbers(1, 100)}")
    (it.folder / "ca.pem").write_bytes((certificates / "ca.pem").read_bytes())
    login = {"host": encrypted.host, "port": encrypted.port, "user": USER, "password": PASSWORD}
    secure = replace(it, source={**login, "tls": {"ca": "ca.pem"}}).write_config()
    assert secure.synced()["rows"] == 100
    checks = secure.call("doctor", "--json").value
    found = [check["finding"] for check in checks if check["subject"].startswith("source ")]
    assert "TLSv1.3, certificate verified for 127.0.0.1" in found
    tunnel = {"host": "127.0.0.1", "user": "u", "key": "k"}
    replace(it, source={**login, "tls": {}, "tunnel": tunnel}).write_config()
    ended = it.sync()
    assert ended.code == 2
    assert "the host name cannot be verified through a tunnel" in ended.err
