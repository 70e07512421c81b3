"""Translate TLS errors of all clients to the same messages."""

import re

from floodmark.config.models import RedshiftConnection
from floodmark.config.tls import Server, configured_tls
from floodmark.errors import FloodmarkError

# Messages of PyMySQL, connectorx, libpq and redshift_connector.
_NO_TLS = re.compile(
    r"server doesn't support it|server does not support (?:SSL|TLS)|Server refuses SSL"
    r"|but server does not have this capability",
    re.IGNORECASE,
)
_OTHER_NAME = re.compile(
    r"(?:hostname|host name|IP address) mismatch|certificate is not valid for"
    r"|does not match host name",
    re.IGNORECASE,
)
_UNVERIFIED = re.compile(r"certificate verify failed|CERTIFICATE_VERIFY_FAILED", re.IGNORECASE)
_OTHERWISE = re.compile(r"TlsError|SSL error|\[SSL|SSL SYSCALL|SSL_|tlsv1 alert|SSL routines")
_REASON = re.compile(r"certificate verify failed: (.*?)(?: \(_ssl\.c.*)?$|\(([^()]*)\) \}$")
_WRONG_TIME = re.compile(r"certificate (has expired|is not yet valid)", re.IGNORECASE)

NO_TLS = "set up TLS on the server, or set 'tls: off' if the network is trusted"
OTHER_NAME = (
    "set 'host' to a name in the certificate; 'tls: {ca: FILE, verify: ca}' does not check the name"
)
UNVERIFIED = (
    "set the CA that issued it with 'tls: {ca: FILE}'; less secure: 'tls: {verify: none}' encrypts"
    " without verifying, 'tls: off' does not encrypt"
)
WRONG_TIME = "renew the server's certificate, or correct the clock of this machine"
UNVERIFIED_REDSHIFT = (
    "add the CA that issued it to the system's certificates, or set SSL_CERT_FILE to a file with"
    " all of them"
)


def tls_failure(place: str, connection: Server, reason: str) -> FloodmarkError | None:
    """Translate a client's message if it is about TLS; `place` describes the server."""
    if _NO_TLS.search(reason):
        return _failure(f"{place} offers no encryption", connection, NO_TLS)
    if _OTHER_NAME.search(reason):
        message = f"{place} has a certificate that is not for {connection.host!r}"
        redshift = isinstance(connection, RedshiftConnection)
        hint = OTHER_NAME.replace("ca: FILE, ", "") if redshift else OTHER_NAME
        return _failure(message, connection, hint)
    if found := _WRONG_TIME.search(reason):
        message = f"{place} has a certificate that {found[1].lower()}"
        return _failure(message, connection, WRONG_TIME)
    if _UNVERIFIED.search(reason):
        redshift = isinstance(connection, RedshiftConnection)
        found = _REASON.search(reason)
        why = next(filter(None, found.groups()), reason) if found else reason
        message = f"{place} has a certificate that cannot be verified: {why}"
        return _failure(message, connection, UNVERIFIED_REDSHIFT if redshift else UNVERIFIED)
    if _OTHERWISE.search(reason):
        return FloodmarkError(
            f"{place} cannot be reached over TLS: {reason}",
            hint="check 'tls' of the connection, and the server's certificate",
        )
    return None


def _failure(message: str, connection: Server, hint: str) -> FloodmarkError:
    if configured_tls(connection) is None:
        message += "; by default a remote host must be verified"
    return FloodmarkError(message, hint=hint)
