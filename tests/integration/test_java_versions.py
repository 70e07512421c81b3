"""A sync with each Java of this machine."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines import Pipeline, ask_once, numbers

FOLDER = Path("/usr/lib/jvm")
HOMES = sorted({java.resolve().parent.parent for java in FOLDER.glob("*/bin/java")})

pytestmark = pytest.mark.enough_on("mariadb")  # it is about Java


def test_there_are_several() -> None:
    if len(HOMES) < 2:
        pytest.skip(f"{FOLDER} has fewer than two versions of Java: {[*map(str, HOMES)]}")


@pytest.mark.parametrize("home", HOMES, ids=lambda home: home.name)
def test_a_sync(
    pipeline: Callable[..., Pipeline], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = subprocess.run([home / "bin/java", "-version"], capture_output=True, check=False)
    if shown.returncode != 0:
        pytest.skip(f"{home}/bin/java does not run")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.delenv("FLOODMARK_SPARK", raising=False)
    it = pipeline({"t": "{cursor: id}"})
    # Each Java has its own archive of classes, which the first run writes.
    monkeypatch.setenv("XDG_CACHE_HOME", str(it.folder / "cache"))
    ask_once(it, "CREATE TABLE t (id INT PRIMARY KEY)")
    for first in (1, 301):
        ask_once(it, f"INSERT INTO t SELECT seq FROM {numbers(first, first + 299)}")
        ended = it.command("sync", "-p", "main", "--json")
        assert ended.code == 0, ended
        assert (ended.table["rows"], ended.table["loaded_rows"]) == (300, 300)
    assert os.listdir(it.folder / "cache")
    assert it.ids() == dict.fromkeys(range(1, 601), 1)
    it.check_tracking()
