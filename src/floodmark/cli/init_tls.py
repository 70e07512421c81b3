"""How `floodmark init` finds out whether MySQL can be reached encrypted."""

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
    """How to reach MySQL: verified, or with less if somebody says so before a password is sent."""
    ca, wanted = answers.given("tls_ca"), answers.given("tls")
    if ca is not None:
        if wanted in ("encrypted", "off"):
            raise UsageError(f"--tls-ca has no part in --tls {wanted}", hint="give one of them")
        return TlsSettings(ca=os.path.abspath(ca))
    if wanted is not None:
        less: dict[str, Tls] = {"encrypted": TlsSettings(verify="none"), "off": "off"}
        return less.get(wanted, TlsSettings())
    if is_local(source.host):
        return None
    from floodmark.api.discovery import find_offer

    try:
        offer = find_offer(source)
    except OSError:
        return TlsSettings()  # the login will say what is wrong
    if not offer.reason:
        return offer.tls
    way = "not encrypted" if offer.tls == "off" else "encrypted, but not verified"
    message = f"MySQL at {source.host}:{source.port} can only be reached {way}: {offer.reason}"
    if not answers.asking:
        name = "off" if offer.tls == "off" else "encrypted"
        raise ConfigError(
            message, hint=f"--tls-ca FILE verifies by other certificates; --tls {name} does without"
        )
    log.write(Notice("warning", message, hint="--tls-ca FILE verifies by other certificates"))
    click.confirm(f"Send the password {way}?", default=False, err=True, abort=True)
    return offer.tls


def protection(tls: Tls) -> str:
    """What the file says of the connection to MySQL, for people."""
    if tls == "off":
        return "not encrypted, as the file says: tls: off"
    if tls.verify == "none":
        return "encrypted but not verified, as the file says: tls: {verify: none}"
    return "encrypted, and its certificate verified"
