"""What is pinned runs on the oldest Python that we promise to run on."""

import re
import tomllib
from importlib.metadata import distributions
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def test_what_is_pinned_takes_the_oldest_python() -> None:
    promised = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    oldest = f"{promised.removeprefix('>=')}.0"
    pinned = dict(re.findall("^([^=#\n]+)==(.+)$", (ROOT / "constraints.txt").read_text(), re.M))
    wanted = {canonicalize_name(name): version for name, version in pinned.items()}
    found = [
        package
        for package in distributions()
        if wanted.get(canonicalize_name(package.name)) == package.version
    ]
    assert len(found) > len(wanted) / 2
    for package in found:
        takes = SpecifierSet(str(package.metadata.json.get("requires_python", "")))
        assert takes.contains(oldest), f"{package.name} {package.version} wants {takes}"
