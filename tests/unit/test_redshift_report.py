"""The report of `make redshift` shows results, but no names and no secrets."""

from types import SimpleNamespace
from typing import Any

import pytest

import redshift_report

ENVIRONMENT = {
    "FLOODMARK_REDSHIFT_URL": "redshift://loader:p%20w%2Fd@10.0.0.1:5439/dev",
    "FLOODMARK_REDSHIFT_LAKE": "s3://lake/a/b",
    "AWS_SECRET_ACCESS_KEY": "the/key",
}


def found(outcome: str, printed: str = "", longrepr: Any = None) -> Any:
    """What pytest says of a check."""
    return SimpleNamespace(
        when="call",
        outcome=outcome,
        passed=outcome == "passed",
        skipped=outcome == "skipped",
        nodeid="tests/test_x.py::test_it_was_checked",
        capstdout=printed,
        longrepr=longrepr,
    )


def test_the_report_shows_what_was_found_without_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redshift_report, "_found", [])
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    error = (
        "role arn:aws-cn:iam::123456789012:role/x of s3://lake/a/b, p w/d, loader@dev\n"
        "p%20w%2Fd, the/key, 10.0.0.1, 123456789012, device"
    )
    crash = SimpleNamespace(reprcrash=SimpleNamespace(message=error))
    for report in (
        found("passed", "version 1.0 on name.abc.us-east-1.redshift.amazonaws.com"),
        found("failed", longrepr=crash),
        found("skipped", longrepr=("file", 1, "Skipped: nothing is set")),
    ):
        redshift_report.pytest_runtest_logreport(report)
    lines: list[str] = []
    redshift_report.pytest_terminal_summary(SimpleNamespace(write_line=lines.append))
    assert lines[2:] == [
        "passed: it was checked",
        "    version 1.0 on ***",
        "failed: it was checked",
        "    role *** of ***/***/***, ***, ***@***",
        "    ***, ***, ***, ***, device",
        "skipped: it was checked",
        "    Skipped: nothing is set",
        "----- end of the report -----",
    ]
