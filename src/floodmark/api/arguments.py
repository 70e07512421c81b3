"""Check the types of arguments where they enter the public API."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from floodmark.errors import UsageError
from floodmark.model.run import Stage
from floodmark.model.table import TableName

Table = str | TableName
"""A table: `schema.table`, `SCOPE:schema.table`, or a TableName."""

Names = str | Iterable[str] | None
"""One name, several names, or None."""

_SHOWN: dict[Any, str] = {
    str: "a string",
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    datetime: "a datetime",
    timedelta: "a timedelta",
    TableName: "a TableName",
    bytes: "bytes",
    Mapping: "a mapping",
    Callable: "callable",
    os.PathLike: "a path",
}


def expect(name: str, value: object, *types: Any, optional: bool = False) -> None:
    """Raise UsageError unless an argument has one of the types; a bool is not a number."""
    if value is None and optional:
        return
    if isinstance(value, types) and (bool in types or not isinstance(value, bool)):
        return
    shown = [_SHOWN.get(kind) or f"a {kind.__name__}" for kind in types]
    expected = " or ".join(shown + ["None"] * optional)
    raise UsageError(f"{name} must be {expected}, not {value!r}")


def expect_flags(**flags: object) -> None:
    """Raise UsageError unless all arguments are True or False."""
    for name, value in flags.items():
        expect(name, value, bool)


def expect_session(name: str, session: object) -> None:
    """Raise UsageError unless an argument is a Spark session, classic or Spark Connect."""
    if session is not None and not hasattr(session, "createDataFrame"):
        raise UsageError(f"{name} must be a SparkSession or None, not {session!r}")


def expect_variables(name: str, variables: object) -> None:
    """Raise UsageError unless an argument maps names to strings; values may be secret."""
    expect(name, variables, Mapping, optional=True)
    for key, value in (variables or {}).items():  # type: ignore[attr-defined]
        if not isinstance(value, str):
            raise UsageError(f"{name} must map names to strings; {key!r} is {type(value).__name__}")


def as_list(name: str, names: Names) -> list[str]:
    """Return an argument as a list of names; a string is one name."""
    if names is None:
        return []
    if isinstance(names, str | TableName):
        return [str(names)]
    if isinstance(names, bytes) or not isinstance(names, Iterable):
        raise UsageError(f"{name} must be a name or several names, not {names!r}")
    found = list(names)
    for one in found:
        if not isinstance(one, str | TableName):
            raise UsageError(f"{name} must be names, and {one!r} is not one")
    return [str(one) for one in found]


def as_stages(stages: Stage | Sequence[Stage]) -> tuple[Stage, ...]:
    """Return an argument as stages; UsageError if one of them is unknown."""
    found = as_list("stages", stages)
    if not set(found) <= {"extract", "load"}:
        raise UsageError(f"unknown stages {found}: expected 'extract', 'load' or both")
    return tuple(stage for stage in ("extract", "load") if stage in found)
