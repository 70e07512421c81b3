"""A reconciliation is killed after each of its steps: the next run, or a sync, ends it."""

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import processes
from conftest import ALL_SERVERS
from floodmark.state.manifest_log import ManifestLog
from floodmark.state.watermark_store import WatermarkStore
from floodmark.sync import reconcile as reconciling
from floodmark.warehouse.duckdb import DuckdbTarget
from floodmark.warehouse.postgres.target import PostgresTarget
from floodmark.warehouse.redshift.target import RedshiftTarget
from pipelines import Pipeline, ask_once, numbers
from processes import Doom
from warehouses import Warehouse, name_target, new_warehouse

New = Callable[..., Pipeline]

AT_ONCE = 5
MOST_STEPS = 14
RECONCILE = ("reconcile", "-p", "main")
TARGETS = {"duckdb": DuckdbTarget, "postgres": PostgresTarget, "redshift": RedshiftTarget}
STEPS: tuple[tuple[Any, str], ...] = (
    (reconciling, "load_table"),
    (reconciling, "find_differences"),
    (reconciling, "write_files"),
    (WatermarkStore, "_save"),
    (ManifestLog, "append"),
    *((target, "_commit") for target in TARGETS.values()),
)
Copy = tuple[Pipeline, Warehouse]


class CountingDoom(Doom):
    """Tells which step came when."""

    def __init__(self, step: int, tally: Path) -> None:
        super().__init__(step, "after")
        self._tally = tally

    def named(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, as a step that is written down first."""

        def noted(*arguments: Any, **options: Any) -> Any:
            with self._tally.open("a") as file:
                file.write(f"{name}\n")
            return work(*arguments, **options)

        return self.around(noted)


def doomed(it: Pipeline, step: int) -> None:
    """Runs in a process of its own."""
    doom = CountingDoom(step, it.folder / "tally")
    for owner, name in STEPS:
        setattr(owner, name, doom.named(name, getattr(owner, name)))
    ended = it.call(*RECONCILE)
    assert ended.code == 0, ended


def run_doomed(copies: list[Copy], steps: list[int]) -> list[int | None]:
    running = [
        processes.start(doomed, copy, step) for (copy, _), step in zip(copies, steps, strict=True)
    ]
    for process in running:
        process.join(120)
    return [process.exitcode for process in running]


def copy_of(it: Pipeline, number: int, kind: str, request: pytest.FixtureRequest) -> Copy:
    """The same source, with a lake and a target of its own."""
    folder = it.folder.with_name(f"{it.folder.name}-{number}")
    folder.mkdir()
    warehouse = new_warehouse(kind, request, folder)
    copy = replace(it, folder=folder, lake=warehouse.lake).write_config()
    name_target(copy.config, warehouse.connection)
    return copy, warehouse


@pytest.mark.enough_on("mysql")  # the steps are ours
@pytest.mark.parametrize("kind", TARGETS if ALL_SERVERS else ["duckdb"])
def test_killed_after_every_step(pipeline: New, request: pytest.FixtureRequest, kind: str) -> None:
    it = pipeline({"t": "{cursor: [update_at, id], reconcile: {deletes: hard}}"})
    ask_once(
        it,
        "CREATE TABLE t (id INT PRIMARY KEY, v INT NOT NULL, update_at DATETIME NOT NULL,"
        " KEY by_change (update_at, id))",
    )
    ask_once(
        it,
        f"INSERT INTO t SELECT seq, seq, '2025-06-01' + INTERVAL seq SECOND FROM {numbers(1, 30)}",
    )
    copies = [copy_of(it, number, kind, request) for number in range(MOST_STEPS + 1)]
    for copy, _ in copies:  # each by itself: a watermark names its target
        assert copy.call("sync", "-p", "main").code == 0
    whole, *_ = copies
    ask_once(it, "DELETE FROM t WHERE id IN (3, 4, 5)")
    ask_once(it, "UPDATE t SET v = -1, update_at = '2025-05-01' WHERE id = 7")
    ask_once(it, "INSERT INTO t VALUES (50, 50, '2025-06-01')")
    assert run_doomed([whole], [0]) == [0]
    steps = (whole[0].folder / "tally").read_text().split()
    assert {name for _, name in STEPS} == set(steps)
    assert len(steps) < len(copies), "too few copies"
    check(it, whole)
    for first in range(1, len(steps) + 1, AT_ONCE):
        at = list(range(first, min(first + AT_ONCE, len(steps) + 1)))
        some = [copies[step] for step in at]
        assert run_doomed(some, at) == [-signal.SIGKILL] * len(at), at
        for step, (copy, warehouse) in zip(at, some, strict=True):
            if step % 2:  # a sync ends what was committed, as well
                assert copy.call("sync", "-p", "main").code == 0, steps[step - 1]
            ended = copy.call(*RECONCILE)
            assert ended.code == 0, (steps[step - 1], ended)
            check(it, (copy, warehouse))


def check(source: Pipeline, copied: Copy) -> None:
    """The target equals the source, and everything counts once."""
    copy, warehouse = copied
    select = "SELECT id, v, update_at FROM {}t ORDER BY id"
    assert warehouse.query(select.format("{schema}.")) == ask_once(source, select.format(""))
    state = copy.watermark().reconciled_state
    assert (state.status, state.pass_started, state.place) == ("success", None, None)
    assert (state.total_deleted, state.total_repaired) == (3, 2)
    assert (state.rows, state.left) == (28, 0)
    assert sum(chunk.reconciled is not None for chunk in copy.chunks()) == 1
    assert copy.findings().differences == ()
