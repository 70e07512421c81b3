"""Who may see the status page and the metrics.

On a loopback address anyone on the machine may. A page of another site could then reach it with a
name that it lets resolve to 127.0.0.1 (DNS rebinding), so the Host header must be a loopback name.
Everywhere else a token is required, which such a page does not have: as the password of HTTP Basic
authentication, for which browsers ask by themselves, or as a Bearer token.
"""

import base64
import binascii
import hmac
import socket
from collections.abc import Mapping
from http import HTTPStatus
from ipaddress import ip_address
from urllib.parse import urlsplit

from floodmark.cli.http_server import Request, Response, failure
from floodmark.errors import UsageError

VARIABLE = "FLOODMARK_SERVE_TOKEN"
SHORTEST = 16
_CHALLENGE = {"WWW-Authenticate": 'Basic realm="Floodmark: the token is the password"'}


class Access:
    """Decides whether a request may be answered."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    def refuse(self, request: Request) -> Response | None:
        """Return why not, or None."""
        if self._token is None:
            if _is_loopback_name(request.headers.get("host", "")):
                return None
            return failure(
                HTTPStatus.MISDIRECTED_REQUEST,
                "without a token only requests to localhost, 127.0.0.1 or [::1] are answered",
            )
        if self.knows_token(request):
            return None
        return failure(HTTPStatus.UNAUTHORIZED, "a token is required", _CHALLENGE)

    def knows_token(self, request: Request) -> bool:
        """Return whether there is no token, or the request has it."""
        if self._token is None:
            return True
        given = _given(request.headers.get("authorization", ""))
        return hmac.compare_digest(given, self._token.encode())


def find_address(host: str, option: str = "--host") -> str:
    """Return the address to bind to; UsageError if the name is unknown."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"{option} {host!r} is not an address of this machine") from error
    addresses = [str(entry[4][0]) for entry in found]
    return next((address for address in addresses if ":" not in address), addresses[0])


def is_loopback(address: str) -> bool:
    """Return whether only this machine reaches an address."""
    return ip_address(address.partition("%")[0]).is_loopback


def find_token(
    address: str,
    path: str | None,
    environment: Mapping[str, str],
    *,
    variable: str = VARIABLE,
    option: str = "--token-file",
) -> str | None:
    """Return the token; UsageError if it is too short, or if there is none where it must be."""
    source = f"token file {path}" if path else variable
    if path is not None:
        try:
            with open(path, encoding="utf-8") as file:
                token = file.read().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8 text"
            raise UsageError(f"cannot read {source}: {reason}") from error
    else:
        token = environment.get(variable, "").strip()
        if not token:
            if is_loopback(address):
                return None
            raise UsageError(
                f"{address} is not a loopback address: a token is required",
                hint=f"write one to a file and name it with {option}, or set {variable}",
            )
    if len(token) < SHORTEST or not token.isascii() or not token.isprintable():
        raise UsageError(
            f"{source}: a token has at least {SHORTEST} printable ASCII characters",
            hint="generate one with 'openssl rand -hex 24'",
        )
    return token


def _given(header: str) -> bytes:
    scheme, _, value = header.partition(" ")
    value = value.strip()
    if scheme.lower() == "bearer":
        return value.encode()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return b""


def _is_loopback_name(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False
