"""Every method rejects an argument of a wrong type, and names it."""

import inspect
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

import floodmark
from floodmark.api.lake import Lake
from floodmark.api.project import Project
from floodmark.api.watermarks import Watermarks

TABLE = floodmark.TableName("P", "shop", "orders")
CONFIG = """
lake: ./lake
connections:
  P: {type: mysql, host: 127.0.0.1, port: 1, user: u, password: p}
  T: {type: duckdb, path: t.duckdb}
pipelines:
  shop: {source: P, target: T, tables: {shop.orders: {}}}
"""
VALID: dict[str, Any] = {"table": "shop.orders", "to": "shop.orders", "state": "1-1"}
VALID |= {"preset": "1day", "run_id": "20250801_000000_aaaaaa"}
VALID_IN = {"can_move": {"table": TABLE, "to": TABLE}}


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    (tmp_path / "floodmark.yml").write_text(CONFIG)
    with floodmark.open_project(tmp_path / "floodmark.yml") as project:
        yield project


def owners(project: Project) -> dict[type, Any]:
    return {Project: project, Watermarks: project.watermarks, Lake: project.lake}


def parameters() -> list[tuple[type, str, str]]:
    return [
        (owner, method, name)
        for owner in (Project, Watermarks, Lake)
        for method, function in inspect.getmembers(owner, inspect.isfunction)
        if not method.startswith("_")
        for name in list(inspect.signature(function).parameters)[1:]
    ]


@pytest.mark.parametrize(("owner", "method", "name"), parameters())
def test_every_method_names_a_wrong_argument(
    project: Project, owner: type, method: str, name: str
) -> None:
    call = getattr(owners(project)[owner], method)
    known = VALID | VALID_IN.get(method, {})
    required = {
        p.name: known[p.name]
        for p in inspect.signature(call).parameters.values()
        if p.default is p.empty
    }
    with pytest.raises(floodmark.UsageError, match=rf"^{name} must be .*object object"):
        call(**required | {name: object()})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: p.sync(b"shop.orders"), "tables must be a name or several names, not b'shop"),
        (lambda p: p.sync([7]), "tables must be names, and 7 is not one"),
        (lambda p: p.sync(pipelines=7), "pipelines must be a name or several names, not 7"),
        (lambda p: p.sync(stages=[["load"]]), r"stages must be names, and \['load'\] is not one"),
        (lambda p: p.sync(limit="5"), "limit must be a whole number or None, not '5'"),
        (lambda p: p.sync(limit=True), "limit must be a whole number or None, not True"),
        (lambda p: p.verify(everything="no"), "everything must be True or False, not 'no'"),
        (
            lambda p: p.watermarks.set("shop.orders", timestamp=date(2025, 6, 1)),
            r"timestamp must be a datetime or None, not datetime.date\(2025",
        ),
        (lambda p: p.watermarks.set("shop.orders", id=-1), "id '-1' is negative"),
        (lambda p: p.watermarks.set("shop.orders", id=2**64), "larger than any id"),
        (lambda p: p.watermarks.history("shop.orders", 0), "most must be a positive number"),
        (lambda p: p.watermarks.prune(keep_days=-1), "keep_days -1 is not a number of days"),
        (lambda p: p.watermarks.reset("shop.orders", stages=()), "no stage given"),
        (lambda p: p.watermarks.get(floodmark.TableName("X", "y", "z")), "unknown table 'X:y.z'"),
    ],
)
def test_wrong_arguments(project: Project, call: Callable[[Project], Any], message: str) -> None:
    with pytest.raises(floodmark.UsageError, match=message):
        call(project)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"path": 7}, "path must be a string or a path or None, not 7"),
        ({"path": b"floodmark.yml"}, "path must be a string or a path or None, not b'"),
        ({"environment": ["A=b"]}, "environment must be a mapping or None"),
        ({"environment": {"PASSWORD": b"secret"}}, "strings; 'PASSWORD' is bytes$"),
        ({"on_notice": "print"}, "on_notice must be callable or None, not 'print'"),
        ({"on_progress": 7}, "on_progress must be callable or None, not 7"),
    ],
)
def test_wrong_arguments_of_open_project(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(floodmark.UsageError, match=message):
        floodmark.open_project(**arguments)


def test_one_name_may_be_given_in_many_ways(project: Project) -> None:
    marks = project.watermarks
    assert marks.get("shop.orders") is marks.get("P:shop.orders") is marks.get(TABLE) is None
    assert marks.reset(TABLE, stages="load").position.is_start
    assert project.lake.tables() == (TABLE,)
