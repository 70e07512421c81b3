"""Keep words out that nobody in the field would search for or say."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORDS = {
    "again and again": "repeatedly",
    "anew": "again",
    "at work": "running",
    "heeded": "used, respected",
    "is told": "gets, is shown",
    "mend": "fix or repair",
    "mended": "fixed",
    "mending": "fixing",
    "mends": "fixes",
    "misfit": "unsupported value",
    "misfits": "unsupported values",
    "overheard": "logged by libraries",
    "sieve": "filter",
    "steer": "change, control",
    "steering": "changing, controlling",
    "there twice": "duplicated",
    "told of": "reported",
    "whoever": "the caller, the operator",
}
# Also in names: an underscore is a space.
FOUND = re.compile(rf"(?<![a-z])({'|'.join(WORDS)})(?![a-z])".replace(" ", "[ _]"), re.IGNORECASE)
FOLDERS = ("src", "tests", "docs", "bench", "scripts", "examples")
KEPT = {"CHANGELOG.md", "test_language.py"}  # the past, and this list


def test_plain_words_are_used() -> None:
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]!r}; say {_better(match[0])!r}"
        for path in sorted([*files, *ROOT.glob("*.md")])
        if path.suffix in (".py", ".md", ".yml", ".sh", "") and path.is_file()
        if path.name not in KEPT
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        for match in FOUND.finditer(line)
    ]
    assert not found, "\n".join(found)


def _better(found: str) -> str:
    return WORDS[found.lower().replace("_", " ")]
