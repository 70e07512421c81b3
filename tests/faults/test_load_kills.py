"""A load is killed or disconnected at every step; the next one loads each row exactly once."""

import os
import signal
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec import structs

import processes
from conftest import ALL_SERVERS
from floodmark.config.models import PostgresConnection
from floodmark.errors import BusyError, FloodmarkError
from floodmark.warehouse.parallel import ParallelRun
from floodmark.warehouse.postgres.parallel_copy import PartTarget
from floodmark.warehouse.sql_dialect import LEDGER, STAGING
from floodmark.warehouse.sql_target import SqlTarget
from parallel_loads import ALWAYS
from processes import Doom, DoomedWrites
from scenarios import open_store, use_test_keys
from servers.dropping import CommitDropper, Moment
from servers.postgres import PrivatePostgres
from servers.redshift import RedshiftStandIn
from servers.redshift.faults import DropAfter, DropBefore, Fault, first
from sources import SourceTable, Struck, check_loaded, load, source_tables
from warehouses import Warehouse, new_warehouse

WORKER_STEPS = ("_copy", "_commit")
STEPS = ("_begin", "_lock_table", "_stage", "_execute", "_create", "_commit")
ALONE = 1  # every manifest in a transaction of its own
TOGETHER = 10**9


@pytest.fixture
def postgres_warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    return new_warehouse("postgres", request, tmp_path)


def grow(warehouse: Warehouse, table: SourceTable, random: Random) -> None:
    """Let the source change, and bring that into the lake in two chunks."""
    table.change(random, inserts=20, updates=10)
    table.extract(open_store(warehouse.lake.open()), chunk_rows=10)


def load_and_die(
    warehouse: Warehouse,
    table: SourceTable,
    step: int,
    moment: str,
    steps: Sequence[str],
    batch_bytes: int,
    spread: ParallelRun | None,
    load_only: bool = False,
) -> None:
    doom = Doom(step, moment)
    for name in WORKER_STEPS if spread else ():
        setattr(PartTarget, name, doom.around(getattr(PartTarget, name)))

    def arm(target: SqlTarget) -> None:
        for name in steps:
            setattr(target, name, doom.around(getattr(target, name)))

    objects = DoomedWrites(warehouse.lake.open(), doom)
    options: dict[str, Any] = {"load_only": True} if load_only else {}
    load(
        warehouse,
        table,
        batch_bytes=batch_bytes,
        objects=objects,
        arm=arm,
        spread=spread,
        **options,
    )


def die_everywhere(
    warehouse: Warehouse,
    table: SourceTable,
    moment: str,
    steps: Sequence[str],
    batch_bytes: int,
    spread: ParallelRun | None = None,
) -> int:
    """Die at the first step of one load, at the second of the next …; say how many there were."""
    random = Random(1)
    for step in range(1, 1000):
        grow(warehouse, table, random)
        process = processes.start(
            load_and_die, warehouse, table, step, moment, steps, batch_bytes, spread
        )
        process.join(timeout=60)
        if process.exitcode != 0:
            assert process.exitcode == -signal.SIGKILL, f"step {step}: {process.exitcode}"
            load(warehouse, table, batch_bytes=batch_bytes, spread=spread)
        check_loaded(warehouse, table)
        if process.exitcode == 0:
            return step - 1
    raise AssertionError("the load never ended")


@pytest.mark.enough_in("postgres")  # the steps are those of every target
def test_killed_before_any_step(warehouse: Warehouse) -> None:
    single, *_ = source_tables()
    assert die_everywhere(warehouse, single, "before", STEPS, TOGETHER) > 15


@pytest.mark.enough_in("postgres", "duckdb")
def test_killed_after_any_write(warehouse: Warehouse) -> None:
    """Above all: after the target's commit, before the watermark hears of it."""
    *_, keyless = source_tables()
    assert die_everywhere(warehouse, keyless, "after", ["_commit"], ALONE) > 8


# After a step is before the next one, except for the last.
@pytest.mark.parametrize("moment", ["before", "after"] if ALL_SERVERS else ["before"])
def test_killed_at_any_step_with_workers_that_stage(
    postgres_warehouse: Warehouse, moment: str
) -> None:
    single, *_ = source_tables()
    grow(postgres_warehouse, single, Random(0))
    load(postgres_warehouse, single, batch_bytes=TOGETHER)
    assert die_everywhere(postgres_warehouse, single, moment, STEPS, TOGETHER, ALWAYS) > 25
    load(postgres_warehouse, single, batch_bytes=TOGETHER, spread=ALWAYS)
    left = postgres_warehouse.query(f"SELECT relname FROM pg_class WHERE relname LIKE '{STAGING}%'")
    assert left == []


