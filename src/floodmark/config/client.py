"""Connection options for each client library, so that all of them connect alike."""

from typing import Any

from floodmark.config.models import MysqlConnection, PostgresConnection
from floodmark.config.tls import may_send_cleartext, tls_for
from floodmark.config.tls_context import tls_context, trusted_file
from floodmark.errors import FloodmarkError

# Authentication plugins that send the password in clear text; `dialog` is used for PAM.
_CLEARTEXT = ("mysql_clear_password", "dialog")
_BROKEN = ("mysql_old_password",)
_SSL_MODES = {"identity": "VERIFY_IDENTITY", "ca": "VERIFY_CA", "none": "REQUIRED"}
_LIBPQ_MODES = {"identity": "verify-full", "ca": "verify-ca", "none": "require"}


class _Refusal:
    """A PyMySQL authentication plugin that refuses to send the password."""

    def __init__(self, connection: Any) -> None:
        self._place = f"MySQL at {connection.host}:{connection.port}"

    def authenticate(self, _packet: object) -> None:
        """Raise instead of sending the password."""
        raise FloodmarkError(
            f"{self._place} asks for the password in clear text, which was not sent",
            hint="the password is only sent to a verified server: 'tls: {ca: FILE}'",
        )


def pymysql_options(connection: MysqlConnection) -> dict[str, Any]:
    """Return the connection options for PyMySQL."""
    password = connection.password.reveal() if connection.password else ""
    tls = tls_for(connection)
    refused = _BROKEN if may_send_cleartext(tls) else _BROKEN + _CLEARTEXT
    return {
        "host": connection.host,
        "port": connection.port,
        "user": connection.user,
        "password": password.encode(),  # PyMySQL would encode text as Latin-1
        "charset": "utf8mb4",
        "autocommit": True,
        "ssl": tls_context(tls),
        "ssl_disabled": tls is None,  # else it encrypts if the server can, unverified
        "auth_plugin_map": dict.fromkeys(refused, _Refusal),
    }


def connectorx_options(connection: MysqlConnection) -> tuple[dict[str, str], str | None]:
    """Return the URL options for connectorx, and the file of trusted certificates."""
    tls = tls_for(connection)
    if tls is None:
        return {}, None
    options = {"ssl-mode": _SSL_MODES[tls.verify]}
    if may_send_cleartext(tls):
        options["enable_cleartext_plugin"] = "true"
    return options, None if tls.verify == "none" else trusted_file(tls)


def libpq_options(connection: PostgresConnection) -> dict[str, Any]:
    """Return the connection options for libpq, overriding its environment variables."""
    tls = tls_for(connection)
    # An address or Kerberos from the environment would bypass the TLS settings of the host.
    options = {"hostaddr": "", "gssencmode": "disable"}
    if not may_send_cleartext(tls):
        options["require_auth"] = "!password"
    if tls is None:
        return {**options, "sslmode": "disable"}
    # Not libpq's `system`: the library in psycopg's wheel looks in a folder that does not exist.
    trusted = "" if tls.verify == "none" else trusted_file(tls) or "system"
    return {**options, "sslmode": _LIBPQ_MODES[tls.verify], "sslrootcert": trusted}
