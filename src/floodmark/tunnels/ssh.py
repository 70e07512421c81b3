"""The OpenSSH client: how it is called for a tunnel, and what its messages mean."""

import os
import shutil

from msgspec import structs

from floodmark.config.models import Tunnelled, TunnelSettings
from floodmark.errors import ConfigError, FloodmarkError
from floodmark.subprocesses import LOOPBACK

# What the client prints once it has logged in and listens. To ask by connecting to the port would
# reach the server behind, and MySQL blocks a host after some connections without a login.
READY = b"ready\n"

_SSH_PORT = 22
_CONNECT_SECONDS = 10
_UNANSWERED_KEEPALIVES = 3


def located(tunnel: TunnelSettings, folder: str) -> TunnelSettings:
    """The same tunnel with absolute paths; ConfigError if its key is not there to be read."""
    key = _absolute(tunnel.key, folder)
    try:
        with open(key, "rb"):
            pass
    except OSError as error:
        raise ConfigError(f"tunnel.key: cannot read {key}: {error.strerror}") from error
    known = tunnel.known_hosts
    return structs.replace(
        tunnel, key=key, known_hosts=None if known is None else _absolute(known, folder)
    )


def ssh_command(connection: Tunnelled, tunnel: TunnelSettings, local_port: int) -> list[str]:
    """The command that forwards a local port; ConfigError if there is no client.

    It does the same for every user and from cron: no configuration file of the client is read, no
    agent is asked, nobody is prompted, and a host key that is not known yet is not accepted.
    """
    program = shutil.which("ssh")
    if program is None:
        raise ConfigError(
            "a tunnel needs the program ssh, which is not on this machine",
            hint="install the OpenSSH client, on Debian: apt install openssh-client",
        )
    options = {
        "BatchMode": "yes",
        "ConnectTimeout": str(_CONNECT_SECONDS),
        "ExitOnForwardFailure": "yes",
        "IdentitiesOnly": "yes",
        "IdentityAgent": "none",
        "IdentityFile": _quoted(tunnel.key),
        "LocalCommand": f"echo {READY.decode().strip()}",
        "PermitLocalCommand": "yes",
        "PreferredAuthentications": "publickey",
        "ServerAliveCountMax": str(_UNANSWERED_KEEPALIVES),
        "ServerAliveInterval": str(tunnel.keepalive_seconds),
        "StrictHostKeyChecking": "yes",
        "UpdateHostKeys": "no",
    }
    if tunnel.known_hosts is not None:
        options["GlobalKnownHostsFile"] = "none"
        options["UserKnownHostsFile"] = _quoted(tunnel.known_hosts)
    forward = f"{LOOPBACK}:{local_port}:[{connection.host}]:{connection.port}"
    return [
        program,
        *("-N", "-T", "-F", "none"),
        *(f"-o{name}={value}" for name, value in options.items()),
        *("-p", str(tunnel.port), "-l", tunnel.user, "-L", forward),
        *("--", tunnel.host),
    ]


def port_was_taken(messages: str) -> bool:
    """Whether the client ended because somebody else listens on the local port."""
    return "cannot listen to port" in messages


def login_failure(messages: str, tunnel: TunnelSettings) -> FloodmarkError:
    """What the client said before it ended, as an error.

    Told apart by text, for want of anything else: the exit code is always 255.
    """
    place = f"SSH server {tunnel.host}:{tunnel.port}"
    known_hosts = tunnel.known_hosts or "~/.ssh/known_hosts"
    if _line(messages, "HOST IDENTIFICATION HAS CHANGED"):
        name = tunnel.host if tunnel.port == _SSH_PORT else f"[{tunnel.host}]:{tunnel.port}"
        return FloodmarkError(
            f"{place} shows another host key than the known one:"
            f" {_line(messages, 'Offending ') or 'host key has changed'}",
            hint="somebody may sit in between; only if the server was really set up anew:"
            f" ssh-keygen -R '{name}' -f {known_hosts}",
        )
    if line := _line(messages, "host key is known", "Host key verification failed"):
        return ConfigError(
            f"{place} is not known yet: {line}",
            hint=f"ssh-keyscan -p {tunnel.port} {tunnel.host} >> {known_hosts}"
            " and compare the key with what the server's owner says",
        )
    if line := _line(messages, "Load key "):
        readable_by_others = "bad permissions" in line
        return ConfigError(
            f"tunnel.key cannot be used: {line}",
            hint=f"chmod 600 {tunnel.key}" if readable_by_others else "name a private key",
        )
    if line := _line(messages, "Permission denied"):
        return ConfigError(
            f"{place} refuses user {tunnel.user!r} with the key {tunnel.key}: {line}",
            hint="check 'user' and 'key' of the tunnel, that the user's authorized_keys has the"
            " public key, and that the private key has no passphrase",
        )
    if line := _line(messages, "Could not resolve hostname"):
        return FloodmarkError(f"{place}: {line}", hint="check 'host' of the tunnel")
    if line := _line(messages, "connect to host"):
        return FloodmarkError(
            f"{place} does not answer: {line}",
            hint="check 'host' and 'port' of the tunnel, and that the server runs",
        )
    return FloodmarkError(f"{place}: {last_line(messages) or 'ssh ended without a word'}")


def forward_failure(
    messages: str, connection: Tunnelled, tunnel: TunnelSettings
) -> FloodmarkError | None:
    """What the client said about connections that went no further, if it said something."""
    line = _line(messages, "open failed: ")
    if line is None:
        return None
    hint = "check 'host' and 'port' of the connection, as the SSH server sees them"
    if "prohibited" in line:
        hint = "allow forwarding on the SSH server: AllowTcpForwarding, PermitOpen"
    return FloodmarkError(
        f"SSH server {tunnel.host}:{tunnel.port} cannot reach"
        f" {connection.host}:{connection.port}: {line.partition('open failed: ')[2]}",
        hint=hint,
    )


def last_line(messages: str) -> str:
    """The last thing that the client said, or nothing."""
    return next((line.strip() for line in reversed(messages.splitlines()) if line.strip()), "")


def _line(messages: str, *texts: str) -> str | None:
    lines = (line.strip() for line in messages.splitlines())
    return next((line for line in lines if any(text in line for text in texts)), None)


def _absolute(path: str, folder: str) -> str:
    return os.path.abspath(os.path.join(folder, os.path.expanduser(path)))


def _quoted(path: str) -> str:
    """A path as the client wants it in an option: in quotes, and percent signs doubled."""
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
