"""Private attributes of PySpark: in one file, and what happens where they are missing."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext

from floodmark.errors import FloodmarkError
from floodmark.spark import pyspark_internals as internals

PRIVATE = r"\._(jsc|jvm|gateway|ensure_initialized|active_spark_context|accumulatorServer)\b"


def test_other_files_use_none() -> None:
    own = Path(internals.__file__)
    users = {p.name for p in own.parent.rglob("*.py") if re.search(PRIVATE, p.read_text())}
    assert users - {"jvm_launcher.py"} == {own.name}  # it has a method of such a name


def test_a_context_without_them_is_used_all_the_same() -> None:
    stopped: list[bool] = []
    context: Any = SimpleNamespace(stop=lambda: stopped.append(True))
    assert internals.gateway_of(context) is None
    assert internals.process_of(None) is None
    assert internals.executors_of(context) is None
    internals.silence_accumulators(context)
    internals.remember_classes(context)
    internals.stop_quickly(context)
    assert stopped == [True]


def test_classes_are_looked_up_once() -> None:
    asked: list[str] = []

    class View:
        def __getattr__(self, name: str) -> str:
            asked.append(name)
            return name

    context: Any = SimpleNamespace(_jvm=View())
    internals.remember_classes(context)
    for _ in range(2):
        assert context._jvm.PythonRDD == "PythonRDD"
    assert asked == ["PythonUtils", "SimplePythonFunction", "PythonRDD"]


def test_settings_of_spark_submit_are_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(SparkContext, "_ensure_initialized")
    with pytest.raises(FloodmarkError, match="does not show the settings of spark-submit"):
        internals.submitted_settings()


def test_secrets_are_not_left_to_another_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("pyspark.java_gateway.launch_gateway")
    assert internals.launch_jvm({"spark.app.name": "a"}, None) is None
    with pytest.raises(FloodmarkError, match="would show secrets"):
        internals.launch_jvm({"spark.authenticate.secret": "a"}, None)
