"""Open a project: read its configuration."""

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from floodmark.api.arguments import expect, expect_variables
from floodmark.api.callbacks import OnProgress
from floodmark.api.project import Project
from floodmark.config.loading import load_config
from floodmark.model.notice import Report

if TYPE_CHECKING:
    from floodmark.api.callbacks import OnResult


def open_project(
    path: str | os.PathLike[str] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    spark: Any = None,
    on_progress: OnProgress | None = None,
    on_notice: Report | None = None,
    on_result: "OnResult | None" = None,
) -> Project:
    """Read a configuration; start and connect nothing yet.

    path          the configuration file; by default $FLOODMARK_CONFIG, or ./floodmark.yml
    environment   variables for `${NAME}` in the configuration; by default os.environ
    spark         a SparkSession to use, classic or Spark Connect; by default one is started when
                  there are rows to read, and stopped by close()
    on_progress   called with a table and its Progress, from other threads
    on_notice     called with each Notice, from any thread; by default notices go to the logger
                  `floodmark`
    on_result     called with each TableResult as soon as the table is done, from other threads

    Raises ConfigError if the configuration is missing or invalid.
    """
    expect("path", path, str, os.PathLike, optional=True)
    expect_variables("environment", environment)
    expect("on_progress", on_progress, Callable, optional=True)
    expect("on_notice", on_notice, Callable, optional=True)
    expect("on_result", on_result, Callable, optional=True)
    variables = os.environ if environment is None else environment
    config = load_config(None if path is None else os.fspath(path), variables)
    return Project(
        config, spark=spark, on_progress=on_progress, on_notice=on_notice, on_result=on_result
    )
