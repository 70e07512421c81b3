"""Keep words out that nobody in the field would search for or say."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORDS = {
    "anew": "again",
    "mend": "fix or repair",
    "mended": "fixed",
    "mending": "fixing",
    "mends": "fixes",
    "misfit": "unsupported value",
    "misfits": "unsupported values",
    "overheard": "logged by libraries",
    "sieve": "filter",
    "told of": "reported",
    "whoever": "the caller, the operator",
}
FOUND = re.compile(rf"\b({'|'.join(WORDS)})\b", re.IGNORECASE)
FOLDERS = ("src", "tests", "docs", "bench", "scripts", "examples")
KEPT = {"CHANGELOG.md", "test_language.py"}  # the past, and this list


def test_plain_words_are_used() -> None:
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]!r}; say {WORDS[match[0].lower()]!r}"
        for path in sorted([*files, *ROOT.glob("*.md")])
        if path.suffix in (".py", ".md", ".yml", ".sh", "") and path.is_file()
        if path.name not in KEPT
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        for match in FOUND.finditer(line)
    ]
    assert not found, "\n".join(found)
