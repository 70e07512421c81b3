"""Which server a command may use."""

import os
import sys
from collections.abc import Iterator, Mapping
from hashlib import sha256
from importlib.util import find_spec

import msgspec

from floodmark import __version__
from floodmark.config.models import SparkSettings
from floodmark.spark.background.process_facts import machine, start_variables
from floodmark.spark.jvm_launcher import find_java
from floodmark.spark.user_settings import user_settings

_PROTOCOL = 1
_PACKAGE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))


def key_of(settings: SparkSettings, environment: Mapping[str, str]) -> str:
    """Return the key of the servers that these settings can use, in this environment."""
    facts = (
        _PROTOCOL,
        __version__,
        list(installed_code()),
        (sys.executable, sys.version),
        _java(environment),
        (settings.master, settings.memory, sorted(settings.options.items()), settings.fast_start),
        settings.allow_insecure,
        sorted(user_settings(environment).items()),
        sorted(start_variables(environment).items()),
        (os.geteuid(), os.getegid(), sorted(os.getgroups())),
        list(machine()),
    )
    return sha256(msgspec.json.encode(facts)).hexdigest()[:24]


def installed_code() -> Iterator[tuple[str, int, int]]:
    """Yield what changes with our code, or with the installed packages."""
    folders = [_PACKAGE]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    status = entry.stat()
                    yield entry.path, status.st_mtime_ns, status.st_size
                elif entry.name != "__pycache__" and entry.is_dir():
                    folders.append(entry.path)
    for name in ("pyspark", "pyarrow", "connectorx"):
        found = find_spec(name)
        if found and found.origin:
            packages = os.path.dirname(os.path.dirname(found.origin))
            yield packages, os.stat(packages).st_mtime_ns, 0


def _java(environment: Mapping[str, str]) -> tuple[str, int] | None:
    java = find_java(environment)
    if java is None:
        return None
    program = os.path.realpath(java)
    return program, os.stat(program).st_mtime_ns
