"""A model of how a sync scales: seeded simulations with measured costs.

    python bench/scaling.py     print the tables, with the costs of bench/results.json

A window is read, converted and written by one slot, while the source sends its rows. One thread
reads, another writes; but a row group is written only when it is full, and the last one when all
rows were read. So the threads work at the same time for a part of the window only
(`seconds_alone`). A window proceeds at the rate that the scarcest thing allows: its threads, its
share of the workers' cores, of the source, of the network or of the lake. Without dense keys, the
edges of windows are found by skipping index entries, over `edge_connections`: as many as
`planning.parallelism` decides. The driver starts windows one after another, chunks are committed in
order, and only so many chunks are in flight, as in `sync.chunks_in_flight`. A first load into
PostgreSQL follows: workers copy files into a new table, then its key is built by one process
(`warehouse.postgres.parallel_copy`).

`measure_slots` in `scaling_points.py` measures one, two and four slots on this machine, where
source and workers share the cores; `check` compares the model with that. What no benchmark here can
measure is assumed, and named in `CLUSTER`.
"""

import heapq
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from floodmark.planning.parallelism import walkers

SLOTS = (1, 2, 4, 8, 16, 32, 64, 100, 200)
SEED = 20261119
_SPREAD = 0.1  # of the work of windows: rows differ
# Measured, see docs/performance.md, "Stage 1": the parts of a worker's CPU time in which rows are
# read, and in which row groups are written; the rest converts rows while others are read.
_READING, _WRITING = 0.6, 0.3
_GROUP_ROWS = 115_000  # in a row group of 32 MiB
_FIRST_ROWS_SECONDS = 0.02  # from the beginning of a statement until the server sends rows
_FILE_SECONDS = 0.025  # to open a window's file, to close it, and to get the next task
_PARTS = ("scaling", "edges", "driver", "first load", "changes", "everyday", "start", "idle")
_RESULTS = Path(__file__).with_name("results.json")


class Costs(Struct, frozen=True, kw_only=True):
    """What was measured: seconds and bytes, for each row, window, chunk, load and table."""

    worker_row: float
    source_row: float
    file_bytes_row: float
    wire_bytes_row: float
    window: float
    edge_row: float
    driver_window: float
    commit: float
    start: float
    copy_row: float
    target_row: float
    key_row: float
    idle_table: float
    changed_table: float
    changed_table_driver: float


class Machines(Struct, frozen=True, kw_only=True):
    """What the work runs on. `shared`: workers and source share `worker_cores`."""

    slots: int
    worker_cores: float
    source_cores: float
    target_cores: float
    connections: int
    wire_bytes: float
    lake_bytes: float
    edge_connections: int = 1
    shared: bool = False


class Outcome(Struct, frozen=True):
    """How long it takes, and what limits it: the shares of the time."""

    seconds: float
    limits: dict[str, float]

    @property
    def limit(self) -> str:
        """What limits it for the longest time."""
        return max(self.limits, key=lambda name: self.limits[name])


CLUSTER = Machines(
    slots=0,
    worker_cores=0,
    source_cores=16,  # assumed: a server with 16 cores …
    target_cores=16,
    connections=200,
    wire_bytes=10e9 / 8,  # … on a network of 10 Gbit/s
    lake_bytes=4e9,  # assumed: S3, many requests at once
)


def cluster(slots: int) -> Machines:
    """Return a cluster with a core for each slot."""
    readers = min(slots, CLUSTER.connections)
    edges = walkers(readers, "intra-table")
    return structs.replace(CLUSTER, slots=slots, worker_cores=slots, edge_connections=edges)


