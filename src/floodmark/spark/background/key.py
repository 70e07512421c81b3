"""Which server a command may use, and the variables that a server starts with."""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from hashlib import sha256
from importlib.util import find_spec

import msgspec

from floodmark import __version__
from floodmark.config.models import SparkSettings
from floodmark.spark.jvm_launcher import find_java
from floodmark.spark.user_settings import user_settings

_PROTOCOL = 1
# Read by Python, Java, Spark or a library once, when a process starts. All others come with jobs.
_AT_START = re.compile(
    r"HOME|USER|LOGNAME|LANG|LANGUAGE|LC_.*|TZ|TZDIR|TMPDIR|XDG_CACHE_HOME|XDG_CONFIG_HOME"
    r"|JAVA_HOME|JAVA_TOOL_OPTIONS|JDK_JAVA_OPTIONS|_JAVA_OPTIONS|SPARK_.*|PYSPARK_.*|HADOOP_.*"
    r"|YARN_.*|LD_.*|PYTHON.*|VIRTUAL_ENV|GLIBC_TUNABLES|MALLOC_.*|ARROW_.*|OMP_.*|OPENSSL_.*"
    r"|RUST_BACKTRACE|RUST_LOG"
)
_PACKAGE = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
_NAMESPACES = ("mnt", "net", "pid", "user", "uts", "ipc")


def start_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a server starts with, and that belong to its key."""
    return {name: value for name, value in environment.items() if _AT_START.fullmatch(name)}


def job_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that come with a job."""
    return {name: value for name, value in environment.items() if not _AT_START.fullmatch(name)}


def key_of(settings: SparkSettings, environment: Mapping[str, str]) -> str:
    """Return the key of the servers that these settings can use, in this environment."""
    facts = (
        _PROTOCOL,
        __version__,
        list(_code()),
        (sys.executable, sys.version),
        _java(environment),
        (settings.master, settings.memory, sorted(settings.options.items()), settings.fast_start),
        settings.allow_insecure,
        sorted(user_settings(environment).items()),
        sorted(start_variables(environment).items()),
        (os.geteuid(), os.getegid(), sorted(os.getgroups())),
        list(_machine()),
    )
    return sha256(msgspec.json.encode(facts)).hexdigest()[:24]


def _code() -> Iterator[tuple[str, int, int]]:
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


def _machine() -> Iterator[str]:
    """Yield the names of this boot, and of the namespaces of this process."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        yield file.read()
    for name in _NAMESPACES:
        yield os.readlink(f"/proc/self/ns/{name}")
