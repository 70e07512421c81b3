"""`floodmark demo`, as a new user runs it."""

import re
import sys
import tempfile
from pathlib import Path

import click
import pytest

from floodmark.cli.demo import CHAPTERS, DELIVERIES, Demo
from floodmark.cli.main import run
from floodmark.embedded.settlement import create_tables
from terminals import on_terminal


def demo(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run the demo in a temporary folder, in an environment with other settings."""
    code, shown = on_terminal(
        [sys.executable, "-m", "floodmark", "demo", "--rows", "3000", *arguments],
        folder=folder,
        columns=100,
        environment={"TMPDIR": str(folder), "FLOODMARK_CONFIG": "/nowhere", "MYSQL_USER": "me"},
    )
    return code, click.unstyle(shown)


def test_the_demo_runs_and_leaves_nothing(tmp_path: Path) -> None:
    code, shown = demo(tmp_path)
    assert code == 0, shown
    chapters = re.findall(r"^━━ (\d)/(\d) ", shown, re.MULTILINE)
    assert chapters == [(str(n), str(CHAPTERS)) for n in range(1, CHAPTERS + 1)]
    assert "3,000 rows loaded" in shown
    assert "nothing new since" in shown
    assert "60 rows in 1 file" in shown, "of every hundredth row, and as many new ones"
    assert re.search(r"livery_detail .* interrupted", shown), shown
    unfolded = re.sub(r"\s+", " ", shown)
    assert "is not JSON" in unfolded
    assert "recovered from watermarks/backups/daily/" in unfolded
    assert "source and target are equal" in unfolded
    assert "Next steps" in shown
    assert "Traceback" not in shown
    assert [path.name for path in tmp_path.iterdir() if "floodmark" in path.name] == []


def test_a_kept_folder_can_be_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Only the first chapter, which fills the folder."""

    def begin(demo: Demo) -> None:
        create_tables(demo._source.execute, deliveries=1000)
        demo._begin()

    monkeypatch.setattr(Demo, "run", begin)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert run(["demo", "--keep"]) == 0
    found = re.search(r"^  cd (.+) && floodmark (.+)$", capfd.readouterr().out, re.MULTILINE)
    assert found
    folder, command = Path(found[1]), found[2]
    assert folder.parent == tmp_path
    assert not (folder / "mariadb" / "mariadb.pid").exists(), "the server is stopped"
    monkeypatch.chdir(folder)
    assert run(command.split()) == 0
    assert f"{DELIVERIES}  " in capfd.readouterr().out


def test_programs_that_are_missing_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = set(Path(tempfile.gettempdir()).glob("floodmark-demo-*"))
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    assert run(["demo"]) == 1
    assert capsys.readouterr().err == (
        "error: the demo needs mariadbd and mariadb-install-db and java, not found on this"
        " machine\nhint: on Debian: apt install mariadb-server openjdk-17-jre-headless\n"
    )
    assert set(Path(tempfile.gettempdir()).glob("floodmark-demo-*")) <= before
