"""`floodmark demo`, as somebody with ten minutes meets it."""

import re
import sys
import tempfile
from pathlib import Path

import click
import pytest

from floodmark.cli.demo import CHAPTERS
from floodmark.cli.main import run
from terminals import on_terminal


def demo(folder: Path, *arguments: str) -> tuple[int, str]:
    """Tell the story in a temporary folder of its own, to somebody with settings of their own."""
    code, shown = on_terminal(
        [sys.executable, "-m", "floodmark", "demo", "--rows", "3000", *arguments],
        folder=folder,
        columns=100,
        environment={"TMPDIR": str(folder), "FLOODMARK_CONFIG": "/nowhere", "MYSQL_USER": "me"},
    )
    return code, click.unstyle(shown)


def test_the_story_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    code, shown = demo(tmp_path)
    assert code == 0, shown
    chapters = re.findall(r"^━━ (\d)/(\d) ", shown, re.MULTILINE)
    assert chapters == [(str(n), str(CHAPTERS)) for n in range(1, CHAPTERS + 1)]
    assert "3,000 rows loaded" in shown
    assert "nothing new since" in shown
    assert "60 rows in 1 file" in shown, "of every hundredth row, and as many new ones"
    assert re.search(r"delivery_detail .* interrupted", shown), shown
    unfolded = re.sub(r"\s+", " ", shown)
    assert "is not JSON" in unfolded
    assert "recovered from watermarks/backups/daily/" in unfolded
    assert "source and target are equal" in unfolded
    assert "Where to look next" in shown
    assert "Traceback" not in shown
    assert [path.name for path in tmp_path.iterdir() if "floodmark" in path.name] == []


def test_programs_that_are_missing_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = set(Path(tempfile.gettempdir()).glob("floodmark-demo-*"))
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    assert run(["demo"]) == 1
    assert capsys.readouterr().err == (
        "error: the demo needs mariadbd and mariadb-install-db and java, which this machine does"
        " not have\nhint: on Debian: apt install mariadb-server openjdk-17-jre-headless\n"
    )
    assert set(Path(tempfile.gettempdir()).glob("floodmark-demo-*")) <= before
