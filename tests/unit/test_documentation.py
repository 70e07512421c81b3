"""The documentation speaks of everything that there is, and of nothing else."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import Struct

from floodmark.config import models

ROOT = Path(__file__).parents[2]
CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text()


def test_what_is_generated_is_up_to_date() -> None:
    script = ROOT / "scripts" / "reference.py"
    check = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert check.returncode == 0, check.stderr


def test_every_part_of_the_configuration_has_a_table() -> None:
    structs = [
        name
        for name, value in vars(models).items()
        if isinstance(value, type)
        and issubclass(value, Struct)
        and value.__module__ == models.__name__
    ]
    for name in structs:
        assert f"<!-- generated: fields config.models:{name} -->" in CONFIGURATION


PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
LINKS = [
    (page, link)
    for page in PAGES
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    if not link.startswith("http")
]


@pytest.mark.parametrize(("page", "link"), LINKS, ids=lambda value: str(value))
def test_links_lead_somewhere(page: Path, link: str) -> None:
    assert (page.parent / link).exists()


ANCHORS = [
    (page, (page.parent / file).resolve() if file else page, anchor)
    for page in PAGES
    for file, anchor in re.findall(r"\]\(([^)#\s:]*\.md|)#([^)\s]+)\)", page.read_text())
]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub names them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(("page", "file", "anchor"), ANCHORS, ids=lambda value: str(value))
def test_links_to_headings_lead_somewhere(page: Path, file: Path, anchor: str) -> None:
    assert anchor in anchors(file)


def test_every_page_can_be_found_from_the_readme() -> None:
    reached, unread = set(), [ROOT / "README.md"]
    while unread:
        page = unread.pop()
        reached.add(page)
        links = {(page.parent / link).resolve() for source, link in LINKS if source == page}
        unread += [link for link in links - reached if link.suffix == ".md"]
    assert {page for page in PAGES if page.parent != ROOT} <= reached


def test_python_of_the_guide_passes_mypy(tmp_path: Path) -> None:
    """Strictly, as in a user's project; and a wrong line is found. Fast after `make check`."""
    text = (ROOT / "docs" / "guides" / "python.md").read_text()
    guide = "\n".join(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL))
    assert "open_project" in guide
    (tmp_path / "guide.py").write_text(guide)
    (tmp_path / "wrong.py").write_text("import floodmark\n\nfloodmark.open_project(7)\n")
    files = [tmp_path / "guide.py", tmp_path / "wrong.py"]
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", *files], cwd=ROOT, capture_output=True, text=True
    )
    errors = [line for line in checked.stdout.splitlines() if ": error:" in line]
    assert [Path(line.split(":")[0]).name for line in errors] == ["wrong.py"], checked.stdout
