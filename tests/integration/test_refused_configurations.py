"""Unusable configurations are refused in one line, before anything is changed."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hints import commands_in
from pipelines import Ended, Pipeline, ask_once
from scenarios import use_test_keys
from warehouses import name_target, new_warehouse

New = Callable[..., Pipeline]


def make(pipeline: New, wanted: str = "{}", **options: str) -> Pipeline:
    it = pipeline({"t": wanted}, **options)
    ask_once(it, "CREATE TABLE t (id BIGINT AUTO_INCREMENT PRIMARY KEY, v INT)")
    ask_once(it, "INSERT INTO t (v) VALUES (1), (2), (3)")
    return it


def refused(it: Pipeline, *arguments: str, code: int = 2) -> str:
    """Run a command that must be refused before anything is written."""
    ended = it.call(*arguments)
    assert ended.code == code, ended
    assert not it.files()
    assert "unexpected" not in ended.out + ended.err
    return one_line(ended)


def one_line(ended: Ended) -> str:
    return " ".join((ended.out + ended.err).split())


def edit(it: Pipeline, old: str, new: str) -> None:
    text = Path(it.config).read_text()
    assert old in text
    Path(it.config).write_text(text.replace(old, new))


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        ("postgres", ["tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"]),
        ("postgres", ["c" * 64, "é" * 32]),
        ("redshift", ["OID", "ctid", "insertxid", "deletexid", "xmin"]),
    ],
)
@pytest.mark.follows_hint("exclude it: 'exclude:", "leave it out: 'exclude:")
def test_names_that_a_target_keeps_for_itself(
    pipeline: New,
    kind: str,
    columns: list[str],
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    """Following the hint, the table arrives without them."""
    warehouse = new_warehouse(kind, request, tmp_path)
    it = pipeline({"t": "{}"})
    it = Pipeline(it.folder, warehouse.lake, it.source, it.schema, it.tables).write_config()
    name_target(it.config, warehouse.connection)
    more = ", ".join(f"`{name}` INT DEFAULT 7" for name in columns)
    ask_once(it, f"CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT, {more})")
    ask_once(it, "INSERT INTO t (v) VALUES (1), (2), (3)")
    for command in (["sync", "-p", "main"], ["sync", "-p", "main", "--backup-only"]):
        said = refused(it, *command)
    assert f"the target reserves the column name {', '.join(columns)}" in said
    assert "the target reserves the column name" in one_line(it.call("doctor"))
    assert "the target reserves the column name" in one_line(
        it.call("sync", "-p", "main", "--dry-run")
    )
    hint = re.search(r"'(exclude: \[.*?\])'", said)
    assert hint
    edit(it, 't": {}', f't": {{{hint[1]}}}')
    assert it.call("sync", "-p", "main").code == 0
    assert sorted(warehouse.query('SELECT id, v FROM {schema}."t"')) == [(1, 1), (2, 2), (3, 3)]


@pytest.mark.enough_on("mysql")
@pytest.mark.follows_hint("leave it out with 'exclude: […]' for the table, or rename it")
def test_long_names_that_another_target_took(
    pipeline: New, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """They are in the lake already: whatever the hints say, in their order, leads out."""
    warehouse = new_warehouse("postgres", request, tmp_path)
    column, table = "c" * 64, "t" * 64
    it = pipeline({table: "{}"})
    ask_once(it, f"CREATE TABLE {table} (id INT AUTO_INCREMENT PRIMARY KEY, {column} INT)")
    ask_once(it, f"INSERT INTO {table} VALUES (1, 1), (2, 2)")
    assert it.call("sync", "-p", "main").code == 0
    name_target(it.config, warehouse.connection)
    ended = it.call("sync", "-p", "main")
    assert ended.code == 2
    assert "hint: give the table a shorter 'target_name'" in one_line(ended)
    edit(it, f'{table}": {{}}', f'{table}": {{target_name: t}}')
    ended = it.call("sync", "-p", "main")
    assert f"'exclude: [{column}]'" in one_line(ended)
    edit(it, "{target_name: t}", f"{{target_name: t, exclude: [{column}]}}")
    ended = it.call("sync", "-p", "main")
    assert ended.code == 1
    (command,) = commands_in(ended.out + ended.err)
    assert it.call(*command).code == 0
    assert it.call("sync", "-p", "main").code == 0
    assert sorted(warehouse.query('SELECT id FROM {schema}."t"')) == [(1,), (2,)]


@pytest.mark.enough_on("mysql")
def test_names_that_only_another_target_keeps(
    pipeline: New, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    warehouse = new_warehouse("postgres", request, tmp_path)
    it = pipeline({"t": "{}"})
    name_target(it.config, warehouse.connection)
    ask_once(it, "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, oid INT, XMIN INT, rowid INT)")
    ask_once(it, "INSERT INTO t VALUES (1, 2, 3, 4)")
    assert it.call("sync", "-p", "main").code == 0
    assert warehouse.query('SELECT id, oid, "XMIN", rowid FROM {schema}."t"') == [(1, 2, 3, 4)]


@pytest.mark.enough_on("mysql")
def test_name_that_is_kept_and_part_of_the_key(
    pipeline: New, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    warehouse = new_warehouse("postgres", request, tmp_path)
    it = pipeline({"t": "{}"})
    name_target(it.config, warehouse.connection)
    ask_once(it, "CREATE TABLE t (xmin INT AUTO_INCREMENT PRIMARY KEY)")
    assert "hint: rename it in the source" in refused(it, "sync", "-p", "main")


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize("arguments", [(), ("--dry-run",), ("--redshift-only",)])
def test_redshift_cannot_read_a_folder(
    pipeline: New,
    arguments: tuple[str, ...],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_test_keys(monkeypatch)
    it = make(pipeline)
    name_target(it.config, new_warehouse("redshift", request, tmp_path).connection)
    said = refused(it, "sync", "-p", "main", *arguments)
    assert "Redshift cannot read the lake in" in said
    assert "hint: Redshift needs a lake in S3: lake: s3://bucket/prefix" in said


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize("path", ["file", "file/below"])
@pytest.mark.follows_hint("set 'lake:' to a folder, or to a path")
def test_lake_that_is_a_file(pipeline: New, path: str) -> None:
    it = make(pipeline)
    Path(it.folder, "file").touch()
    lake = it.lake.yaml
    edit(it, f"lake: {lake}", f"lake: ./{path}")
    for command in (("sync", "-p", "main"), ("doctor",), ("watermark", "list")):
        assert "file is not a folder" in refused(it, *command)
    edit(it, f"lake: ./{path}", f"lake: {lake}")
    assert it.call("sync", "-p", "main").code == 0


@pytest.mark.enough_on("mysql")
@pytest.mark.follows_hint("list some under 'tables:'", "list tables under 'tables:'")
def test_pipeline_without_tables(pipeline: New) -> None:
    it = make(pipeline)
    listed = f'    tables:\n      "{it.schema}.t": {{}}\n'
    edit(it, listed, "    tables: {}\n")
    assert "pipeline 'main' has no tables" in refused(it, "sync", "-p", "main")
    doctor = it.call("doctor")
    assert doctor.code == 1
    assert "0 tables hint: list tables under 'tables:'" in one_line(doctor)
    edit(it, "    tables: {}\n", listed)
    assert it.call("sync", "-p", "main").code == 0


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("{cursor: [id, ID]}", "'cursor' lists a column twice"),
        ("{sortkey: [id, id]}", "'sortkey' lists a column twice"),
        ("{target_name: ''}", "target_name: Expected `str` of length >= 1: ''"),
    ],
)
def test_settings_of_a_table_that_mean_nothing(pipeline: New, wanted: str, message: str) -> None:
    assert message in refused(make(pipeline, wanted), "sync", "-p", "main")


@pytest.mark.enough_on("mysql")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sync", "-p", "main", "--limit", "9" * 30), "is not a positive number of rows"),
        (("sync", "-p", "main", "--every", "99999w"), "'99999w' is too long"),
        (("watermark", "history", "-t", "{t}", "--most", "9" * 30), "range 1<=x<=100000"),
        (("s3clean", "clean", "-t", "{t}", "--older-than", "99999w"), "'99999w' is too long"),
    ],
)
def test_huge_numbers_of_options(pipeline: New, arguments: tuple[str, ...], message: str) -> None:
    it = make(pipeline)
    words = [word.replace("{t}", str(it.table())) for word in arguments]
    assert message in refused(it, *words)
