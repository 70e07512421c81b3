"""Folders for the marks of slices do not pile up."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from floodmark.sync.chunks_in_flight import folder_of_marks


def test_folders_of_killed_processes_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    left = tmp_path / f"floodmark-slices-{ended.pid}-abc"
    running = tmp_path / f"floodmark-slices-{os.getppid()}-abc"
    for folder in (left, running):
        folder.mkdir()
        (folder / "1-1").touch()
    with folder_of_marks() as new:
        assert sorted(tmp_path.iterdir()) == sorted([running, Path(new)])
    assert list(tmp_path.iterdir()) == [running]
