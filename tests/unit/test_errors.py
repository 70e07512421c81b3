"""All errors are in one file, whose docstring draws their tree."""

import ast
import re
from pathlib import Path

from floodmark import errors
from floodmark.errors import FloodmarkError

PACKAGE = Path(errors.__file__).parent
OURS = {
    name: value
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, FloodmarkError)
}


def drawn() -> dict[str, str]:
    """Each class in the tree of the docstring, with the one that it is below."""
    parents, path = {}, ["FloodmarkError"]
    for line in (errors.__doc__ or "").splitlines():
        if found := re.match(r"([│ ]*)[├└]── (\w+) +\S", line):
            depth = len(found[1]) // 4 + 1
            parents[found[2]] = path[depth - 1]
            path[depth:] = [found[2]]
    return parents


def test_the_tree_in_the_docstring_is_that_of_the_classes() -> None:
    classes = {n: c.__bases__ for n, c in OURS.items() if c is not FloodmarkError}
    tree = drawn()
    assert tree.keys() == classes.keys()
    for name, parent in tree.items():
        assert OURS[parent] in classes[name], f"{name} is not below {parent}"


def test_no_other_file_defines_an_error_of_ours() -> None:
    elsewhere = {
        f"{path.relative_to(PACKAGE)}: {node.name}"
        for path in PACKAGE.rglob("*.py")
        if path.name != "errors.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        for base in node.bases
        if ast.unparse(base).rpartition(".")[2] in OURS
    }
    assert elsewhere == set()
