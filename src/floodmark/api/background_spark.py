"""The background Spark sessions that `spark: {keep_warm: …}` started."""

import os

from floodmark.errors import FloodmarkError
from floodmark.spark.background.control import Server, servers, stop_servers
from floodmark.spark.background.place import Unavailable

__all__ = ["Server", "running_servers", "stop_running_servers"]


def running_servers() -> list[Server]:
    """Return those of this user on this machine, of all configurations."""
    try:
        return servers(os.environ)
    except Unavailable as error:
        raise FloodmarkError(str(error)) from error


def stop_running_servers(*, now: bool) -> list[Server]:
    """End them after the commands that use them, or `now`; return them as they were."""
    try:
        return stop_servers(os.environ, now=now)
    except Unavailable as error:
        raise FloodmarkError(str(error)) from error
