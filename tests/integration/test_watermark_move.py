"""A renamed table continues with its history, position and loaded rows."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from floodmark.model.table import TableName
from floodmark.storage.local import LocalObjectStore
from floodmark.warehouse.duckdb import DuckdbTarget
from hints import commands_in
from pipelines import SCOPE, Ended, Pipeline, ask_once
from scenarios import open_store
from target_tables import CURSOR, KEYED, KEYLESS, Make, edit, held, insert
from warehouses import Warehouse, name_target, new_warehouse

pytestmark = pytest.mark.enough_on("mysql")

SYNC = ("sync", "-p", "main")


def begin(pipeline: Make, definition: str) -> Pipeline:
    """A table that was synced twice, with a chunk that is not loaded yet."""
    it = pipeline({"t": f"{{{CURSOR[definition]}}}"})
    ask_once(it, definition.format("t"))
    for first in (1, 11):
        insert(it, "t", first, first + 9)
        assert it.call(*SYNC).code == 0
    insert(it, "t", 21, 22)
    assert it.call(*SYNC, "--backup-only").code == 0
    return it


def rename_connection(it: Pipeline) -> None:
    edit(it, (f"  {SCOPE}:", "  P2:"), (f"source: {SCOPE}", "source: P2"))


def move(it: Pipeline) -> Ended:
    return it.call("watermark", "move", "-t", old(it), "--to", new(it), "--force")


def old(it: Pipeline) -> str:
    return f"{SCOPE}:{it.schema}.t"


def new(it: Pipeline) -> str:
    return f"P2:{it.schema}.t"


def check_moved(it: Pipeline) -> None:
    """The new name goes on, whole and once; a lost warehouse is loaded from the lake under it."""
    insert(it, "t", 31, 35)
    ended = it.call(*SYNC, "--json")
    assert ended.code == 0, ended
    assert (ended.table["rows"], ended.table["loaded_rows"]) == (5, 7)
    expected = [row[0] for row in ask_once(it, "SELECT id FROM t ORDER BY id")]
    assert held(it, "t") == expected
    validated = it.call("watermark", "validate")
    assert validated.code == 0, validated
    (it.folder / "warehouse.duckdb").unlink()
    assert it.call(*SYNC).code == 0
    assert held(it, "t") == expected


@pytest.mark.follows_hint("under a new name: floodmark watermark move -t … --to …")
@pytest.mark.parametrize("definition", [KEYED, KEYLESS], ids=["keyed", "keyless"])
def test_a_renamed_connection_is_followed(pipeline: Make, definition: str) -> None:
    it = begin(pipeline, definition)
    rename_connection(it)
    refused = it.call(*SYNC)
    assert refused.code == 1
    (command,) = commands_in(refused.err)
    ended = it.call(*command, "--force")
    assert ended.code == 0, ended
    assert f"{old(it)} → {new(it)}" in ended.out
    before, after = ([m.head for m in log] for log in (it.manifests(), open_log(it, "P2")))
    assert before == after
    again = move(it)
    assert again.code == 0
    assert "1 table already moved" in again.out
    listed = it.call("watermark", "list")
    assert "P2:" in listed.out
    assert f"{SCOPE}:" not in listed.out
    check_moved(it)


def open_log(it: Pipeline, scope: str) -> list[Any]:
    log, table = open_store(it.lake.open()).log, TableName(scope, it.schema, "t")
    return list(log.manifests(table))


def test_the_old_name_is_closed(pipeline: Make) -> None:
    it = begin(pipeline, KEYLESS)
    configured = Path(it.config).read_text()
    rename_connection(it)
    assert move(it).code == 0
    renamed = Path(it.config).read_text()
    Path(it.config).write_text(configured)
    for command in (
        SYNC,
        (*SYNC, "--backup-only"),
        (*SYNC, "--redshift-only"),
        ("watermark", "reset", "-t", old(it), "--force"),
        ("watermark", "set", "-t", old(it), "--timestamp", "2025-07-01", "--force"),
        ("watermark", "restore", "-t", old(it), "--from", "1-1", "--force"),
        ("s3clean", "clean", "-t", old(it), "--force"),
    ):
        ended = it.call(*command)
        assert ended.code == 2, (command, ended)
        assert f"was moved to {new(it)}" in ended.out + ended.err
    assert it.call("watermark", "validate", "-t", old(it)).code == 0
    Path(it.config).write_text(renamed)
    check_moved(it)


def test_cleaning_the_new_name_cleans_what_it_inherited(pipeline: Make) -> None:
    it = begin(pipeline, KEYED)
    rename_connection(it)
    assert move(it).code == 0
    inherited = it.files()
    assert len(inherited) == 3
    cleaned = it.call("s3clean", "clean", "-t", new(it))
    assert cleaned.code == 1, "one of them is not loaded yet"
    assert len(it.files()) == 1
    insert(it, "t", 31, 35)
    assert it.call(*SYNC).code == 0
    assert len(held(it, "t")) == 27
    assert it.call("watermark", "validate").code == 0


def test_a_source_is_moved_with_all_its_tables(pipeline: Make) -> None:
    it = pipeline({"a": "{cursor: update_at}", "b": "{cursor: update_at}"})
    for table in "ab":
        ask_once(it, KEYLESS.format(table))
        insert(it, table, 1, 10)
    assert it.call(*SYNC).code == 0
    rename_connection(it)
    moving = ("watermark", "move", "--from-scope", SCOPE, "--to-scope", "P2")
    refused = it.call(*moving)
    assert refused.code == 2
    assert "this would move" in refused.err
    assert it.call(*moving, "--force").code == 0
    assert it.call(*moving, "--force").code == 0
    insert(it, "a", 11, 12)
    assert it.call(*SYNC).code == 0
    assert (held(it, "a"), held(it, "b")) == (list(range(1, 13)), list(range(1, 11)))


def test_there_and_back_again(pipeline: Make) -> None:
    it = begin(pipeline, KEYLESS)
    configured = Path(it.config).read_text()
    rename_connection(it)
    assert move(it).code == 0
    Path(it.config).write_text(configured)
    ended = it.call("watermark", "move", "-t", new(it), "--to", old(it), "--force")
    assert ended.code == 0, ended
    check_moved(it)


@pytest.mark.follows_hint("see 'floodmark watermark list'")
def test_what_was_misspelt_is_listed(pipeline: Make) -> None:
    it = begin(pipeline, KEYED)
    rename_connection(it)
    for arguments in (
        ("-t", f"PRDO:{it.schema}.t", "--to", new(it)),
        ("--from-scope", "PRDO", "--to-scope", "P2"),
    ):
        ended = it.call("watermark", "move", *arguments, "--force")
        assert ended.code == 2
        (command,) = commands_in(ended.err)
        assert old(it) in it.call(*command).out
    assert move(it).code == 0


def put_back(it: Pipeline, backup: Path) -> None:
    """Replace the lake by an older copy of it."""
    shutil.rmtree(str(it.lake.folder))
    shutil.copytree(backup, str(it.lake.folder))


def test_a_lake_that_was_put_back_can_be_moved(pipeline: Make) -> None:
    """The ledger knows what this lake lacks: the error says so, and what to do."""
    it = begin(pipeline, KEYED)
    backup = shutil.copytree(str(it.lake.folder), it.folder / "backup")
    insert(it, "t", 23, 24)
    assert it.call(*SYNC).code == 0
    put_back(it, backup)
    insert(it, "t", 25, 26)
    assert it.call(*SYNC, "--backup-only").code == 0
    rename_connection(it)
    ended = move(it)
    assert ended.code == 0, ended
    ended = it.call(*SYNC)
    assert ended.code == 1
    assert "the lake was restored to an older state" in " ".join(ended.out.split())
    (command,) = commands_in(ended.err)
    assert command[3] == new(it)
    assert it.call(*command, "--force").code == 0
    assert it.call(*SYNC).code == 0
    assert held(it, "t") == list(range(1, 27))
    assert it.call("watermark", "validate").code == 0


def test_two_loads_that_cannot_be_merged_are_unchanged(pipeline: Make) -> None:
    """The lake has forgotten that the new name was loaded, into a table of its own."""
    it = begin(pipeline, KEYED)
    backup = shutil.copytree(str(it.lake.folder), it.folder / "backup")
    rename_connection(it)
    renamed = Path(it.config).read_text()
    edit(it, ("{cursor:", "{target_name: t2, cursor:"))
    with_target = Path(it.config).read_text()
    assert it.call(*SYNC).code == 0
    put_back(it, backup)
    Path(it.config).write_text(renamed)
    ended = move(it)
    assert ended.code == 1
    assert "they cannot be combined" in ended.err
    assert f"give {new(it)} a 'target_name' of its own" in ended.err
    Path(it.config).write_text(with_target)
    ended = it.call(*SYNC)
    assert ended.code == 1
    (command,) = commands_in(ended.err)
    assert it.call(*command, "--force").code == 0
    assert it.call(*SYNC).code == 0
    assert held(it, "t2") == list(range(1, 23))
    assert it.watermark().moved_to is None


def test_what_cannot_be_moved_is_refused(pipeline: Make) -> None:
    it = begin(pipeline, KEYLESS)
    rename_connection(it)
    edit(it, ("{cursor:", "{target_name: t2, cursor:"))
    assert it.call(*SYNC).code == 0  # two tables by now
    for arguments, message in (
        (("-t", old(it), "--to", new(it)), "has manifests of its own"),
        (("-t", f"X:{it.schema}.t", "--to", new(it)), "has no state in the lake"),
        (("-t", old(it), "--to", f"Y:{it.schema}.t"), "unknown table"),
        (("-t", old(it)), "nothing to move"),
        (("-t", new(it), "--to", new(it)), "has that name already"),
    ):
        ended = it.call("watermark", "move", *arguments, "--force")
        assert ended.code == 2
        assert message in ended.err


class Killed(BaseException):
    """The process ends here."""


@contextmanager
def killed_before(step: int) -> Iterator[list[str]]:
    """End the process before some write to the lake, or before the commit in the target."""
    steps: list[str] = []

    def counted(real: Callable[..., Any], name: str) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            if "leases" in str(arguments[1:2]):
                return real(*arguments)
            steps.append(name)
            if len(steps) == step:
                raise Killed
            return real(*arguments)

        return run

    places = [(LocalObjectStore, name) for name in ("put", "put_if_absent", "put_if_match")]
    with patch.object(DuckdbTarget, "_commit", counted(DuckdbTarget._commit, "commit")):
        for place, name in places:
            patch.object(place, name, counted(getattr(place, name), name)).start()
        try:
            yield steps
        finally:
            patch.stopall()


@pytest.mark.follows_hint(
    "'floodmark watermark move -t … --to …' completes it", "use …; if the move was interrupted"
)
def test_a_move_that_is_killed_anywhere_is_completed(pipeline: Make) -> None:
    it = begin(pipeline, KEYLESS)
    configured = Path(it.config).read_text()
    rename_connection(it)
    renamed = Path(it.config).read_text()
    shutil.copytree(it.folder, it.folder.parent / "kept")
    step, ended = 0, False
    seen: list[tuple[int, int]] = []
    while not ended:
        step += 1
        shutil.rmtree(it.folder)
        shutil.copytree(it.folder.parent / "kept", it.folder)
        ask_once(it, "DELETE FROM t WHERE id > 22")
        with killed_before(step) as steps, suppress(Killed):
            ended = move(it).code == 0 and len(steps) < step
        codes: dict[str, int] = {}
        command = ["watermark", "move", "-t", old(it), "--to", new(it)]
        for name, text in (("old", configured), ("new", renamed)):
            Path(it.config).write_text(text)
            synced = it.call(*SYNC)
            codes[name] = synced.code
            if synced.code == 2:
                (command,) = commands_in(synced.err)
        if (codes["old"], codes["new"]) not in seen[-1:]:
            seen.append((codes["old"], codes["new"]))
        assert it.call(*command, "--force").code == 0
        insert(it, "t", 31, 35)
        assert it.call(*SYNC).code == 0
        assert held(it, "t") == [*range(1, 23), *range(31, 36)]
    assert "commit" in steps
    # By the old name, then by the new one it goes on; in between both are refused with the way on.
    assert seen == [(0, 1), (0, 2), (2, 2), (2, 0)]
    assert it.call("watermark", "validate").code == 0


@pytest.mark.parametrize("kind", ["postgres", "redshift"])
def test_the_ledger_of_a_server_is_moved(
    pipeline: Make, request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    warehouse: Warehouse = new_warehouse(kind, request, tmp_path)
    it = pipeline({"t": "{cursor: update_at}"}, lake="ministack" if kind == "redshift" else "local")
    name_target(it.config, warehouse.connection)
    ask_once(it, KEYLESS.format("t"))
    insert(it, "t", 1, 10)
    assert it.call(*SYNC).code == 0
    rename_connection(it)
    ended = it.call(*SYNC)
    assert ended.code == 1
    assert f"t in the target belongs to {old(it)}" in ended.out
    assert move(it).code == 0
    insert(it, "t", 11, 12)
    assert it.call(*SYNC).code == 0
    assert sorted(warehouse.query('SELECT id FROM {schema}."t"')) == [(n,) for n in range(1, 13)]
    assert it.call("watermark", "validate").code == 0
