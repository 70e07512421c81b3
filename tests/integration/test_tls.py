"""Encrypted connections to MySQL, with a private authority: both readers, and what is refused."""

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from floodmark.config.models import LakeSettings, MysqlConnection, TlsSettings
from floodmark.config.secret import Secret
from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.engine.job import ExtractionJob
from floodmark.engine.reading import read_batches
from floodmark.errors import ConfigError, FloodmarkError
from floodmark.model.cursor import Cursor
from floodmark.model.extraction import ColumnPlan, Window
from floodmark.model.position import START
from floodmark.model.table import TableName
from floodmark.sources.connection import connect
from pipelines import Pipeline, ask_once, numbers
from servers.mysql import PrivateMySQL

USER, PASSWORD = "secure", "only encrypted"


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def authority(folder: Path, name: str) -> None:
    openssl(
        folder,
        *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"),
        *("-keyout", f"{name}.key", "-out", f"{name}.pem"),
    )


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    authority(folder, "ca")
    authority(folder, "other ca")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1")
    openssl(
        folder,
        *("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=db"),
        *("-keyout", "server.key", "-out", "server.csr"),
    )
    openssl(
        folder,
        *("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", "2"),
        *("-CAcreateserial", "-extfile", "names", "-out", "server.pem"),
    )
    return folder


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


def source(server: PrivateMariaDB, tls: TlsSettings | None) -> MysqlConnection:
    return MysqlConnection(
        host=server.host, port=server.port, user=USER, password=Secret(PASSWORD), tls=tls
    )


def cipher(server: PrivateMariaDB, connection: MysqlConnection, *, streamed: bool) -> str:
    """What a worker's connection is encrypted with."""
    place = "performance_schema" if isinstance(server, PrivateMySQL) else "information_schema"
    job = ExtractionJob(
        table=TableName("S", "a", "b"),
        session_id="20250809_200001_abcd",
        sequence=1,
        source=connection,
        relation=f"{place}.session_status",
        columns=(ColumnPlan(name="v", expression="VARIABLE_VALUE", arrow="string", nullable=True),),
        cursor=Cursor(kind="none"),
        lake=LakeSettings(url="/nowhere"),
    )
    window = Window(
        part=1,
        start=START,
        end=START,
        predicate="VARIABLE_NAME = 'Ssl_cipher'",
        streamed=streamed,
    )
    (batch,) = read_batches(job, window)
    return str(batch.column(0)[0].as_py())


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("verify", ["identity", "ca", "none"])
def test_both_readers_are_encrypted(
    encrypted: PrivateMariaDB, certificates: Path, verify: Any, streamed: bool
) -> None:
    ca = None if verify == "none" else str(certificates / "ca.pem")
    connection = source(encrypted, TlsSettings(ca=ca, verify=verify))
    assert "AES" in cipher(encrypted, connection, streamed=streamed)


@pytest.mark.parametrize(
    ("tls", "host"),
    [
        (TlsSettings(ca="other ca.pem"), "127.0.0.1"),
        (TlsSettings(ca="other ca.pem", verify="ca"), "127.0.0.1"),
        (TlsSettings(), "127.0.0.1"),  # the system does not know the authority
        (TlsSettings(ca="ca.pem"), "localhost"),  # a name that the certificate does not hold
    ],
    ids=["identity", "ca", "system", "name"],
)
def test_a_server_that_is_not_trusted(
    encrypted: PrivateMariaDB, certificates: Path, tls: TlsSettings, host: str
) -> None:
    ca = tls.ca and str(certificates / tls.ca)
    wrong = structs.replace(source(encrypted, structs.replace(tls, ca=ca)), host=host)
    refused = pytest.raises(FloodmarkError, match="cannot be reached encrypted")
    with refused as caught, connect(wrong):
        pass
    assert "'tls'" in (caught.value.hint or "")
    with pytest.raises(FloodmarkError, match=r"reading .* failed"):
        cipher(encrypted, wrong, streamed=True)


@pytest.mark.enough_on("mariadb")  # it takes half a minute
@pytest.mark.parametrize("streamed", [False, True])
def test_a_server_without_encryption_is_refused(
    unencrypted: PrivateMariaDB, streamed: bool
) -> None:
    plain = MysqlConnection(
        host=unencrypted.host,
        port=unencrypted.port,
        user=unencrypted.user,
        password=Secret(unencrypted.password),
        tls=TlsSettings(verify="none"),
    )
    with pytest.raises(FloodmarkError, match="cannot be reached encrypted"), connect(plain):
        pass
    with pytest.raises(FloodmarkError, match=r"reading .* failed"):
        cipher(unencrypted, plain, streamed=streamed)


def test_a_certificate_file_that_is_none(encrypted: PrivateMariaDB, certificates: Path) -> None:
    for name in ("missing.pem", "names"):
        wrong = source(encrypted, TlsSettings(ca=str(certificates / name)))
        with pytest.raises(ConfigError, match=r"tls\.ca"), connect(wrong):
            pass


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
    tunnel = {"host": "127.0.0.1", "user": "u", "key": "k"}
    replace(it, source={**login, "tls": {}, "tunnel": tunnel}).write_config()
    ended = it.sync()
    assert ended.code == 2
    assert "through a tunnel the server has another name" in ended.err
