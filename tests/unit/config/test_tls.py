"""The one decision about encryption: every kind of connection, setting and host."""

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from floodmark.checks.encryption import check_encryption
from floodmark.config.client import connectorx_options, libpq_options, pymysql_options
from floodmark.config.models import (
    MysqlConnection,
    PostgresConnection,
    RedshiftConnection,
    TlsSettings,
    TunnelSettings,
)
from floodmark.config.tls import Server, is_local, tls_for
from floodmark.config.tls_errors import tls_failure
from floodmark.model.encryption import Encryption
from floodmark.worker.mysql_reader import connectorx_url

IDENTITY, CA, NONE = (TlsSettings(verify=verify) for verify in ("identity", "ca", "none"))
TUNNEL = TunnelSettings(host="bastion", user="u", key="k")
REMOTE = ["db.example.com", "10.0.0.5", "203.0.113.7", "2001:db8::1", "0.0.0.0"]
LOCAL = ["127.0.0.1", "127.8.9.1", "::1", "[::1]", "::ffff:127.0.0.1", "localhost", "LocalHost."]


def addresses(name: str) -> list[str]:
    return ["127.0.0.1", "::1"] if "localhost" in name.lower() else ["127.0.0.1"]


@pytest.mark.parametrize("host", LOCAL)
def test_hosts_that_are_this_machine(host: str) -> None:
    assert is_local(host, addresses)


@pytest.mark.parametrize(
    "host",
    [
        *REMOTE,
        "alias-of-this-machine",  # a name server could resolve it to another machine
        "127.0.0.1.example.com",
        "localhost.example.com",
        "127.1",
        "",
        "127.0.0.1,db.example.com",
        "/run/postgresql,db.example.com",
    ],
)
def test_hosts_that_may_be_others(host: str) -> None:
    assert not is_local(host, addresses)


def test_a_localhost_that_leads_elsewhere() -> None:
    assert not is_local("localhost", lambda _: ["127.0.0.1", "10.0.0.5"])
    assert not is_local("localhost", lambda _: [])
    assert is_local("localhost")  # as it is here


def test_sockets_are_this_machine() -> None:
    assert is_local("/run/postgresql,127.0.0.1", addresses)


def connection(kind: str, host: str, **more: Any) -> Server:
    if kind == "mysql":
        return MysqlConnection(host=host, user="u", **more)
    if kind == "postgres":
        return PostgresConnection(host=host, user="u", database="d", **more)
    return RedshiftConnection(host=host, user="u", database="d", **more)


@pytest.mark.parametrize("kind", ["mysql", "postgres", "redshift"])
@pytest.mark.parametrize("host", [*LOCAL, *REMOTE])
def test_what_is_written_counts_for_every_host(kind: str, host: str) -> None:
    for tls in (IDENTITY, CA, NONE, TlsSettings(ca="f")):
        assert tls_for(connection(kind, host, tls=tls), addresses) == tls
    assert tls_for(connection(kind, host, tls="off"), addresses) is None


@pytest.mark.parametrize("kind", ["mysql", "postgres"])
@pytest.mark.parametrize("host", [*LOCAL, *REMOTE])
def test_the_default(kind: str, host: str) -> None:
    assert tls_for(connection(kind, host), addresses) == (IDENTITY if host in REMOTE else None)


@pytest.mark.parametrize("host", [*LOCAL, *REMOTE])
def test_through_a_tunnel(host: str) -> None:
    """The SSH server's loopback or network comes after it, and the name is not that of the host."""
    assert tls_for(connection("mysql", host, tunnel=TUNNEL), addresses) is None
    assert tls_for(connection("redshift", host, tunnel=TUNNEL), addresses) == CA
    for kind in ("mysql", "redshift"):
        assert tls_for(connection(kind, host, tunnel=TUNNEL, tls=CA), addresses) == CA
        assert tls_for(connection(kind, host, tunnel=TUNNEL, tls="off"), addresses) is None


@pytest.mark.parametrize("host", [LOCAL[0], REMOTE[0]])
def test_redshift_is_verified_wherever_it_is_and_in_its_older_spelling(host: str) -> None:
    assert tls_for(connection("redshift", host)) == IDENTITY
    for older, tls in ((True, IDENTITY), (False, None), ("verify-ca", CA)):
        assert tls_for(connection("redshift", host, ssl=older)) == tls
    assert tls_for(connection("redshift", host, ssl=True, tunnel=TUNNEL)) == CA


