"""Memory for the Python workers of a cluster's executors."""

import re

import pytest

from floodmark.checks.spark import check_worker_memory
from floodmark.config.models import SparkSettings
from floodmark.spark.session import _settings
from floodmark.spark.worker_memory import OVERHEAD, given_mb, needed_mb, overhead_for_workers

ONE = 4 * 64 + 128 + 192


@pytest.mark.parametrize(
    ("settings", "overhead"),
    [
        ({}, f"{ONE}m"),
        ({"spark.executor.cores": "4"}, f"{4 * ONE}m"),
        ({"spark.executor.cores": "4", "spark.task.cpus": "2"}, f"{2 * ONE}m"),
        ({"spark.executor.cores": "4", OVERHEAD: "1g"}, None),
        ({"spark.executor.memoryOverheadFactor": "0.2"}, None),
        ({"spark.executor.pyspark.memory": "512m"}, None),
        # Spark's own default is enough.
        ({"spark.executor.memory": "16g"}, None),
        ({"spark.executor.memory": "2g", "spark.master": "k8s://https://host"}, None),
        ({"spark.executor.memory": "2g"}, f"{ONE}m"),
    ],
)
def test_overhead_follows_the_cores(settings: dict[str, str], overhead: str | None) -> None:
    assert overhead_for_workers(settings, 64) == overhead


def test_larger_windows_need_more() -> None:
    assert needed_mb({}, 128) == 4 * 128 + 128 + 192


@pytest.mark.parametrize(
    ("overhead", "given"), [("1g", 1024), ("1024", 1024), ("512M", 512), ("2gb", 2048), ("?", 0)]
)
def test_overhead_is_read_as_spark_does(overhead: str, given: int) -> None:
    assert given_mb({OVERHEAD: overhead}) == given


def test_the_overhead_is_for_executors_and_not_for_a_local_java() -> None:
    assert _settings("2304m", local=False, silent=False)[OVERHEAD] == "2304m"
    assert OVERHEAD not in _settings("1g", local=True, silent=False)


@pytest.mark.follows_hint("set 'memory: ")
def test_doctor_notes_workers_with_too_little_memory() -> None:
    options = {"spark.executor.cores": "4"}
    assert not list(check_worker_memory(SparkSettings(master="yarn", options=options), 64))
    small = SparkSettings(master="yarn", memory="1g", options=options)
    (check,) = check_worker_memory(small, 64)
    assert (check.state, check.finding) == (
        "note",
        f"the Python workers of an executor get 1024 MB, and may need {4 * ONE} MB",
    )
    found = re.search(r"'memory: (\w+)'", check.hint or "")
    assert found is not None
    enough = SparkSettings(master="yarn", memory=found[1], options=options)
    assert not list(check_worker_memory(enough, 64))
