"""Tests that need processes of their own: started quickly, and killed at chosen points."""

import os
import signal
from collections.abc import Callable, Iterator
from functools import cache
from multiprocessing import get_context
from multiprocessing.context import ForkServerContext
from multiprocessing.forkserver import ensure_running
from multiprocessing.process import BaseProcess
from typing import Any
from unittest.mock import patch

from floodmark.storage import local
from floodmark.storage.objects import ObjectInfo, ObjectStore, StoredObject
from scenarios import KEYS, STRAY_KEYS

TESTS = os.path.dirname(__file__)
# Imported once, and not again by each process. One list for all: only the last one given counts.
PRELOADED = [
    "pytest",
    "pipelines",
    "sources",
    "connectorx",
    "floodmark.api.syncing",
    "floodmark.embedded.process",
    "floodmark.worker.s3_writer",
    "floodmark.state.conditional_writes",
    "floodmark.state.legacy_watermarks",
    "floodmark.state.operator_changes",
    "floodmark.storage.memory",
    "floodmark.sync.load",
    "floodmark.warehouse.duckdb",
    "floodmark.warehouse.postgres.parallel_copy",
    "floodmark.warehouse.redshift.target",
    "multiprocessing.connection",
    "psycopg.types.json",
    "runpy",
    "unittest.mock",
    "urllib.request",
]

LOCAL_STEPS = ("open", "makedirs", "fsync", "link", "replace", "unlink", "close")


@cache
def context() -> ForkServerContext:
    """What starts processes; it can import the modules of the tests, as its server can."""
    found = get_context("forkserver")
    found.set_forkserver_preload(PRELOADED)
    with patch.dict(os.environ, PYTHONPATH=TESTS):
        ensure_running()
    return found


def start(work: Callable[..., None], *arguments: Any) -> BaseProcess:
    """Run a function of a module in a new process, with the test servers' keys."""
    process = context().Process(target=_with_keys, args=(work, *arguments), daemon=True)
    process.start()
    return process


def pipe() -> tuple[Any, Any]:
    """Two ends of a conversation with a process."""
    return context().Pipe()


class Doom:
    """Kills this process before or after its n-th step."""

    def __init__(self, step: int, moment: str) -> None:
        self._step = step
        self._moment = moment
        self._count = 0

    def around(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, as a step."""

        def step(*arguments: Any, **options: Any) -> Any:
            self._count += 1
            doomed = self._count == self._step
            if doomed and self._moment == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return work(*arguments, **options)
            finally:
                if doomed and self._moment == "after":
                    os.kill(os.getpid(), signal.SIGKILL)

        return step


def doom_local_steps(doom: Doom) -> None:
    """Make each call that the local folder makes to the operating system a step."""

    class Steps:
        def __getattr__(self, name: str) -> Any:
            found = getattr(os, name)
            return doom.around(found) if name in LOCAL_STEPS else found

    setattr(local, "os", Steps())  # noqa: B010 - which is not the module's to export


class DoomedObjectStore(ObjectStore):
    """Another store, each operation of which is a step."""

    def __init__(self, store: ObjectStore, doom: Doom) -> None:
        self._store = store
        self._doom = doom

    def get(self, key: str) -> StoredObject:
        found: StoredObject = self._doom.around(self._store.get)(key)
        return found

    def put(self, key: str, data: bytes) -> str:
        return str(self._doom.around(self._store.put)(key, data))

    def put_if_absent(self, key: str, data: bytes) -> str:
        return str(self._doom.around(self._store.put_if_absent)(key, data))

    def put_if_match(self, key: str, data: bytes, etag: str) -> str:
        return str(self._doom.around(self._store.put_if_match)(key, data, etag))

    def list_objects(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        yield from self._doom.around(self._store.list_objects)(prefix, after=after)

    def list_folders(self, prefix: str) -> list[str]:
        return list(self._doom.around(self._store.list_folders)(prefix))

    def delete(self, key: str) -> None:
        self._doom.around(self._store.delete)(key)

    def __str__(self) -> str:
        return str(self._store)


class DoomedWrites(DoomedObjectStore):
    """Another store, each write to which is a step: between writes nothing changes."""

    def get(self, key: str) -> StoredObject:
        return self._store.get(key)

    def list_objects(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        return self._store.list_objects(prefix, after=after)

    def list_folders(self, prefix: str) -> list[str]:
        return self._store.list_folders(prefix)


def _with_keys(work: Callable[..., None], *arguments: Any) -> None:
    for name in STRAY_KEYS:
        os.environ.pop(name, None)
    os.environ.update(KEYS)
    work(*arguments)
