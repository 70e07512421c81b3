"""`floodmark spark`: inspect and stop the Spark in the background."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from floodmark.cli.app import print_result, shared_options
from floodmark.cli.lazy import LazyGroup
from floodmark.cli.log import Log
from floodmark.errors import FloodmarkError
from floodmark.model.formatting import counted
from floodmark.model.timestamps import plain

if TYPE_CHECKING:
    from floodmark.api.background_spark import Server

_NONE = "no Spark runs in the background"


@click.group(
    cls=LazyGroup,
    lazy={
        "status": ("floodmark.cli.spark:status", "Show background Spark sessions."),
        "stop": ("floodmark.cli.spark:stop", "Stop background Spark sessions."),
    },
)
def spark() -> None:
    """Inspect and stop Spark sessions that 'spark: {keep_warm: …}' keeps in the background."""


@click.command()
@shared_options
def status(log: Log, *, as_json: bool, **_: Any) -> None:  # noqa: ARG001
    """Show this user's background Spark sessions, of all configurations."""
    from floodmark.api.background_spark import running_servers

    found = running_servers()
    print_result("\n".join(map(_show, found)) or _NONE, found, as_json=as_json)


@click.command()
@click.option("--now", is_flag=True, help="Do not wait for commands that use it: they fail.")
@shared_options
def stop(log: Log, *, now: bool, as_json: bool, **_: Any) -> None:  # noqa: ARG001
    """Stop this user's background Spark sessions.

    Each ends when the commands that use it have ended. New commands start another one.
    """
    from floodmark.api.background_spark import stop_running_servers

    found = stop_running_servers(now=now)
    lines = [_stopped(server, now=now) for server in found if not server.problem]
    print_result("\n".join(lines) or _NONE, found, as_json=as_json)
    for server in found:
        if server.problem:
            raise FloodmarkError(
                f"the Spark in the background, process {server.pid}, does not answer:"
                f" {server.problem}",
                hint=f"end it with 'kill {server.pid}'; its log is {server.log}",
            )


def _show(server: "Server") -> str:
    state = server.state
    if state is None:
        if server.problem:
            return f"process {server.pid}: does not answer: {server.problem}"
        return "starting"
    since = plain(datetime.fromtimestamp(state.started_at, UTC).replace(microsecond=0))
    use = (
        f"used by {counted(state.commands, 'command')}, {counted(state.jobs, 'job')} running"
        if state.commands or state.jobs
        else f"idle for {state.idle_seconds:.0f} s, ends after {state.keep_seconds:.0f} s"
    )
    return (
        f"process {state.pid}: since {since} UTC, {state.master}, {use},"
        f" {counted(state.jobs_done, 'job')} done, {state.memory_bytes / 1e6:,.0f} MB"
    )


def _stopped(server: "Server", *, now: bool) -> str:
    state = server.state
    if state is None:
        return "starting; it ends by itself"
    if state.commands and not now:
        return f"process {state.pid} ends after {counted(state.commands, 'command')}"
    return f"process {state.pid} ends"
