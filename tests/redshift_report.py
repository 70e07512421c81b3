"""The report of `make redshift`: a plugin of pytest that shows no names and no secrets."""

import os
import re
import sys
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

_MOST_LINES = 6
# Addresses, ARNs and accounts, whosever they are.
_NAMES = re.compile(r"\barn:[^\s'\",]+|\b[\w.-]+\.amazonaws\.[\w.]+|\b\d{12}\b|\bs3://[^/\s'\"]+")
_found: list[tuple[str, str, list[str]]] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep what a check found: its outcome, what it printed, and why it failed."""
    if report.when != "call" and report.passed:
        return
    name = report.nodeid.rpartition("::")[2].partition("[")[0].removeprefix("test_")
    crash = getattr(report.longrepr, "reprcrash", None)
    said = [*report.capstdout.splitlines(), *(crash.message.splitlines() if crash else ())]
    if report.skipped and isinstance(report.longrepr, tuple):
        said.append(report.longrepr[2])
    _found.append((report.outcome, name.replace("_", " "), said))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the report."""
    write = terminalreporter.write_line
    packages = [f"{name} {version(name)}" for name in ("floodmark", "redshift_connector")]
    write("\n----- report: it holds no names, addresses or secrets, and can be sent in -----")
    write(", ".join([*packages, f"Python {sys.version.split()[0]}"]))
    for outcome, name, said in _found:
        write(f"{outcome}: {name}")
        for line in said[:_MOST_LINES]:
            write(f"    {without_names(line, os.environ)}")
    write("----- end of the report -----")


def without_names(text: str, environment: Mapping[str, str]) -> str:
    """Take out of a text what the environment says of the cluster and the lake."""
    url = urlsplit(environment.get("FLOODMARK_REDSHIFT_URL", ""))
    lake = environment.get("FLOODMARK_REDSHIFT_LAKE", "").removeprefix("s3://").strip("/")
    secrets = [unquote(url.password or ""), url.password or ""]
    secrets += [value for name, value in environment.items() if re.match("AWS_.*(KEY|TOKEN)", name)]
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, "***")
    text = _NAMES.sub("***", text)
    names = [url.hostname, unquote(url.username or ""), url.path.strip("/"), *lake.split("/")]
    for name in filter(None, names):
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "***", text)
    return text
