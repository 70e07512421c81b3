"""Check what an open connection encrypts and verifies."""

from floodmark.checks.check import Check
from floodmark.config.tls import Server, configured_tls, is_local
from floodmark.model.encryption import Encryption

_VERIFY = "verify the server: 'tls: {ca: FILE}' with its CA certificate"


def check_encryption(subject: str, configured: Server, found: Encryption) -> Check:
    """Report the encryption of a connection; `configured` explains a missing one."""
    if found.protocol is None:
        return _plain(subject, configured)
    if found.verified == "identity":
        finding = f"{found.protocol}, certificate verified for {configured.host}"
        return Check(subject=subject, finding=finding)
    if found.verified == "ca":
        finding = f"{found.protocol}, certificate verified, host name not checked"
        return Check(subject=subject, finding=finding)
    finding = f"{found.protocol}, but any certificate is accepted: tls: {{verify: none}}"
    return _remark(subject, configured, finding, _VERIFY)


def _plain(subject: str, configured: Server) -> Check:
    tunnel = getattr(configured, "tunnel", None)
    if tunnel is not None:
        return Check(
            subject=subject,
            finding=f"encrypted by SSH up to {tunnel.host}, not encrypted beyond",
        )
    if configured_tls(configured) != "off":
        return Check(subject=subject, finding="not encrypted: loopback")
    hint = "remove 'tls: off' to encrypt and verify"
    return _remark(subject, configured, "not encrypted: tls: off", hint)


def _remark(subject: str, configured: Server, finding: str, hint: str) -> Check:
    """Report a weakness, as a note unless the host is this machine."""
    if is_local(configured.host):
        return Check(subject=subject, finding=finding)
    return Check(subject=subject, state="note", finding=finding, hint=hint)