MODES = {"identity": "VERIFY_IDENTITY", "ca": "VERIFY_CA", "none": "REQUIRED"}


@pytest.mark.parametrize("host", ["127.0.0.1", "db.example.com"])
@pytest.mark.parametrize("tls", [None, "off", IDENTITY, CA, NONE])
def test_both_readers_of_mysql_do_the_same(host: str, tls: Any) -> None:
    source = MysqlConnection(host=host, user="u", tls=tls)
    decided = tls_for(source)
    python, (rust, trusted) = pymysql_options(source), connectorx_options(source)
    url = connectorx_url(source).reveal()
    assert python["ssl_disabled"] == (decided is None) == ("ssl-mode" not in url)
    verified = decided is not None and decided.verify != "none"
    assert ("enable_cleartext_plugin" in rust) == verified
    assert ("mysql_clear_password" not in python["auth_plugin_map"]) == verified
    assert ("dialog" not in python["auth_plugin_map"]) == verified
    assert (trusted is not None) == verified
    if decided is None:
        assert python["ssl"] is None
        return
    assert rust["ssl-mode"] == MODES[decided.verify]
    assert f"ssl-mode={MODES[decided.verify]}" in url
    assert python["ssl"].check_hostname == (decided.verify == "identity")
    assert (python["ssl"].verify_mode == ssl.CERT_REQUIRED) == verified


@pytest.mark.parametrize(
    ("tls", "host", "mode"),
    [
        (None, "127.0.0.1", "disable"),
        (None, "/run/postgresql", "disable"),
        (None, "db.example.com", "verify-full"),
        ("off", "db.example.com", "disable"),
        (IDENTITY, "127.0.0.1", "verify-full"),
        (CA, "127.0.0.1", "verify-ca"),
        (NONE, "127.0.0.1", "require"),
    ],
)
def test_what_libpq_is_given(tls: Any, host: str, mode: str) -> None:
    options = libpq_options(PostgresConnection(host=host, user="u", database="d", tls=tls))
    assert options["sslmode"] == mode
    assert ("require_auth" in options) == (mode in ("disable", "require"))
    if mode.startswith("verify"):
        assert options["sslrootcert"] == ssl.get_default_verify_paths().cafile


@pytest.mark.parametrize(
    ("reason", "says", "hint"),
    [
        ("SSL is required but the server doesn't support it", "offers no encryption", "tls: off"),
        ("server does not support SSL, but SSL was required", "offers no encryption", "tls: off"),
        (
            (
                "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: Hostname mismatch, "
                "certificate is not valid for 'db'. (_ssl.c:1016)"
            ),
            "a certificate that is not for 'db'",
            "verify: ca",
        ),
        (
            'server certificate for "a" (and 1 other name) does not match host name "db"',
            "a certificate that is not for 'db'",
            "verify: ca",
        ),
        (
            "[SSL] certificate verify failed: self-signed certificate (_ssl.c:1016)",
            "cannot be verified: self-signed certificate",
            "tls: {ca: FILE}",
        ),
        (
            "TlsError { certificate verify failed:ssl/statem.c:2123: (self-signed certificate) }",
            "cannot be verified: self-signed certificate",
            "tls: {verify: none}",
        ),
        (
            "[SSL] certificate verify failed: certificate has expired (_ssl.c:1016)",
            "a certificate that has expired",
            "renew the server's certificate",
        ),
        (
            "TlsError { certificate verify failed:ssl/statem.c:2123: (certificate has expired) }",
            "a certificate that has expired",
            "renew the server's certificate",
        ),
        (
            "[SSL] certificate verify failed: certificate is not yet valid (_ssl.c:1016)",
            "a certificate that is not yet valid",
            "clock of this machine",
        ),
    ],
)
def test_what_a_refusal_says(reason: str, says: str, hint: str) -> None:
    given = connection("mysql", "db")
    failure = tls_failure("MySQL at db:3306", given, reason)
    assert failure
    assert failure.message.startswith("MySQL at db:3306 ")
    assert f"{says}; by default a remote host must" in failure.message
    assert hint in str(failure.hint)
    explicit = tls_failure("MySQL at db:3306", structs.replace(given, tls=IDENTITY), reason)
    assert explicit
    assert "by default" not in explicit.message
    assert tls_failure("x", given, "Connection refused") is None


# What contradicts itself


