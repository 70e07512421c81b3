"""Encrypted connections, as the configuration wants them."""

import ssl

from floodmark.config.models import TlsSettings
from floodmark.errors import ConfigError


def tls_context(tls: TlsSettings | None) -> ssl.SSLContext | None:
    """Return what a Python client encrypts with; None for no encryption."""
    if tls is None:
        return None
    try:
        context = ssl.create_default_context(cafile=tls.ca)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"tls.ca: {tls.ca} cannot be used: {error}", hint="it must be a file in PEM"
        ) from error
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # MySQL's own certificates do not pass that
    context.check_hostname = tls.verify == "identity"
    if tls.verify == "none":
        context.verify_mode = ssl.CERT_NONE
    return context
