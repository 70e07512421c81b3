"""TLS in Python: trusted certificates, contexts, and the encryption of an open socket."""

import socket
import ssl

from floodmark.config.models import TlsSettings
from floodmark.errors import ConfigError
from floodmark.model.encryption import Encryption


def trusted_file(tls: TlsSettings) -> str | None:
    """Return the file of trusted certificates; None if the system only has a folder of them.

    ConfigError if `ca` cannot be used on this machine.
    """
    if tls.ca is None:
        return ssl.get_default_verify_paths().cafile
    _load(tls.ca)
    return tls.ca


def tls_context(tls: TlsSettings | None) -> ssl.SSLContext | None:
    """Return the SSL context of a Python client; None for no encryption."""
    if tls is None:
        return None
    context = _load(tls.ca)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # MySQL's generated certificates fail it
    context.check_hostname = tls.verify == "identity"
    if tls.verify == "none":
        context.verify_mode = ssl.CERT_NONE
    return context


def encryption_of(connected: object) -> Encryption:
    """Return the encryption of an open socket."""
    if not isinstance(connected, ssl.SSLSocket):
        return Encryption()
    context = connected.context
    if context.verify_mode != ssl.CERT_REQUIRED:
        return Encryption(protocol=connected.version())
    return Encryption(
        protocol=connected.version(), verified="identity" if context.check_hostname else "ca"
    )


def _load(ca: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        missing = isinstance(error, FileNotFoundError)
        raise ConfigError(
            f"tls.ca: {ca} cannot be used on {socket.gethostname()}: {error}",
            hint="copy the file there: workers need it at the same path"
            if missing
            else "it must be a PEM file",
        ) from error
