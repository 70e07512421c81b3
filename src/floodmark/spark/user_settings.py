"""Find the Spark settings that the user made outside of our configuration, and keep them."""

import importlib.util
import os
import re
from collections.abc import Mapping
from pathlib import Path

from floodmark.config.models import SparkSettings
from floodmark.spark.pyspark_internals import submitted_settings

LOCAL_MASTER = "local[*,4]"
_GATEWAY = "PYSPARK_GATEWAY_PORT"
_SETTING = re.compile(r"\s*(spark\.[^\s=:]+)[\s=:]+(.*?)\s*")


def user_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that `spark-submit` passed to this process, or `spark-defaults.conf`."""
    if is_submitted(environment):
        return submitted_settings()
    file = _conf_folder(environment) / "spark-defaults.conf"
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    return {found[1]: found[2] for found in map(_SETTING.fullmatch, lines) if found}


def is_submitted(environment: Mapping[str, str]) -> bool:
    """Whether `spark-submit` started this process."""
    return _GATEWAY in environment


def master_of(settings: SparkSettings) -> str:
    """Return where Spark runs: as configured, else as the user set it for Spark, else locally."""
    configured = settings.options.get("spark.master", settings.master)
    return configured or user_settings(os.environ).get("spark.master", LOCAL_MASTER)


def other_machines(settings: SparkSettings) -> str | None:
    """Return where Spark runs, if that may be on other machines."""
    if settings.options.get("spark.remote", settings.remote):
        return "Spark Connect"  # not the address, which may contain a token
    master = master_of(settings)
    return None if is_local(master) else master


def local_slots(master: str) -> int | None:
    """Return how many tasks a Spark on this machine runs at once; None for a cluster."""
    if found := re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,.*\]", master):
        return int(found[1]) * int(found[2])
    found = re.fullmatch(r"local(?:\[\s*(\d+|\*)\s*(?:,.*)?\])?", master)
    if found is None:
        return None
    if found[1] == "*":
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return int(found[1] or 1)


def is_local(master: str) -> bool:
    """Whether Spark runs on this machine."""
    return master.startswith("local")


def _conf_folder(environment: Mapping[str, str]) -> Path:
    if folder := environment.get("SPARK_CONF_DIR"):
        return Path(folder)
    if home := environment.get("SPARK_HOME"):
        return Path(home, "conf")
    found = importlib.util.find_spec("pyspark")
    return Path(found.origin if found and found.origin else "").parent / "conf"