@pytest.mark.parametrize(
    ("moment", "number"), [("before", 0), ("after", 3)], ids=["before, keyed", "after, keyless"]
)
def test_killed_at_any_step_of_a_first_load_by_workers(
    postgres_warehouse: Warehouse, moment: str, number: int
) -> None:
    """The new table is there whole, with its ledger, or the old one is empty."""
    warehouse, table = postgres_warehouse, source_tables()[number]
    table.change(Random(1), inserts=6, updates=2)
    table.extract(open_store(warehouse.lake.open()), chunk_rows=3)
    for step in range(1, 200):
        process = processes.start(
            load_and_die, warehouse, table, step, moment, STEPS, ALONE, ALWAYS, True
        )
        process.join(timeout=60)
        name = table.target.name
        with warehouse.open() as target:
            entries = target.ledger(str(table.name), 1)
        held = warehouse.rows(table.target) if target_has(warehouse, name) else []
        assert len(held) == (len(table.rows) if entries else 0)
        if process.exitcode != 0:
            assert process.exitcode == -signal.SIGKILL, f"step {step}: {process.exitcode}"
            load(warehouse, table, batch_bytes=ALONE, spread=ALWAYS, load_only=True)
        check_loaded(warehouse, table)
        query = f"SELECT relname FROM pg_class WHERE relname LIKE '{STAGING}%'"
        assert warehouse.query(query) == []
        if process.exitcode == 0:
            assert step > 25
            return
        for lost in (LEDGER, name):
            warehouse.query(f'DROP TABLE {{schema}}."{lost}"')
    raise AssertionError("the load never ended")


def target_has(warehouse: Warehouse, name: str) -> bool:
    with warehouse.open() as target:
        return bool(target._columns_of(name))


def failure_of(work: Callable[[], object]) -> FloodmarkError | None:
    try:
        work()
    except FloodmarkError as error:
        return error
    return None


def lose_at(step: int, lose: Callable[[SqlTarget], None]) -> tuple[Callable[..., None], list[str]]:
    """Do something to a target's connection before its n-th step; returns the steps taken."""
    steps: list[str] = []

    def arm(target: SqlTarget) -> None:
        def around(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
            def taken(*arguments: Any) -> Any:
                steps.append(name)
                if len(steps) == step:
                    lose(target)
                return work(*arguments)

            return taken

        for name in ("_begin", "_lock_table", "_stage", "_execute", "_query", "_commit"):
            setattr(target, name, around(name, getattr(target, name)))

    return arm, steps


@pytest.mark.parametrize(
    ("batch_bytes", "spread"), [(ALONE, None), (TOGETHER, ALWAYS)], ids=["alone", "with workers"]
)
def test_the_connection_is_lost_before_any_step(
    postgres_warehouse: Warehouse,
    postgres: PrivatePostgres,
    batch_bytes: int,
    spread: ParallelRun | None,
) -> None:
    warehouse, (single, *_, keyless) = postgres_warehouse, source_tables()
    random = Random(1)

    def terminate(target: Any) -> None:
        pid = target._session.pid
        postgres.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))

    lost = 0
    for step in range(1, 200):
        table = (single, keyless)[step % 2]
        grow(warehouse, table, random)
        arm, steps = lose_at(step, terminate)
        again = partial(load, warehouse, table, batch_bytes=batch_bytes, spread=spread)
        error = failure_of(partial(again, arm=arm))
        if error is not None:
            lost += 1
            assert "lost the connection" in error.message, steps[-1]
            assert error.hint
            watermark = open_store(warehouse.lake.open()).get(table.name)
            assert watermark is not None
            assert watermark.redshift_state.status == "failed"
            again()
        check_loaded(warehouse, table)
        if step > len(steps):
            assert lost > 10
            return
    raise AssertionError("the load never ended")


@pytest.mark.parametrize("fault", [DropBefore(), DropAfter()], ids=["before", "after"])
def test_the_connection_to_redshift_is_lost_around_a_statement(
    request: pytest.FixtureRequest,
    redshift: RedshiftStandIn,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: Fault,
) -> None:
    """Above all around the commit; the watermark is asked, too."""
    use_test_keys(monkeypatch)
    warehouse, (single, *_, keyless) = new_warehouse("redshift", request, tmp_path), source_tables()
    random = Random(1)
    for kind in ("SET", "BEGIN", "LOCK", "CREATE", "COPY", "SELECT", "INSERT", "COMMIT"):
        # Without a key, nothing is staged once the table is there.
        for table in (single,) if kind == "CREATE" else (single, keyless):
            grow(warehouse, table, random)
            redshift.plan = first(1, kind, fault)
            with pytest.raises(FloodmarkError, match="connection to Redshift"):
                load(warehouse, table, batch_bytes=TOGETHER)
            redshift.forget()
            watermark = open_store(warehouse.lake.open()).get(table.name)
            assert watermark is not None
            assert watermark.redshift_state.status == "failed"
            result = load(warehouse, table, batch_bytes=TOGETHER)
            done = kind == "COMMIT" and isinstance(fault, DropAfter)
            assert (result.rows == 0) == done
            check_loaded(warehouse, table)


