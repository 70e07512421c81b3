"""The documentation speaks of everything that there is, and of nothing else."""

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from msgspec import Struct

from floodmark.cli.main import cli
from floodmark.config import models

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text()


def test_what_is_generated_is_up_to_date() -> None:
    script = ROOT / "scripts" / "reference.py"
    check = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert check.returncode == 0, check.stderr


def test_every_part_of_the_configuration_has_a_table() -> None:
    structs = [
        name
        for name, value in vars(models).items()
        if isinstance(value, type) and issubclass(value, Struct) and value is not Struct
    ]
    for name in structs:
        assert f"<!-- generated: fields config.models:{name} -->" in CONFIGURATION


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
