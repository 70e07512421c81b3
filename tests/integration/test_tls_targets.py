"""Encrypted connections to warehouses: what is accepted, and what is refused."""

import base64
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from floodmark.config.logins import LOGINS
from floodmark.config.models import LakeSettings, PostgresConnection, Tls, TlsSettings
from floodmark.config.secret import Secret
from floodmark.config.tls_errors import NO_TLS, OTHER_NAME, UNVERIFIED
from floodmark.errors import ConfigError, FloodmarkError
from floodmark.model.encryption import Encryption
from floodmark.model.load import TargetTable
from floodmark.storage.memory import MemoryObjectStore
from floodmark.warehouse.lake_reader import LakeFiles
from floodmark.warehouse.postgres.parallel_copy import SharedTable, copy_part
from floodmark.warehouse.postgres.target import PostgresTarget
from floodmark.warehouse.redshift.session import RedshiftSession
from servers.certificates import make_certificates
from servers.ministack import Ministack
from servers.postgres import PrivatePostgres
from servers.redshift import RedshiftStandIn

pytestmark = [  # Redshift's driver leaves its sockets behind when it is refused.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:ssl:DeprecationWarning"),
]

RULES = """
hostnossl all only_encrypted all reject
host all in_clear_text all password
"""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def encrypted(postgres: PrivatePostgres, certificates: Path) -> Iterator[PrivatePostgres]:
    """The server with a certificate, which it keeps in its own folder and for itself."""
    (folder,) = postgres.execute("SHOW data_directory")[0]
    for name in ("server.pem", "server.key"):
        content = base64.b64encode((certificates / name).read_bytes()).decode()
        run = f"umask 077; base64 -d > {folder}/{name}"
        postgres.execute(f"COPY (SELECT '{content}') TO PROGRAM '{run}'")
        key = "ssl_key_file" if name.endswith("key") else "ssl_cert_file"
        postgres.execute(f"ALTER SYSTEM SET {key} = '{name}'")
    hba = base64.b64encode(RULES.encode()).decode()
    keep = "cp pg_hba.conf kept; (base64 -d; cat kept) > pg_hba.conf"
    postgres.execute(f"COPY (SELECT '{hba}') TO PROGRAM 'cd {folder}; {keep}'")
    for user in ("only_encrypted", "in_clear_text"):
        postgres.execute(f"CREATE USER {user} PASSWORD '{postgres.password}'")
    reload(postgres, "ALTER SYSTEM SET ssl = on")
    yield postgres
    postgres.execute(
        f"COPY (SELECT 1) TO PROGRAM 'cd {folder}; cat > /dev/null; mv kept pg_hba.conf'"
    )
    reload(postgres, "ALTER SYSTEM RESET ALL")
    postgres.execute("DROP USER only_encrypted, in_clear_text")


def reload(server: PrivatePostgres, setting: str) -> None:
    server.execute(setting)
    server.execute("SELECT pg_reload_conf()")
    wanted = "on" if "= on" in setting else "off"
    while server.execute("SHOW ssl") != [(wanted,)]:
        pass


def target(server: PrivatePostgres, tls: Tls | None, **changes: Any) -> PostgresConnection:
    made = PostgresConnection(
        host=server.host,
        port=server.port,
        database=server.database,
        user=server.user,
        password=Secret(server.password),
        tls=tls,
    )
    return structs.replace(made, **changes)


def open_target(connection: PostgresConnection) -> PostgresTarget:
    return PostgresTarget(connection, LakeFiles(MemoryObjectStore(), None))


def stage(connection: PostgresConnection) -> None:
    """What a worker does first, with what was sent to it."""
    table = TargetTable(name="t", columns=(), primary_key=(), version=None)
    lake = LakeSettings(url="/nowhere")
    shared = SharedTable(
        settings=connection,
        lake=lake,
        table=table,
        kinds=(),
        token="0" * 16,
        paths=("p",),
        parts=((0,),),
    )
    copy_part(shared, 0)


@pytest.mark.parametrize("verify", ["identity", "ca", "none"])
def test_postgresql_is_encrypted(
    encrypted: PrivatePostgres, certificates: Path, verify: Any
) -> None:
    ca = None if verify == "none" else str(certificates / "ca.pem")
    hosts = ["127.0.0.1"] if verify == "identity" else ["127.0.0.1", "localhost"]
    for host in hosts:
        with open_target(target(encrypted, TlsSettings(ca=ca, verify=verify), host=host)) as it:
            assert it.encryption() == Encryption(protocol="TLSv1.3", verified=verify)


@pytest.mark.parametrize("tls", [None, "off"])
def test_postgresql_on_this_machine_is_not(encrypted: PrivatePostgres, tls: Tls | None) -> None:
    with open_target(target(encrypted, tls)) as it:
        assert it.encryption() == Encryption()


UNTRUSTED = {
    "identity": (TlsSettings(ca="other ca.pem"), "127.0.0.1", "cannot be verified", UNVERIFIED),
    "ca": (TlsSettings(ca="other ca.pem", verify="ca"), "127.0.0.1", "cannot be", UNVERIFIED),
    "system": (TlsSettings(), "127.0.0.1", "cannot be verified", UNVERIFIED),
    "name": (TlsSettings(ca="ca.pem"), "localhost", "not for 'localhost'", OTHER_NAME),
}


