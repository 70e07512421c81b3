"""Errors of Spark tasks, and the number of tries."""

import subprocess
import sys

import pytest

from floodmark.spark.runner import task_error, tries_of

TRACEBACK = """Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
"""


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (f"Job aborted: {TRACEBACK}ValueError: the cause\n\n\tat org.apache.Spark", "the cause"),
        (f"Job aborted: {TRACEBACK}ValueError: the cause SQLSTATE: 38000\n\tat o", "the cause"),
        (f"[X] an error:\n{TRACEBACK}ValueError: the cause\n\nSQLSTATE: 38000", "the cause"),
        (
            f"{TRACEBACK}KeyError: 1\n\n{TRACEBACK}ValueError: the cause\nmore",
            "the cause",
        ),
    ],
)
def test_a_tasks_error_shows_its_own_message(message: str, shown: str) -> None:
    assert task_error(message).startswith(f"ValueError: {shown}")


def test_other_failures_show_their_first_line() -> None:
    assert task_error("Job 1 cancelled\nbecause") == "Job 1 cancelled"
    assert task_error("") == "no reason given"


@pytest.mark.parametrize(
    ("master", "max_failures", "tries"),
    [
        ("local", None, 1),
        ("local[*]", None, 1),
        ("local[*,4]", "9", 4),
        ("local[2, 3]", None, 3),
        ("spark://host:7077", None, 4),
        ("spark://host:7077", "8", 8),
        ("local-cluster[2,1,1024]", "2", 2),
        (None, "7", 7),
    ],
)
def test_tries_come_from_spark(master: str | None, max_failures: str | None, tries: int) -> None:
    assert tries_of(master, max_failures) == tries


def test_tasks_are_submitted_without_arrow() -> None:
    """Workers need it; importing it would take longer than sending them a small window."""
    script = (
        "import sys, floodmark.spark.extract, floodmark.spark.background.client\n"
        "assert not {'pyarrow', 'pyspark'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
