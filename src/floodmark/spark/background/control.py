"""Inspect and stop this user's background Spark sessions."""

import os
from collections.abc import Iterator, Mapping
from contextlib import closing

from msgspec import Struct

from floodmark.spark.background.place import (
    NotListening,
    Place,
    Unavailable,
    open_place,
    place_path,
)
from floodmark.spark.background.wire import Ask, Channel, Lost, State, Stop, connect

_ANSWER_SECONDS = 10.0


class Server(Struct, frozen=True, kw_only=True):
    """A background Spark; without a `state` it starts, or does not answer (`problem`).

    `pid` is its process, if the kernel tells.
    """

    key: str
    log: str
    state: State | None = None
    pid: int | None = None
    problem: str | None = None


def servers(environment: Mapping[str, str]) -> list[Server]:
    """Return all background Spark sessions of this user on this machine."""
    return list(_each(environment, Ask()))


def stop_servers(environment: Mapping[str, str], *, now: bool) -> list[Server]:
    """Tell all of them to end: after the commands that use them, or `now`."""
    return list(_each(environment, Stop(now)))


def _each(environment: Mapping[str, str], request: Ask | Stop) -> Iterator[Server]:
    path = place_path(environment)
    if not os.path.exists(path):
        return
    with open_place(path) as place:
        for key in place.server_keys():
            lock = place.lock(key)
            if lock is None:
                yield _asked(place, key, request)
            else:  # nobody holds it: its server was killed
                place.withdraw(key, lock)
                os.close(lock)


def _asked(place: Place, key: str, request: Ask | Stop) -> Server:
    server = Server(key=key, log=f"{place.path}/{key}.log")
    pid = None
    try:
        with closing(connect(place.reach(f"{key}.sock"))) as connection:
            pid = Channel.peer_of(connection)
            with closing(Channel(connection, place.read_secret(key), serving=False)) as channel:
                channel.send(request)
                state = channel.receive(State, _ANSWER_SECONDS)
    except Lost as lost:
        return Server(key=key, log=server.log, pid=pid, problem=str(lost))
    except NotListening:
        return server
    except Unavailable as error:
        return Server(key=key, log=server.log, pid=pid, problem=str(error))
    return Server(key=key, log=server.log, pid=state.pid, state=state)
