"""Spark Connect with a PySpark that is too old for it."""

from typing import Any

import pytest

from floodmark.errors import FloodmarkError
from floodmark.spark import connect_runner


def test_an_older_pyspark_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    session: Any = object()
    monkeypatch.setattr(connect_runner, "arrow_udf", None)
    with pytest.raises(FloodmarkError, match="Spark Connect needs PySpark"):
        connect_runner.ConnectedSpark(session)
