"""All hints of the source code that name something to do."""

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from msgspec import Struct

ROOT = Path(__file__).parents[1] / "src" / "floodmark"

# A command of ours, a statement for a database, or a key of the configuration with its value.
LEADS = re.compile(
    r"\bfloodmark \w|\bwatermark (?:set|reset|restore|validate|history|get)\b|s3clean |--repair"
    r"|\b(?:CREATE|GRANT|KILL|DROP|ALTER|SET) [A-Z]|'\w+: [^']*'|: \{"
)
STORIES = (
    "demo.py",
    "init.py",
    "template.py",
)  # they show commands, and tests of their own run them
OURS = re.compile(r"floodmark (?:watermark|s3clean|doctor|init|sync|reconcile|recover) ")


class Hint(Struct, frozen=True, order=True):
    """A hint: where it stands, and its text with `…` for what is filled in."""

    place: str
    text: str


def hints() -> list[Hint]:
    """All hints that lead somewhere, in the order of their places."""
    found = {
        Hint(str(path.relative_to(ROOT)), text)
        for path in ROOT.rglob("*.py")
        if path.name not in STORIES
        for text in _texts(ast.parse(path.read_text()))
        if LEADS.search(text)
    }
    return sorted(found)


def _texts(tree: ast.Module) -> Iterator[str]:
    """What is given as `hint=`, and every text that names one of our commands in full."""
    named: dict[str, list[ast.expr]] = {}
    given: list[ast.expr] = []
    remarks = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    remarks |= {
        id(part) for n in ast.walk(tree) if isinstance(n, ast.JoinedStr) for part in n.values
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            named.setdefault(node.targets[0].id, []).append(node.value)
        elif isinstance(node, ast.keyword) and node.arg in ("hint", "hints"):
            given.append(node.value)
        elif isinstance(node, ast.JoinedStr | ast.Constant) and id(node) not in remarks:
            given += [node] if any(map(OURS.search, _written(node))) else []
    constants = {name for name in named if name.isupper()}
    for value in given:
        used = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
        for name in used & ({"hint"} | constants):
            given.extend(named.get(name, []))
        yield from _written(value)


def _written(value: ast.expr) -> Iterator[str]:
    if isinstance(value, ast.IfExp):
        yield from _written(value.body)
        yield from _written(value.orelse)
    elif isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value
    elif isinstance(value, ast.JoinedStr):
        parts = (str(p.value) if isinstance(p, ast.Constant) else "…" for p in value.values)
        yield "".join(parts)
    elif isinstance(value, ast.BinOp):
        left, right = [*_written(value.left)] or ["…"], [*_written(value.right)] or ["…"]
        yield left[0] + right[0]


@cache
def followed() -> tuple[str, ...]:
    """What tests with the marker `follows_hint` say that they follow: parts of hints."""
    texts = (path.read_text() for path in Path(__file__).parent.rglob("test_*.py"))
    return tuple(
        argument.value
        for text in texts
        if "follows_hint" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "follows_hint"
        for argument in node.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    )


_KNOWN = r"(?:watermark|s3clean|doctor|reconcile|recover)"
_COMMAND = re.compile(
    rf"'floodmark ({_KNOWN} [^']*)'"
    rf"|floodmark ({_KNOWN} (?:[^',;]|'[^']*')+?)(?=,|;|$| hint:| error:)"
)


def commands_in(said: str) -> list[list[str]]:
    """The commands that hints of an output tell to run, in their order."""
    text = " ".join(said.split())
    return [shlex.split(found[1] or found[2]) for found in _COMMAND.finditer(text)]
