"""The Dockerfile and the compose file name what there is; nobody has built them here."""

import re
from pathlib import Path

import yaml

from floodmark.cli.demo import NEEDED

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")


def test_what_is_copied_is_there_and_let_through() -> None:
    copied = [name for line in re.findall("^COPY (.+) ", TEXT, re.M) for name in line.split()]
    assert copied
    through = (ROOT / ".dockerignore").read_text().split()
    for name in copied:
        assert (ROOT / name).exists()
        assert f"!{name}" in through


def test_the_demo_has_the_programs_that_it_needs() -> None:
    installed = {word for line in re.findall("apt-get install (.+)", TEXT) for word in line.split()}
    assert set(NEEDED.values()) <= installed


def test_services_are_built_from_stages_that_there_are() -> None:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    stages = re.findall(r"^FROM \S+ AS (\w+)", TEXT, re.M)
    assert {service["build"]["target"] for service in services.values()} == set(stages)
    assert 'CMD ["demo"]' in TEXT.partition("AS demo")[2]
