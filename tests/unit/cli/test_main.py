"""The installed program, as a process."""

import subprocess
import sys

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
