"""Run a task of one command on a worker that also serves other commands."""

import os
import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from msgspec import Struct

from floodmark.config.logins import LOGINS

_last_command = ""


class JobContext(Struct, frozen=True):
    """What tasks depend on besides their job. `command` is unique to each command."""

    command: str
    environment: dict[str, str]
    folder: str
    umask: int


def run_in_context(context: JobContext, task: bytes, number: int) -> str:
    """Run a pickled task as if its command had started this process."""
    global _last_command  # a worker runs one task at a time
    if context.command != _last_command:
        LOGINS.forget()  # a password or its server may have changed
        _last_command = context.command
    with _environment(context.environment), _folder(context.folder), _umask(context.umask):
        answer: str = pickle.loads(task)(number)  # noqa: S301 - from an authenticated command
        return answer


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables, and restore exactly what was there before."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


@contextmanager
def _folder(path: str) -> Iterator[None]:
    before = os.getcwd()
    with suppress(OSError):  # it was removed, and relative paths have no meaning
        os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def _umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)
