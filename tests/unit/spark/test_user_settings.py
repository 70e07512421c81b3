"""Settings that users make for Spark itself."""

from pathlib import Path

import pytest

from floodmark.config.models import SparkSettings
from floodmark.spark.user_settings import LOCAL_MASTER, master_of, other_machines, user_settings

DEFAULTS = """\
# spark.master  local
spark.master            spark://host:7077
spark.executor.memory=4g
  spark.executorEnv.A : b c
other.name  1
"""


@pytest.fixture(params=["SPARK_CONF_DIR", "SPARK_HOME"])
def defaults(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "conf"
    folder.mkdir()
    (folder / "spark-defaults.conf").write_text(DEFAULTS)
    return {request.param: str(folder if request.param == "SPARK_CONF_DIR" else tmp_path)}


def test_the_defaults_file_is_read(defaults: dict[str, str]) -> None:
    assert user_settings(defaults) == {
        "spark.master": "spark://host:7077",
        "spark.executor.memory": "4g",
        "spark.executorEnv.A": "b c",
    }


def test_without_a_defaults_file_nothing_is_set(tmp_path: Path) -> None:
    assert user_settings({"SPARK_HOME": str(tmp_path)}) == {}
    assert user_settings({}) == {}


def test_the_configuration_decides_then_the_user_then_local(
    defaults: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert master_of(SparkSettings()) == LOCAL_MASTER
    for name, value in defaults.items():
        monkeypatch.setenv(name, value)
    assert master_of(SparkSettings()) == "spark://host:7077"
    assert master_of(SparkSettings(master="yarn")) == "yarn"
    assert master_of(SparkSettings(master="yarn", options={"spark.master": "local"})) == "local"


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        (SparkSettings(), None),
        (SparkSettings(master="local[2]"), None),
        (SparkSettings(master="yarn"), "yarn"),
        (SparkSettings(remote="sc://host/;token=secret"), "Spark Connect"),
    ],
)
def test_other_machines(settings: SparkSettings, place: str | None) -> None:
    assert other_machines(settings) == place
