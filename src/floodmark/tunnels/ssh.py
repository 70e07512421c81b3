"""The OpenSSH client: its command line for a tunnel, and its error messages."""

import os
import shutil

from msgspec import structs

from floodmark.config.models import Tunnelled, TunnelSettings
from floodmark.errors import ConfigError, FloodmarkError
from floodmark.subprocesses import LOOPBACK

# Printed by the client once it has logged in and listens. Probing the port would connect to the
# server behind it, and MySQL blocks a host after some connections without a login.
READY = b"ready\n"

_SSH_PORT = 22
_CONNECT_SECONDS = 10
_UNANSWERED_KEEPALIVES = 3


def located(tunnel: TunnelSettings, folder: str) -> TunnelSettings:
    """Make the paths of a tunnel absolute; ConfigError if its key cannot be read."""
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
    """Return the command that forwards a local port; ConfigError if there is no client.

    It works the same for every user and from cron: without the client's configuration files, agent
    and prompts. Unknown host keys are not accepted.
    """
    program = shutil.which("ssh")
    if program is None:
        raise ConfigError(
            "a tunnel needs ssh, which is not installed",
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
    """Return whether the client failed because the local port is in use."""
    return "cannot listen to port" in messages


def login_failure(messages: str, tunnel: TunnelSettings) -> FloodmarkError:
    """Translate the client's messages to an error.

    By text, as the exit code is always 255.
    """
    place = f"SSH server {tunnel.host}:{tunnel.port}"
    known_hosts = tunnel.known_hosts or "~/.ssh/known_hosts"
    if _line(messages, "HOST IDENTIFICATION HAS CHANGED"):
        name = tunnel.host if tunnel.port == _SSH_PORT else f"[{tunnel.host}]:{tunnel.port}"
        return FloodmarkError(
            f"the host key of {place} has changed:"
            f" {_line(messages, 'Offending ') or 'see known_hosts'}",
            hint="this may be an attack; only if the server was really reinstalled:"
            f" ssh-keygen -R '{name}' -f {known_hosts}",
        )
    if line := _line(messages, "host key is known", "Host key verification failed"):
        return ConfigError(
            f"the host key of {place} is not known: {line}",
            hint=f"ssh-keyscan -p {tunnel.port} {tunnel.host} >> {known_hosts}"
            " and compare the key with that of the server's administrator",
        )
    if line := _line(messages, "Load key "):
        readable_by_others = "bad permissions" in line
        return ConfigError(
            f"tunnel.key cannot be used: {line}",
            hint=f"chmod 600 {tunnel.key}" if readable_by_others else "set 'key' to a private key",
        )
    if line := _line(messages, "Permission denied"):
        return ConfigError(
            f"{place} rejected user {tunnel.user!r} with key {tunnel.key}: {line}",
            hint="check 'user' and 'key' of the tunnel, that the user's authorized_keys has the"
            " public key, and that the private key has no passphrase",
        )
    if line := _line(messages, "Could not resolve hostname"):
        return FloodmarkError(f"{place}: {line}", hint="check 'host' of the tunnel")
    if line := _line(messages, "connect to host"):
        return FloodmarkError(
            f"{place} does not answer: {line}",
            hint="check 'host' and 'port' of the tunnel, and that the server is running",
        )
    return FloodmarkError(f"{place}: {last_line(messages) or 'ssh exited without a message'}")


def forward_failure(
    messages: str, connection: Tunnelled, tunnel: TunnelSettings
) -> FloodmarkError | None:
    """Translate the client's messages about failed forwarding; None if there are none."""
    line = _line(messages, "open failed: ")
    if line is None:
        return None
    hint = "check 'host' and 'port' of the connection, as seen from the SSH server"
    if "prohibited" in line:
        hint = "allow forwarding on the SSH server: AllowTcpForwarding, PermitOpen"
    return FloodmarkError(
        f"SSH server {tunnel.host}:{tunnel.port} cannot reach"
        f" {connection.host}:{connection.port}: {line.partition('open failed: ')[2]}",
        hint=hint,
    )


def last_line(messages: str) -> str:
    """Return the last message of the client, or an empty string."""
    return next((line.strip() for line in reversed(messages.splitlines()) if line.strip()), "")


def _line(messages: str, *texts: str) -> str | None:
    lines = (line.strip() for line in messages.splitlines())
    return next((line for line in lines if any(text in line for text in texts)), None)


def _absolute(path: str, folder: str) -> str:
    return os.path.abspath(os.path.join(folder, os.path.expanduser(path)))


def _quoted(path: str) -> str:
    """Quote a path for an option of the client, with doubled percent signs."""
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'