def extract(
    costs: Costs, machines: Machines, rows: int, window_rows: int, *, dense: bool = True
) -> Outcome:
    """Simulate a first load's stage 1; without `dense` keys, the edges of windows are searched."""
    works = _windows(rows, window_rows)
    per_chunk = max(8, machines.slots)
    at_once = min(8, 1 + -(-machines.slots // per_chunk)) * per_chunk
    work = _Work(
        worker=costs.worker_row,
        thread=seconds_alone(costs, window_rows) / window_rows,
        server=costs.source_row,
        wire=costs.wire_bytes_row,
        lake=costs.file_bytes_row,
        fixed=costs.window,
    )
    return _run(
        works,
        work,
        machines,
        server_cores=machines.source_cores,
        server="source",
        start=costs.start,
        driver=costs.driver_window,
        commit=costs.commit,
        edge=0.0 if dense else window_rows * costs.edge_row / machines.edge_connections,
        per_chunk=per_chunk,
        in_flight=at_once,
    )


def seconds_alone(costs: Costs, rows: int) -> float:
    """Return how long a window takes if its threads wait for nothing but each other."""
    read = max(costs.worker_row * _READING, costs.source_row)
    write, written = costs.worker_row * _WRITING, 0.0
    for first in range(0, rows, _GROUP_ROWS):
        last = min(first + _GROUP_ROWS, rows)
        written = max(written, last * read) + (last - first) * write
    return _FIRST_ROWS_SECONDS + written + _FILE_SECONDS


def load(costs: Costs, machines: Machines, rows: int, part_rows: int) -> Outcome:
    """Simulate a first load into PostgreSQL: workers copy, then the key is built by one process."""
    work = _Work(
        worker=costs.copy_row,
        thread=costs.copy_row,
        server=costs.target_row,
        wire=costs.wire_bytes_row,
        lake=costs.file_bytes_row,
        fixed=costs.window,
    )
    copied = _run(
        _windows(rows, part_rows),
        work,
        machines,
        server_cores=machines.target_cores,
        server="warehouse",
        start=0.0,
        driver=costs.driver_window,
        commit=0.0,
        edge=0.0,
        per_chunk=1 << 30,
        in_flight=1 << 30,
    )
    key = rows * costs.key_row
    limits = {**copied.limits, "warehouse": copied.limits.get("warehouse", 0.0) + key}
    return Outcome(copied.seconds + key, limits)


def many_tables(costs: Costs, machines: Machines, idle: int, changed: int) -> Outcome:
    """Simulate one round of `inter-table` over many tables, of which some have changed rows."""
    at_once = min(64, max(4, machines.slots), machines.connections // 2)
    chance = random.Random(SEED)  # noqa: S311
    looked = idle * costs.idle_table
    driver_free, running, waits = 0.0, [0.0] * at_once, 0.0
    for _ in range(changed):
        began = heapq.heappop(running)
        factor = chance.lognormvariate(0, _SPREAD)
        waited = max(0.0, driver_free - began)
        waits += waited
        driver_free = began + waited + costs.changed_table_driver * factor
        others = (costs.changed_table - costs.changed_table_driver) * factor
        heapq.heappush(running, driver_free + others)
    ended = max(running) if changed else 0.0
    driver = min(ended, changed * costs.changed_table_driver)
    limits = {"driver": looked + driver, "slots": max(0.0, ended - driver)}
    return Outcome(costs.start + looked + ended, limits)


class _Work(Struct, frozen=True):
    """What a row costs each side, and what a window costs beside its rows.

    `thread` is the part of `worker` that one thread has to do after another.
    """

    worker: float
    thread: float
    server: float
    wire: float
    lake: float
    fixed: float


def _windows(rows: int, window_rows: int) -> list[float]:
    """Return the rows' worth of work of each window, in a random but reproducible spread."""
    chance = random.Random(SEED)  # noqa: S311
    number = max(1, -(-rows // window_rows))
    works = [rows / number * chance.lognormvariate(0, _SPREAD) for _ in range(number)]
    factor = rows / sum(works)
    return [work * factor for work in works]


def _run(
    works: Sequence[float],
    work: _Work,
    machines: Machines,
    *,
    server_cores: float,
    server: str,
    start: float,
    driver: float,
    commit: float,
    edge: float,
    per_chunk: int,
    in_flight: int,
) -> Outcome:
    """Simulate windows that proceed at the rate of what is scarcest.

    All that run share alike, so they have one rate, in rows per second; `done` is how many rows a
    window has proceeded by since the beginning, and a window ends when `done` reaches its goal. The
    window with number n can start when n + 1 edges are found, each in `edge` seconds.
    """
    most = min(machines.slots, machines.connections)
    now, done, next_start, committed_at = start, 0.0, start, start
    queue: list[tuple[float, int]] = []  # goals, in rows of `done`, and the window's number
    limits: dict[str, float] = {}
    started, ended, unended = 0, 0, [0] * (-(-len(works) // per_chunk))
    for number in range(len(works)):
        unended[number // per_chunk] += 1
    chunk = 0
    while ended < len(works):
        may_start = started < len(works) and len(queue) < most and started < ended + in_flight
        may_start = may_start and started < chunk * per_chunk + in_flight
        found_at = start + (started + 1) * edge
        if may_start and max(next_start, found_at) <= now:
            fixed = work.fixed / work.worker
            heapq.heappush(queue, (done + works[started] + fixed, started))
            started += 1
            next_start = now + driver
            continue
        rate, limit = _rate(work, machines, server_cores, server, len(queue))
        until_end = (queue[0][0] - done) / rate if queue else float("inf")
        until_start = max(next_start, found_at) - now if may_start else float("inf")
        step = min(until_end, until_start)
        if may_start:
            limit = "window edges" if found_at > next_start else "driver"
        limits[limit] = limits.get(limit, 0.0) + step
        now += step
        done += step * rate
        if until_end <= until_start:
            done, number = max(done, queue[0][0]), heapq.heappop(queue)[1]
            ended += 1
            unended[number // per_chunk] -= 1
            while chunk < len(unended) and unended[chunk] == 0:
                committed_at = max(committed_at, now) + commit
                chunk += 1
    return Outcome(max(now, committed_at), limits)


def _rate(
    work: _Work, machines: Machines, server_cores: float, server: str, running: int
) -> tuple[float, str]:
    """Return the rows per second of each running window, and what limits them."""
    running = max(1, running)
    rates = {
        "slots": 1 / work.thread,
        f"{server} (one connection)": 1 / work.server,
        server: server_cores / running / work.server,
        "network": machines.wire_bytes / running / work.wire,
        "lake": machines.lake_bytes / running / work.lake,
    }
    if machines.shared:
        rates["cores"] = machines.worker_cores / running / (work.worker + work.server)
    else:
        rates["slots"] = min(rates["slots"], machines.worker_cores / running / work.worker)
    limit = min(rates, key=lambda name: rates[name])
    return rates[limit], limit


def costs_of(results: dict[str, Any]) -> Costs:
    """Return the measured costs of a benchmark's results."""
    point, first = results["scaling"]["1 slot"], results["first load"]
    rows = results["rows"]
    loaded = first["Floodmark → PostgreSQL, cold"]
    few = results["changes"]["1,000 changed: Floodmark, warm"]
    # Its databases: the source as in stage 1, the rest is PostgreSQL's.
    target = max(0.1, loaded["databases"] - point["databases"])
    return Costs(
        worker_row=point["cpu"] / rows,
        source_row=point["databases"] / rows,
        file_bytes_row=point["bytes"] / rows,
        wire_bytes_row=1.6 * point["bytes"] / rows,  # zstd; assumed, see docs/performance.md
        window=results["driver"]["CPU of workers for a window"],
        edge_row=results["edges"]["row"],
        driver_window=results["driver"]["CPU of a window"],
        commit=results["everyday"]["commit"]["S3 (SeaweedFS)"]["seconds"],
        start=sum(step["wall"] for name, step in results["start"].items() if name != "stop"),
        copy_row=max(0.1, loaded["cpu"] - point["cpu"]) / rows,
        target_row=0.9 * target / rows,
        key_row=0.1 * target / rows,  # measured: 0.4 of 3.9 s, see docs/performance.md
        idle_table=results["idle"]["S3 (SeaweedFS), inter-table"]["wall"],
        changed_table=few["wall"],
        changed_table_driver=min(few["wall"], few["cpu"]) / 2,  # the other half: workers
    )


def is_measured(results: dict[str, Any]) -> bool:
    """Whether there are results of every part that the costs come from."""
    return {*_PARTS} <= results.keys()


def check(results: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """Return the measured and the simulated seconds of each measured point."""
    costs, found = costs_of(results), {}
    cores = results["machine"]["cores"]
    for name, point in results["scaling"].items():
        machines = structs.replace(
            cluster(int(name.split()[0])), worker_cores=cores, source_cores=cores, shared=True
        )
        warm = structs.replace(costs, start=point["fixed"])
        simulated = extract(warm, machines, results["rows"], point["window_rows"])
        found[name] = (point["wall"], simulated.seconds)
    return found


def curves(results: dict[str, Any]) -> dict[str, dict[int, Outcome]]:
    """Simulate a billion rows and ten thousand tables, for each number of slots."""
    costs = costs_of(results)
    machines = {slots: cluster(slots) for slots in SLOTS}
    return {
        "a billion wide rows: MySQL to the lake": {
            slots: extract(costs, one, 10**9, 150_000) for slots, one in machines.items()
        },
        "a billion wide rows without dense keys: MySQL to the lake": {
            slots: extract(costs, one, 10**9, 150_000, dense=False)
            for slots, one in machines.items()
        },
        "a billion wide rows: lake to PostgreSQL": {
            slots: load(costs, one, 10**9, 400_000) for slots, one in machines.items()
        },
        "10,000 tables, 1,000 of them with changed rows": {
            slots: many_tables(costs, one, 9000, 1000) for slots, one in machines.items()
        },
        "10,000 tables with nothing new": {
            slots: many_tables(costs, one, 10_000, 0) for slots, one in machines.items()
        },
    }


def main() -> None:
    """Print the checked points and the simulated curves."""
    results = json.loads(_RESULTS.read_text())
    for name, (measured, simulated) in check(results).items():
        print(f"{name}: measured {measured:.1f} s, simulated {simulated:.1f} s")
    for name, outcomes in curves(results).items():
        print(name)
        for slots, outcome in outcomes.items():
            print(f"  {slots:3} slots: {outcome.seconds:10,.1f} s, limit: {outcome.limit}")


if __name__ == "__main__":
    main()
