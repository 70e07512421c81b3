"""`floodmark.__all__` has every class that a user can receive or pass, and the examples run."""

import ast
import inspect
import re
import sys
import textwrap
import typing
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from msgspec import Struct

import floodmark
from floodmark.api.context import RunContext

# Their parts are described in docs/formats.md.
DOCUMENTS = {floodmark.Manifest, floodmark.Watermark, floodmark.Restart}
# Of a method for the status page.
INTERNAL = {RunContext}


def namespace(module: ModuleType) -> dict[str, Any]:
    """The names of a module, with those that it imports for type checkers only."""
    exported = {name: getattr(floodmark, name) for name in floodmark.__all__}
    names = {**exported, **vars(module)}  # the former for aliases like OnProgress
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom):
            imported = import_module(node.module or "")
            names |= {a.asname or a.name: getattr(imported, a.name) for a in node.names}
    return names


def classes_in(hint: object) -> Iterator[type]:
    if isinstance(hint, type) and hint.__module__.startswith("floodmark"):
        yield hint
    parts = hint if isinstance(hint, list) else typing.get_args(hint)  # Callable[[A], B]
    for part in parts:
        yield from classes_in(part)


def annotated(owner: Any) -> Iterator[type]:
    """The classes in the annotations of one function, or of the public parts of a class."""
    if isinstance(owner, FunctionType):
        hints = typing.get_type_hints(owner, namespace(sys.modules[owner.__module__]))
        for hint in hints.values():
            yield from classes_in(hint)
        return
    for base in owner.__mro__:
        if not base.__module__.startswith("floodmark"):
            continue
        names = namespace(sys.modules[base.__module__])
        if issubclass(base, Struct):
            for name, hint in typing.get_type_hints(base, names).items():
                if not name.startswith("_"):
                    yield from classes_in(hint)
        for name, member in vars(base).items():
            function = member.fget if isinstance(member, property) else member
            function = getattr(function, "__func__", function)
            if not name.startswith("_") and isinstance(function, FunctionType):
                yield from annotated(function)


def reachable() -> set[type]:
    found: set[type] = set()
    waiting = [floodmark.Project, floodmark.Watermarks, floodmark.Lake]
    waiting += annotated(floodmark.open_project)
    while waiting:
        one = waiting.pop()
        if one not in found and one not in INTERNAL:
            found.add(one)
            if one not in DOCUMENTS:
                waiting += annotated(one)
    return {one for one in found if not one.__module__.startswith("floodmark.config")}


def test_every_class_that_a_user_can_receive_is_exported() -> None:
    exported = {getattr(floodmark, name) for name in floodmark.__all__ if name != "__version__"}
    missing = {f"{one.__module__}.{one.__name__}" for one in reachable() - exported}
    assert missing == set()


def test_every_name_comes_from_the_file_that_defines_it() -> None:
    """A name taken from another file would import more than it needs."""
    for name, module in floodmark._LAZY.items():
        if not module.startswith("floodmark.api."):  # some names are public in `api` only
            assert getattr(floodmark, name).__module__ == module


def test_the_example_of_the_package_is_python() -> None:
    (example,) = (
        part for part in (inspect.getdoc(floodmark) or "").split("\n\n") if part.startswith("    ")
    )
    compile(textwrap.dedent(example), "<example>", "exec")


def test_the_command_line_uses_the_public_parts_of_a_project() -> None:
    cli = Path(floodmark.__file__).parent / "cli"
    internal = re.compile(r"RunContext|new_run|api\.watermarks import.*\bWatermarks\(|\bLake\(")
    files = {str(f.relative_to(cli)) for f in cli.rglob("*.py") if internal.search(f.read_text())}
    assert files <= {"page/document.py"}
