"""Folders for copies of data files."""

import fcntl
import os
from pathlib import Path
from shutil import rmtree

import pytest

from floodmark.storage.copies import folder_of_copies


def test_copies_are_on_the_disk_of_the_file_itself(tmp_path: Path) -> None:
    for name in ("disk", "links"):
        (tmp_path / name).mkdir()
    link = tmp_path / "links" / "warehouse.duckdb"
    link.symlink_to(tmp_path / "disk" / "warehouse.duckdb")
    with folder_of_copies(str(link)) as folder:
        assert folder is not None
        assert Path(folder).parent == tmp_path / "disk"
    assert os.listdir(tmp_path / "disk") == []


def test_a_folder_that_another_command_has_just_removed_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = fcntl.flock

    def remove_first(descriptor: int, operation: int) -> None:
        for folder in tmp_path.iterdir():
            rmtree(folder)
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    with folder_of_copies(str(tmp_path / "warehouse.duckdb")) as folder:
        assert folder is None