@pytest.mark.parametrize("case", UNTRUSTED)
def test_a_postgresql_that_is_not_trusted(
    encrypted: PrivatePostgres, certificates: Path, case: str
) -> None:
    tls, host, says, hint = UNTRUSTED[case]
    ca = tls.ca and str(certificates / tls.ca)
    wrong = target(encrypted, structs.replace(tls, ca=ca), host=host)
    for use in (open_target, stage):
        with pytest.raises(FloodmarkError, match=f"has a certificate that .*{says}") as caught:
            use(wrong)
        assert caught.value.hint == hint


def test_the_system_is_trusted(
    encrypted: PrivatePostgres, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "ca.pem"))
    with open_target(target(encrypted, TlsSettings())) as it:
        assert it.encryption().verified == "identity"


def test_the_environment_changes_nothing(
    encrypted: PrivatePostgres, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "PGSSLMODE": "disable",
        "PGSSLROOTCERT": str(certificates / "other ca.pem"),
        "PGHOSTADDR": "192.0.2.1",
    }.items():
        monkeypatch.setenv(name, value)
    with open_target(target(encrypted, TlsSettings(ca=str(certificates / "ca.pem")))) as it:
        assert it.encryption().verified == "identity"


def test_a_postgresql_without_encryption(redshift: RedshiftStandIn) -> None:
    """The stand-in offers none, and speaks the same protocol."""
    for tls in (TlsSettings(), TlsSettings(verify="none")):
        wrong = PostgresConnection(
            host=redshift.host, port=redshift.port, database="d", user="u", tls=tls
        )
        for use in (open_target, stage):
            with pytest.raises(FloodmarkError, match="offers no encryption") as caught:
                use(wrong)
            assert caught.value.hint == NO_TLS


@pytest.mark.follows_hint("write 'tls: {verify: none}', or better 'tls: {ca: FILE}'")
def test_a_postgresql_that_wants_encryption(encrypted: PrivatePostgres, certificates: Path) -> None:
    plain = target(encrypted, None, user="only_encrypted")
    with pytest.raises(FloodmarkError, match="no encryption") as caught:
        open_target(plain)
    assert "tls: {ca: FILE}" in str(caught.value.hint)
    LOGINS.forget()
    for tls in (TlsSettings(verify="none"), TlsSettings(ca=str(certificates / "ca.pem"))):
        open_target(structs.replace(plain, tls=tls)).close()


def test_postgresql_gets_no_password_in_clear_text(
    encrypted: PrivatePostgres, certificates: Path
) -> None:
    asked = target(encrypted, None, user="in_clear_text")
    for tls in (None, TlsSettings(verify="none")):
        with pytest.raises(FloodmarkError, match="cleartext password") as caught:
            open_target(structs.replace(asked, tls=tls))
        assert "tls: {ca: FILE}" in str(caught.value.hint)
    open_target(structs.replace(asked, tls=TlsSettings(ca=str(certificates / "ca.pem")))).close()


def test_a_file_that_a_worker_lacks(encrypted: PrivatePostgres) -> None:
    with pytest.raises(ConfigError, match=r"tls\.ca: /nowhere/ca\.pem cannot be used on"):
        stage(target(encrypted, TlsSettings(ca="/nowhere/ca.pem")))


# Redshift


@pytest.fixture(scope="module")
def standing_in(
    postgres: PrivatePostgres, ministack: Ministack, certificates: Path
) -> Iterator[RedshiftStandIn]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    with RedshiftStandIn(postgres, ministack, tls=context) as server:
        yield server


@pytest.mark.parametrize("tls", [None, TlsSettings(), TlsSettings(verify="ca")])
def test_a_redshift_that_is_not_trusted(
    standing_in: RedshiftStandIn, redshift: RedshiftStandIn, tls: Tls | None
) -> None:
    with pytest.raises(FloodmarkError, match="certificate that cannot be verified") as caught:
        RedshiftSession(standing_in.connection(ssl=None, tls=tls))
    assert "SSL_CERT_FILE" in str(caught.value.hint)
    with pytest.raises(FloodmarkError, match="offers no encryption"):
        RedshiftSession(redshift.connection(ssl=None, tls=tls))


def test_redshift_is_verified(
    standing_in: RedshiftStandIn, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "ca.pem"))

    with pytest.raises(FloodmarkError, match="certificate that is not for 'localhost'"):
        RedshiftSession(standing_in.connection(ssl=None, host="localhost"))
    accepted: list[tuple[dict[str, Any], Any]] = [
        ({}, "identity"),
        ({"tls": TlsSettings()}, "identity"),
        ({"tls": TlsSettings(verify="ca"), "host": "localhost"}, "ca"),
        ({"ssl": "verify-ca", "host": "localhost"}, "ca"),
    ]
    for changes, verified in accepted:
        session = RedshiftSession(standing_in.connection(**{"ssl": None, **changes}))
        assert session.encryption == Encryption(protocol="TLSv1.3", verified=verified)
        session.close()
