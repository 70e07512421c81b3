"""Settings for a local Spark only: `keep_warm` and `from_rows`."""

from pathlib import Path

import pytest

from floodmark.config.loading import load_config
from floodmark.errors import ConfigError


def loaded(folder: Path, spark: str) -> float | None:
    path = folder / "floodmark.yml"
    path.write_text(f"lake: ./lake\nspark: {spark}\n")
    return load_config(str(path), {}).settings.spark.keep_seconds


def test_how_long(tmp_path: Path) -> None:
    assert loaded(tmp_path, "{}") is None
    assert loaded(tmp_path, "{keep_warm: 15m}") == 900
    assert loaded(tmp_path, "{keep_warm: 1d, master: 'local[2]'}") == 86_400


def test_from_rows(tmp_path: Path) -> None:
    for spark in ("{from_rows: 9, master: 'local[2]'}", "{from_rows: 0, master: yarn}"):
        assert loaded(tmp_path, spark) is None


@pytest.mark.parametrize(
    ("spark", "message"),
    [
        ("{keep_warm: soon}", "spark.keep_warm: 'soon' is not a duration"),
        ("{keep_warm: 0s}", "spark.keep_warm: '0s' is not a duration"),
        ("{keep_warm: 2d}", "spark.keep_warm: '2d' is too long"),
        ("{keep_warm: 15m, master: yarn}", "only a local Spark can be kept, not yarn"),
        ("{keep_warm: 15m, remote: 'sc://h;token=t'}", "kept, not Spark Connect"),
        ("{keep_warm: 15m, options: {spark.master: 'spark://h:1'}}", "kept, not spark://h:1"),
        ("{from_rows: 9, master: yarn}", "this machine would read fewer rows, not yarn"),
        ("{from_rows: 9, remote: 'sc://h;token=t'}", "not Spark Connect"),
    ],
)
def test_what_is_refused(tmp_path: Path, spark: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        loaded(tmp_path, spark)
    assert caught.value.hint
