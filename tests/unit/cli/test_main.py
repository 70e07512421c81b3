"""The installed program, as a process."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "library", ["duckdb", "psycopg, pgpq", "pyarrow.parquet", "redshift_connector"]
)
def test_the_program_ends_without_a_word(library: str) -> None:
    """Some libraries complain at exit if Python collects no garbage."""
    script = f"import sys, {library}, floodmark.__main__\nfloodmark.__main__.main()"
    ended = subprocess.run(
        [sys.executable, "-c", script, "--version"], capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_the_program_works_without_standard_streams(tmp_path: Path, closed: str) -> None:
    (tmp_path / "floodmark.yml").write_text("lake: ./lake")
    ended = subprocess.run(
        ["bash", "-c", f'exec "$0" -m floodmark status {closed}', sys.executable],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert bool(ended.stdout) == (">&-" not in closed.split())


def test_no_file_gets_the_number_of_a_closed_stream() -> None:
    """What a library prints would be in that file."""
    script = (
        "import floodmark.cli.main as cli, floodmark.__main__ as program, os, sys\n"
        "cli.main = lambda **_: sys.exit(os.open('/dev/null', os.O_RDONLY))\n"
        "program.main()"
    )
    ended = subprocess.run(
        ["bash", "-c", 'exec "$0" -c "$1" <&- >&- 2>&-', sys.executable, script],
        timeout=60,
    )
    assert ended.returncode > 2
