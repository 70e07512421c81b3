"""What a process got when it started: it cannot run work for commands that got something else.

Every command may import this, so it imports little itself.
"""

import os
from collections.abc import Iterator, Mapping

# Read by Python, Java, Spark or a library once, when a process starts. All others come with jobs.
# fmt: off
_NAMES = {
    "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "LOCPATH", "TZ", "TZDIR", "TMPDIR",
    "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "JAVA_HOME", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS",
    "_JAVA_OPTIONS", "VIRTUAL_ENV", "GLIBC_TUNABLES", "PSYCOPG_IMPL", "RUST_BACKTRACE", "RUST_LOG",
}
_PREFIXES = (
    "LC_", "SPARK_", "PYSPARK_", "HADOOP_", "YARN_", "LD_", "PYTHON", "MALLOC_", "ARROW_", "OMP_",
    "OPENSSL_",
)
# fmt: on
_NAMESPACES = ("mnt", "net", "pid", "user", "uts", "ipc")


def start_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a server starts with, and that belong to its key."""
    return {name: value for name, value in environment.items() if _is_read_at_start(name)}


def job_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that come with a job."""
    return {name: value for name, value in environment.items() if not _is_read_at_start(name)}


def machine() -> Iterator[str]:
    """Yield the names of this boot, and of the namespaces of this process."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        yield file.read()
    for name in _NAMESPACES:
        yield os.readlink(f"/proc/self/ns/{name}")


def _is_read_at_start(name: str) -> bool:
    return name in _NAMES or name.startswith(_PREFIXES)
