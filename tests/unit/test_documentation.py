"""The documentation speaks of everything that there is, and of nothing else."""

import re
from pathlib import Path
from typing import get_args

import click
import pytest
from click.testing import CliRunner

from floodmark.cli.main import cli
from floodmark.config import models

ROOT = Path(__file__).parents[2]
CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text()
README = (ROOT / "README.md").read_text()

STRUCTS = [
    models.Config,
    models.LakeSettings,
    *get_args(models.Connection),
    models.TunnelSettings,
    models.Pipeline,
    models.TableSettings,
    models.ExtractionSettings,
    models.LoadingSettings,
    models.SparkSettings,
    models.RetrySettings,
]


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_every_key_is_documented(struct: type) -> None:
    for key in struct.__struct_fields__:  # type: ignore[attr-defined]
        assert re.search(rf"`[^`]*\b{key}\b[^`]*`", CONFIGURATION), key


def commands() -> list[list[str]]:
    found = re.findall(r"^floodmark ([^#\n>]+)", README, re.MULTILINE)
    return [line.strip().split() for line in found]


def test_the_readme_shows_commands() -> None:
    assert len(commands()) > 10


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_commands_of_the_readme_exist(words: list[str]) -> None:
    """Each takes the options that the README gives it: asking for help parses them first."""
    group: click.Command = cli
    context = click.Context(cli)
    while isinstance(group, click.Group):
        name = words[0]
        command = group.get_command(context, name)
        assert command is not None, f"no command {name}"
        group, words = command, words[1:]
    known = {name for parameter in group.params for name in parameter.opts}
    used = {word for word in words if word.startswith("-")}
    assert used <= known, used - known
    assert CliRunner().invoke(group, ["--help"]).exit_code == 0