BOTH = "{type: %s, host: h, database: d, user: u%s}"
LoadText = Callable[[str], Server]


@pytest.fixture
def load(tmp_path: Path) -> LoadText:
    from floodmark.config.loading import load_config

    def load_text(text: str) -> Server:
        path = tmp_path / "floodmark.yml"
        path.write_text(f"lake: ./l\nconnections: {{A: {text}}}")
        return load_config(str(path), {}).connection("A")  # type: ignore[return-value]

    return load_text


@pytest.mark.parametrize("written", ["off", "no", "'off'", "false"])
@pytest.mark.parametrize("kind", ["postgres", "redshift"])
def test_off_in_the_file(load: LoadText, kind: str, written: str) -> None:
    found = load(BOTH % (kind, f", tls: {written}"))
    assert found.tls == "off"
    assert tls_for(found) is None


def test_the_file_of_certificates_is_beside_the_configuration(
    load: LoadText, tmp_path: Path
) -> None:
    found = load(BOTH % ("postgres", ", tls: {ca: ca.pem}"))
    assert found.tls == TlsSettings(ca=str(tmp_path / "ca.pem"))


@pytest.mark.parametrize(
    ("kind", "more", "says"),
    [
        ("postgres", "tls: {ca: f, verify: none}", "'ca' has no effect"),
        ("postgres", "tls: maybe", "connections.A.tls"),
        ("redshift", "tls: {}, ssl: true", "both 'tls' and 'ssl'"),
        ("redshift", "tls: {ca: f}", "connections.A.tls.ca: not supported"),
        ("redshift", "tls: {verify: none}", "connections.A.tls.verify: not supported"),
        (
            "redshift",
            "tls: {}, tunnel: {host: b, user: u, key: k}",
            "the host name cannot be verified through a tunnel",
        ),
    ],
)
def test_what_cannot_be(load: LoadText, kind: str, more: str, says: str) -> None:
    from floodmark.errors import ConfigError

    with pytest.raises(ConfigError) as caught:
        load(BOTH % (kind, f", {more}"))
    assert says in caught.value.message


@pytest.mark.follows_hint("write 'tls: {}' to encrypt")
@pytest.mark.parametrize("written", ["on", "true", "yes", "'on'", "'True'", "1"])
@pytest.mark.parametrize("kind", ["postgres", "redshift"])
def test_a_tls_that_is_only_on(load: LoadText, kind: str, written: str) -> None:
    from floodmark.errors import ConfigError

    with pytest.raises(ConfigError) as caught:
        load(BOTH % (kind, f", tls: {written}"))
    assert caught.value.message == "connections.A.tls: expected keys and values, or 'off'"
    assert caught.value.hint == "write 'tls: {}' to encrypt"
    assert load(BOTH % (kind, ", tls: {}")).tls == IDENTITY


# What `doctor` says


@pytest.mark.follows_hint("remove 'tls: off'")
@pytest.mark.parametrize(
    ("host", "more", "found", "state", "finding"),
    [
        ("127.0.0.1", {}, Encryption(), "ok", "not encrypted: loopback"),
        ("127.0.0.1", {"tls": "off"}, Encryption(), "ok", "not encrypted: tls: off"),
        ("db.example", {"tls": "off"}, Encryption(), "note", "not encrypted: tls: off"),
        (
            "db.example",
            {"tunnel": TUNNEL},
            Encryption(),
            "ok",
            "encrypted by SSH up to bastion, not encrypted beyond",
        ),
        (
            "db.example",
            {},
            Encryption(protocol="TLSv1.3", verified="identity"),
            "ok",
            "TLSv1.3, certificate verified for db.example",
        ),
        (
            "db.example",
            {"tls": CA},
            Encryption(protocol="TLSv1.2", verified="ca"),
            "ok",
            "TLSv1.2, certificate verified, host name not checked",
        ),
        (
            "db.example",
            {"tls": NONE},
            Encryption(protocol="TLSv1.3"),
            "note",
            "TLSv1.3, but any certificate is accepted: tls: {verify: none}",
        ),
    ],
)
def test_what_doctor_says(
    host: str, more: dict[str, Any], found: Encryption, state: str, finding: str
) -> None:
    """Without 'tls: off' such a host is verified: see the default above."""
    check = check_encryption("source A", connection("mysql", host, **more), found)
    assert (check.state, check.finding) == (state, finding)
    assert (check.hint is not None) == (state == "note")
