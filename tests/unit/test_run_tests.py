"""What `make test` says about tests that fail: at first, twice, or because all broke off."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "run_tests.py"

PASSING = "def test_good(): pass\n"
FLAKY = """
from pathlib import Path
def test_flaky():
    seen, marker = Path("marker").exists(), Path("marker").touch()
    assert seen
"""
FAILING = "def test_bad(): assert False\n"
BROKEN_OFF = "import os\ndef test_crash(): os._exit(7)\n"


@pytest.mark.parametrize(
    ("tests", "code", "said", "unsaid"),
    [
        (
            FLAKY + PASSING,
            0,
            ["1 test failed at first and passed alone:\n  test_it.py::test_flaky"],
            ["failed twice"],
        ),
        (
            FLAKY + FAILING,
            1,
            [
                "1 test failed at first and passed alone:",
                "1 test failed twice:\n  test_it.py::test_bad",
            ],
            [],
        ),
        (FLAKY + BROKEN_OFF, 7, [], ["again", "passed alone"]),
    ],
    ids=["flaky", "flaky and failing", "broken off"],
)
def test_what_failed_is_run_alone_and_named(
    tmp_path: Path, tests: str, code: int, said: list[str], unsaid: list[str]
) -> None:
    (tmp_path / "test_it.py").write_text(tests)
    ended = subprocess.run(
        [sys.executable, str(SCRIPT)],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == code, ended
    assert all(text in ended.stdout for text in said), ended.stdout
    assert not any(text in ended.stdout for text in unsaid), ended.stdout
