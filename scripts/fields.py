"""Read the docstrings below the fields of models."""

import ast
from inspect import getsource


def attribute_docstrings(struct: type) -> dict[str, str]:
    """Return the docstring below each field of a class."""
    (definition,) = ast.parse(getsource(struct)).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for field, text in zip(definition.body, definition.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            found[field.target.id] = " ".join(str(text.value.value).split()).rstrip(".")
    return found
