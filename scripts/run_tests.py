"""Run pytest with the given arguments, then rerun failed tests alone, and list the flaky ones.

Exits with 0 only if all tests ran, and each passed at first or alone.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")


def main(arguments: list[str]) -> int:
    """Run the tests; rerun failed tests only, not an aborted session."""
    LAST_FAILED.unlink(missing_ok=True)
    code = run(arguments)
    if code != pytest.ExitCode.TESTS_FAILED:
        return code
    at_first = failed()
    say(f"{tests(at_first)} failed; running again, alone")
    code = run(["--last-failed", "--last-failed-no-failures", "none"])
    alone = failed()
    if passed := at_first - alone:
        say(f"{tests(passed)} failed at first and passed alone:", *sorted(passed))
    if alone:
        say(f"{tests(alone)} failed twice:", *sorted(alone))
    return code


def run(arguments: list[str]) -> int:
    """Run pytest in a subprocess."""
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode


def failed() -> set[str]:
    """Return the tests that failed in their last run."""
    return set(json.loads(LAST_FAILED.read_text())) if LAST_FAILED.exists() else set()


def tests(names: set[str]) -> str:
    """Format a number of tests."""
    return f"{len(names)} test{'s' * (len(names) != 1)}"


def say(*lines: str) -> None:
    """Print lines and flush: pytest writes to the same stream."""
    sys.stdout.write("\n  ".join(lines) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
