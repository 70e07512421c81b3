"""Choose the TLS settings of a new configuration."""

import os
from typing import TYPE_CHECKING

import click

from floodmark.cli.log import Log
from floodmark.config.models import MysqlConnection, Tls, TlsSettings
from floodmark.config.tls import is_local
from floodmark.errors import ConfigError, UsageError
from floodmark.model.notice import Notice

if TYPE_CHECKING:
    from floodmark.cli.init import Answers


def choose_tls(log: Log, answers: "Answers", source: MysqlConnection) -> Tls | None:
    """Return verified TLS, or less if the user agrees before a password is sent."""
    ca, mode = answers.given("tls_ca"), answers.given("tls")
    if ca is not None:
        if mode in ("encrypted", "off"):
            raise UsageError(f"--tls-ca has no effect with --tls {mode}", hint="remove one of them")
        return TlsSettings(ca=os.path.abspath(ca))
    if mode is not None:
        less: dict[str, Tls] = {"encrypted": TlsSettings(verify="none"), "off": "off"}
        return less.get(mode, TlsSettings())
    if is_local(source.host):
        return None
    from floodmark.api.discovery import find_offer

    try:
        offer = find_offer(source)
    except OSError:
        return TlsSettings()  # the login will report what is wrong
    if not offer.reason:
        return offer.tls
    way = "not encrypted" if offer.tls == "off" else "encrypted, but not verified"
    message = f"MySQL at {source.host}:{source.port} can only be reached {way}: {offer.reason}"
    if not answers.asking:
        name = "off" if offer.tls == "off" else "encrypted"
        raise ConfigError(
            message, hint=f"verify it with --tls-ca FILE, or accept it with --tls {name}"
        )
    log.write(Notice("warning", message, hint="verify it with --tls-ca FILE"))
    click.confirm(f"Send the password {way}?", default=False, err=True, abort=True)
    return offer.tls


def protection(tls: Tls) -> str:
    """Describe the TLS settings that were written."""
    if tls == "off":
        return "not encrypted (tls: off)"
    if tls.verify == "none":
        return "encrypted but not verified (tls: {verify: none})"
    return "encrypted, certificate verified"
