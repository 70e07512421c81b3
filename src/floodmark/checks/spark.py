"""Check Java and Spark: installed, recent enough, reachable."""

import os
import re
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from floodmark.checks.check import Check, failed
from floodmark.config.models import SparkSettings
from floodmark.errors import FloodmarkError
from floodmark.storage.objects import ObjectStore

if TYPE_CHECKING:
    from floodmark.checks.executors import Places

OLDEST_JAVA = 17
_INSTALL = "install Java 17 or newer (Debian: apt install openjdk-17-jre-headless)"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)[^"]*"')
_SECONDS = 10


def check_spark(
    settings: SparkSettings,
    *,
    start: bool,
    session: Any = None,
    places: Callable[[], AbstractContextManager["Places"]] | None = None,
    objects: ObjectStore | None = None,
    window_mb: int = 64,
) -> Iterator[Check]:
    """Check what Spark needs; with `start`, start it (or use `session`) and run a task.

    On a cluster, every executor then tries to reach `places`, and the lake, which is `objects`.
    """
    from floodmark.spark.jvm_launcher import find_java
    from floodmark.spark.user_settings import master_of, other_machines

    try:
        installed = version("pyspark")
    except PackageNotFoundError:
        hint = "pip install pyspark"
        yield Check(subject="Spark", state="failed", finding="PySpark is not installed", hint=hint)
        return
    remote = settings.options.get("spark.remote", settings.remote)
    master = master_of(settings)
    if not remote and session is None:  # a remote server has its own Java
        yield _check_java(find_java(dict(os.environ)))
    place = "Spark Connect" if remote else master  # the address may contain a token
    yield Check(subject="Spark", finding=f"PySpark {installed}, runs on {place}")
    if session is None and (remote or master.startswith("spark://")):
        yield _check_addresses(_addresses(remote or master))
    if session is None and not remote and other_machines(settings) is not None:
        yield from check_worker_memory(settings, window_mb)
    if settings.keep_warm and session is None:
        yield _check_background(settings)
    if start:
        if places is None or objects is None or other_machines(settings) is None:
            yield from _check_start(settings, session, None, objects)
        else:
            try:
                with places() as tried:
                    yield from _check_start(settings, session, tried, objects)
            except FloodmarkError as error:
                yield failed("Spark", error)


def _check_java(java: str | None) -> Check:
    if java is None:
        home = os.environ.get("JAVA_HOME")
        finding = f"not found in JAVA_HOME ({home})" if home else "not found"
        hint = f"{'correct or unset' if home else 'set'} JAVA_HOME, or {_INSTALL}"
        return Check(subject="Java", state="failed", finding=finding, hint=hint)
    try:
        done = subprocess.run(  # noqa: S603 - the same as Spark runs
            [java, "-version"], capture_output=True, text=True, check=False, timeout=_SECONDS
        )
        found = _VERSION.search(done.stderr + done.stdout)
    except (OSError, subprocess.TimeoutExpired) as error:
        finding = f"{java} does not run: {error}"
        return Check(subject="Java", state="failed", finding=finding, hint=_INSTALL)
    if found is None:
        finding = f"{java} does not report its version"
        return Check(subject="Java", state="failed", finding=finding, hint=_INSTALL)
    if int(found[1]) < OLDEST_JAVA:
        finding = f"{java} is version {found[1]}: Spark needs {OLDEST_JAVA} or newer"
        return Check(subject="Java", state="failed", finding=finding, hint=_INSTALL)
    return Check(subject="Java", finding=f"version {found[1]}, {java}")


def check_worker_memory(settings: SparkSettings, window_mb: int) -> Iterator[Check]:
    """Note if the Python workers of an executor may need more memory than they get."""
    from floodmark.spark.user_settings import master_of, user_settings
    from floodmark.spark.worker_memory import OVERHEAD, given_mb, needed_mb, overhead_for_workers

    theirs = user_settings(os.environ) | settings.options | {"spark.master": master_of(settings)}
    ours = settings.memory or overhead_for_workers(theirs, window_mb)
    known = {OVERHEAD: ours, **theirs} if ours else theirs
    given, needed = given_mb(known), needed_mb(known, window_mb)
    if given < needed:
        yield Check(
            subject="Spark",
            state="note",
            finding=f"the Python workers of an executor get {given} MB, and may need {needed} MB",
            hint=f"set 'memory: {needed}m' below 'spark:', or {OVERHEAD} where it is set",
        )


def _check_background(settings: SparkSettings) -> Check:
    """Check whether there can be a Spark in the background, and whether one runs."""
    from floodmark.spark.background.control import servers
    from floodmark.spark.background.key import key_of
    from floodmark.spark.background.place import Unavailable

    subject = "background Spark"
    try:
        key = key_of(settings, os.environ)
        ours = [server for server in servers(os.environ) if server.key == key]
    except (Unavailable, OSError) as error:
        hint = "without it, each command starts and stops its own Spark"
        return Check(subject=subject, state="note", finding=str(error), hint=hint)
    kept = f"kept for {settings.keep_warm} after its last use"
    if not ours:
        return Check(subject=subject, finding=f"not running; the next sync starts it; {kept}")
    state, problem = ours[0].state, ours[0].problem
    if problem:
        finding, hint = f"process {ours[0].pid}: {problem}", f"its log is {ours[0].log}"
        return Check(subject=subject, state="failed", finding=finding, hint=hint)
    if state is None:
        return Check(subject=subject, finding=f"starting; {kept}")
    memory = f"{state.memory_bytes / 1e6:,.0f} MB"
    return Check(subject=subject, finding=f"process {state.pid} runs, {memory}; {kept}")


def _addresses(url: str) -> list[tuple[str, int]]:
    """Return the addresses of the masters, or of a Spark Connect server."""
    scheme, _, rest = url.partition("://")
    found = [urlsplit(f"//{part}") for part in rest.partition("/")[0].split(",")]
    default = 7077 if scheme == "spark" else 15002
    return [(part.hostname or "", part.port or default) for part in found]


def _check_addresses(addresses: list[tuple[str, int]]) -> Check:
    problems = []
    for address in addresses:
        try:
            with socket.create_connection(address, timeout=_SECONDS):
                return Check(subject="Spark", finding=f"{address[0]}:{address[1]} answers")
        except OSError as error:
            problems.append(f"{address[0]}:{address[1]} does not answer ({error})")
    return Check(
        subject="Spark",
        state="failed",
        finding="; ".join(problems),
        hint="check 'spark.master' or 'spark.remote', and that the server is running",
    )


def _check_start(
    settings: SparkSettings, session: Any, places: "Places | None", objects: ObjectStore | None
) -> Iterator[Check]:
    from floodmark.spark.self_test import probe

    try:
        test = probe(settings, session, places.reach if places else None)
    except FloodmarkError as error:
        yield failed("Spark", error)
        return
    yield Check(subject="Spark", finding=test.finding)
    if places and objects:
        from floodmark.checks.executors import report

        yield from report(objects, test)
