"""What is pinned runs on the oldest Python that we promise to run on, and is what is installed."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def pinned() -> dict[str, str]:
    lines = re.findall("^([^=#\n]+)==(.+)$", (ROOT / "constraints.txt").read_text(), re.M)
    return {canonicalize_name(name): version for name, version in lines}


def test_what_is_pinned_takes_the_oldest_python() -> None:
    promised = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    oldest = f"{promised.removeprefix('>=')}.0"
    wanted = pinned()
    found = [
        package
        for package in distributions()
        if wanted.get(canonicalize_name(package.name)) == package.version
    ]
    assert len(found) > len(wanted) / 2
    for package in found:
        takes = SpecifierSet(str(package.metadata.json.get("requires_python", "")))
        assert takes.contains(oldest), f"{package.name} {package.version} wants {takes}"


def test_what_is_hashed_is_all_that_is_needed_as_it_is_pinned() -> None:
    text = (ROOT / "requirements.txt").read_text()
    hashed = dict(re.findall(r"^([a-z0-9.-]+)==(\S+).*\\\n +--hash=sha256:", text, re.M))
    assert len(hashed) == len(re.findall(r"^\S", text, re.M))
    assert hashed.items() <= pinned().items()
    assert needed("floodmark", {"all"}) <= {*hashed, "floodmark"}
    assert "://" not in text  # the user chooses the registry


def needed(name: str, extras: set[str], seen: set[str] | None = None) -> set[str]:
    """What an installed package requires here, and what that requires."""
    seen = set() if seen is None else seen
    seen.add(canonicalize_name(name))
    try:
        requires = distribution(name).requires or []
    except PackageNotFoundError:
        return seen
    for wanted in map(Requirement, requires):
        marker = wanted.marker
        here = marker is None or any(marker.evaluate({"extra": e}) for e in {"", *extras})
        if here and (wanted.extras or canonicalize_name(wanted.name) not in seen):
            needed(wanted.name, wanted.extras, seen)
    return seen