@pytest.mark.parametrize("moment", ["before the commit", "after the commit"])
@pytest.mark.parametrize("number", [0, 3], ids=["with a key", "without"])
def test_the_commit_is_lost_or_its_answer(
    postgres_warehouse: Warehouse, postgres: PrivatePostgres, moment: Moment, number: int
) -> None:
    table = source_tables()[number]
    random = Random(2)
    grow(postgres_warehouse, table, random)
    load(postgres_warehouse, table, batch_bytes=ALONE)
    rows = len(table.rows)
    grow(postgres_warehouse, table, random)
    settings = postgres_warehouse.connection
    assert isinstance(settings, PostgresConnection)
    with CommitDropper(postgres.port) as proxy:
        through = structs.replace(settings, port=proxy.port)
        dropped = Warehouse(through, postgres_warehouse.lake)
        proxy.drop = moment
        with pytest.raises(FloodmarkError, match="lost the connection"):
            load(dropped, table, batch_bytes=TOGETHER)
        held = len(postgres_warehouse.rows(table.target))
        assert held == (len(table.rows) if moment == "after the commit" else rows)
        result = load(dropped, table, batch_bytes=TOGETHER)
    assert (result.rows == 0) == (moment == "after the commit")
    check_loaded(postgres_warehouse, table)


def test_the_server_crashes_before_and_after_the_commit(
    postgres_warehouse: Warehouse, postgres: PrivatePostgres
) -> None:
    *_, keyless = source_tables()
    random = Random(3)
    for moment in ("before", "after"):
        grow(postgres_warehouse, keyless, random)

        def arm(target: SqlTarget, moment: str = moment) -> None:
            commit = target._commit

            def crash() -> None:
                if moment == "after":
                    commit()
                postgres.restart()
                commit()

            target._commit = crash  # type: ignore[method-assign]

        with pytest.raises(FloodmarkError, match="lost the connection"):
            load(postgres_warehouse, keyless, batch_bytes=TOGETHER, arm=arm)
        load(postgres_warehouse, keyless, batch_bytes=TOGETHER)
        check_loaded(postgres_warehouse, keyless)


def test_another_process_takes_over_from_one_that_was_killed(warehouse: Warehouse) -> None:
    """Stage 1 done, the load fails; the next run loads and reads nothing again."""
    single, *_ = source_tables()
    grow(warehouse, single, Random(4))
    process = processes.start(load_and_die, warehouse, single, 6, "before", STEPS, ALONE, None)
    process.join(timeout=60)
    assert process.exitcode == -signal.SIGKILL
    assert process.pid != os.getpid()
    chunks = open_store(warehouse.lake.open()).get(single.name)
    result = load(warehouse, single, batch_bytes=TOGETHER)
    assert chunks is not None
    assert result.rows == chunks.mysql_state.total_rows
    check_loaded(warehouse, single)


def load_beside_others(warehouse: Warehouse, table: SourceTable, answer: Any) -> None:
    answer.send("ready")
    answer.recv()
    try:
        answer.send(load(warehouse, table, batch_bytes=ALONE).rows)
    except BusyError:
        answer.send(0)


@pytest.mark.parametrize("number", [0, 3], ids=["with a key", "without"])
def test_four_runs_at_once_load_once(warehouse: Warehouse, number: int) -> None:
    table = source_tables()[number]
    grow(warehouse, table, Random(7))
    ends = [processes.pipe() for _ in range(4)]
    runs = [processes.start(load_beside_others, warehouse, table, theirs) for _, theirs in ends]
    assert all(ours.recv() == "ready" for ours, _ in ends)
    for ours, _ in ends:
        ours.send("go")
    brought = [ours.recv() for ours, _ in ends]
    for run in runs:
        run.join(timeout=60)
    assert sorted(brought) == [0, 0, 0, len(table.rows)]
    check_loaded(warehouse, table)


def test_a_target_that_was_lost_is_filled_again(warehouse: Warehouse) -> None:
    single, *_ = source_tables()
    random = Random(5)
    grow(warehouse, single, random)
    load(warehouse, single, batch_bytes=ALONE)
    for name in (LEDGER, single.target.name):
        warehouse.query(f'DROP TABLE {{schema}}."{name}"')
    grow(warehouse, single, random)
    load(warehouse, single, batch_bytes=ALONE)
    check_loaded(warehouse, single)


def test_failure_after_the_last_step_is_cleared_by_the_next_run(warehouse: Warehouse) -> None:
    single, *_ = source_tables()
    grow(warehouse, single, Random(6))

    def arm(target: SqlTarget) -> None:
        def fail() -> None:
            raise Struck("the connection would not close")

        close = target.close
        target.close = fail  # type: ignore[method-assign]
        closers.append(close)

    closers: list[Callable[[], None]] = []
    with pytest.raises(Struck):
        load(warehouse, single, batch_bytes=TOGETHER, arm=arm)
    for close in closers:
        close()
    assert load(warehouse, single, batch_bytes=TOGETHER).rows == 0
    check_loaded(warehouse, single)
