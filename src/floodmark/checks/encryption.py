"""Connections: what is encrypted and verified, as the open connection says itself."""

from floodmark.checks.check import Check
from floodmark.config.tls import Server, is_local, wanted_tls
from floodmark.model.encryption import Encryption

_VERIFY = "write 'tls: {ca: FILE}' with the authority's certificate, which verifies the server"


def check_encryption(subject: str, configured: Server, found: Encryption) -> Check:
    """Say what protects a connection; `configured` says why where nothing does."""
    if found.protocol is None:
        return _plain(subject, configured)
    if found.verified == "identity":
        finding = f"{found.protocol}, certificate verified for {configured.host}"
        return Check(subject=subject, finding=finding)
    if found.verified == "ca":
        finding = f"{found.protocol}, certificate verified, its host name not compared"
        return Check(subject=subject, finding=finding)
    finding = f"{found.protocol}, but any certificate is accepted: tls: {{verify: none}}"
    return _remark(subject, configured, finding, _VERIFY)


def _plain(subject: str, configured: Server) -> Check:
    tunnel = getattr(configured, "tunnel", None)
    if tunnel is not None:
        return Check(
            subject=subject,
            finding=f"encrypted by SSH up to {tunnel.host}, not encrypted from there on",
        )
    if wanted_tls(configured) != "off":
        return Check(subject=subject, finding="not encrypted: loopback")
    hint = "remove 'tls: off': the certificate is then verified"
    return _remark(subject, configured, "not encrypted: tls: off", hint)


def _remark(subject: str, configured: Server, finding: str, hint: str) -> Check:
    """Worth knowing where others can come in between."""
    if is_local(configured.host):
        return Check(subject=subject, finding=finding)
    return Check(subject=subject, state="note", finding=finding, hint=hint)
