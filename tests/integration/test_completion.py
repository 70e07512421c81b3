"""Shell completion, by a real bash."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from floodmark.cli.main import cli
from scenarios import Lake, write_config

PROGRAMS = Path(sys.executable).parent

# Loads the script as ~/.bashrc does, and asks for what the Tab key would show.
BASH = """
eval "$(floodmark completion bash)"
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_floodmark_completion floodmark
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    presets = "presets: {cutover: 2025-08-04}\n"
    write_config(tmp_path, Lake(folder=str(tmp_path / "lake")), presets)
    return tmp_path


def tab(folder: Path, *words: str) -> list[str]:
    """What bash offers for the last word."""
    done = subprocess.run(
        ["bash", "--norc", "-c", BASH, "bash", "floodmark", *words],
        cwd=folder,
        env={**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_commands_and_options(folder: Path) -> None:
    assert tab(folder, "wa") == ["watermark"]
    assert tab(folder, "watermark", "re") == ["reset", "restore"]
    assert tab(folder, "sync", "--back") == ["--backup-only"]
    assert tab(folder, "sync", "--strategy", "int") == ["inter-table", "intra-table"]


def test_tables_of_the_configuration(folder: Path) -> None:
    assert tab(folder, "sync", "-t", "") == ["shop.orders", "shop.payments"]
    assert tab(folder, "watermark", "get", "-t", "shop.p") == ["shop.payments"]
    assert tab(folder, "watermark", "get", "-t", "US_PROD:shop.o") == ["US_PROD:shop.orders"]


def test_pipelines_and_presets(folder: Path) -> None:
    assert tab(folder, "sync", "-p", "") == ["shop_pipeline"]
    assert tab(folder, "watermark", "set", "cut") == ["cutover"]
    assert tab(folder, "watermark", "reset", "1") == ["1day", "1week", "1month"]


def test_the_configuration_that_is_named(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    config = str(folder / "floodmark.yml")
    assert tab(elsewhere, "sync", "-p", "") == []
    assert tab(elsewhere, "sync", "--config", config, "-p", "") == ["shop_pipeline"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_scripts_of_theirs(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["completion", shell], standalone_mode=False)
    assert f"_FLOODMARK_COMPLETE={shell}_complete" in capsys.readouterr().out
