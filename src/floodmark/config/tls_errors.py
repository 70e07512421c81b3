"""Why an encrypted connection was refused, in the same sentences for every client."""

import re

from floodmark.config.models import RedshiftConnection
from floodmark.config.tls import Server, wanted_tls
from floodmark.errors import FloodmarkError

# What PyMySQL, connectorx, libpq and redshift_connector say.
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

NO_TLS = "set up TLS on the server, or write 'tls: off' if all who can read the network may read it"
OTHER_NAME = (
    "let 'host' be a name that the certificate has; 'tls: {ca: FILE, verify: ca}' does not compare"
)
UNVERIFIED = (
    "name the authority that issued it with 'tls: {ca: FILE}'; to do with less, write it down:"
    " 'tls: {verify: none}' encrypts without knowing the server, 'tls: off' does not encrypt"
)
UNVERIFIED_REDSHIFT = (
    "add the authority that issued it to the system's, or name a file of them all in SSL_CERT_FILE"
)


def tls_failure(place: str, connection: Server, reason: str) -> FloodmarkError | None:
    """What a client's words mean if they are about TLS; `place` is the server as users know it."""
    if _NO_TLS.search(reason):
        return _failure(f"{place} offers no encryption", connection, NO_TLS)
    if _OTHER_NAME.search(reason):
        message = f"{place} has a certificate that is not for {connection.host!r}"
        redshift = isinstance(connection, RedshiftConnection)
        hint = OTHER_NAME.replace("ca: FILE, ", "") if redshift else OTHER_NAME
        return _failure(message, connection, hint)
    if _UNVERIFIED.search(reason):
        redshift = isinstance(connection, RedshiftConnection)
        found = _REASON.search(reason)
        why = next(filter(None, found.groups()), reason) if found else reason
        message = f"{place} has a certificate that cannot be verified: {why}"
        return _failure(message, connection, UNVERIFIED_REDSHIFT if redshift else UNVERIFIED)
    if _OTHERWISE.search(reason):
        return FloodmarkError(
            f"{place} cannot be reached encrypted: {reason}",
            hint="check 'tls' of the connection, and the server's certificate",
        )
    return None


def _failure(message: str, connection: Server, hint: str) -> FloodmarkError:
    if wanted_tls(connection) is None:
        message += "; without 'tls:' a host other than this machine must be verified"
    return FloodmarkError(message, hint=hint)
