"""Refuse to send passwords and rows through an insecure Spark."""

from collections.abc import Callable
from ipaddress import ip_address
from urllib.parse import urlsplit

from floodmark.errors import FloodmarkError

_SECRETS = ("secret", "password", "token", "credential", "accesskey", "access.key")
_ALLOW = "'spark: {allow_insecure: true}' turns this check off"


def is_secret(option: str) -> bool:
    """Whether the value of a Spark option must not be shown; as in Spark's own redaction."""
    return any(part in option.lower() for part in _SECRETS)


def check_cluster(option: Callable[[str], str | None]) -> None:
    """Raise FloodmarkError unless a cluster's processes authenticate and encrypt.

    `option` returns the effective value, whether we set it or the cluster's own files did.
    """
    lacking = []
    if option("spark.authenticate") != "true":
        lacking.append("spark.authenticate")
    ways = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")
    if all(option(way) != "true" for way in ways):
        lacking.append(ways[0])
    if lacking:
        missing = ", ".join(f"{name}: 'true'" for name in lacking)
        raise FloodmarkError(
            f"this cluster runs without {' and '.join(lacking)}: passwords and rows would pass"
            " through a network where others can read them",
            hint=f"set {missing} and the cluster's spark.authenticate.secret in"
            f" 'spark: {{options: …}}'; {_ALLOW}",
        )


def check_one_process(option: Callable[[str], str | None]) -> None:
    """Raise FloodmarkError unless a local session of the caller authenticates its clients."""
    if option("spark.authenticate") != "true":
        raise FloodmarkError(
            "the Spark session that was passed in runs without spark.authenticate: other users of"
            " this machine could fetch passwords from it",
            hint="build the session with .config('spark.authenticate', 'true'); " + _ALLOW,
        )


def check_attached_server(host: str, *, encrypted: bool) -> None:
    """Raise FloodmarkError unless the caller's Spark Connect session is local or uses TLS."""
    if not encrypted and not _is_loopback(host):
        raise FloodmarkError(
            f"the Spark Connect session to {host} is not known to use TLS: passwords and rows would"
            " pass through a network where others can read them",
            hint=f"connect it with ';use_ssl=true'; {_ALLOW}",
        )


def check_server(remote: str) -> None:
    """Raise FloodmarkError unless a Spark Connect server is on this machine or uses TLS."""
    place = urlsplit(remote)
    parameters = dict(p.partition("=")[::2] for p in place.path.strip("/;").split(";"))
    encrypted = parameters.get("use_ssl", "").lower() == "true" or "token" in parameters
    if place.scheme == "sc" and not encrypted and not _is_loopback(place.hostname or ""):
        raise FloodmarkError(
            f"Spark Connect at {place.hostname} is reached without TLS: passwords and rows would"
            " pass through a network where others can read them",
            hint=f"write 'spark.remote' as sc://{place.netloc}/;use_ssl=true; {_ALLOW}",
        )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
