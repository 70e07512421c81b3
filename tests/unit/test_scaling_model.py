"""The scaling model of the benchmark: reproducible, and never faster than is possible."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

COSTS = {
    "worker_row": 3e-6,
    "source_row": 1.3e-6,
    "file_bytes_row": 70,
    "wire_bytes_row": 112,
    "window": 0.02,
    "edge_row": 3e-7,
    "driver_window": 0.001,
    "commit": 0.01,
    "start": 1.7,
    "copy_row": 5e-6,
    "target_row": 4e-6,
    "key_row": 4e-7,
    "idle_table": 0.003,
    "changed_table": 0.2,
    "changed_table_driver": 0.05,
}
_BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture(autouse=True)
def bench_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(_BENCH))


@given(slots=st.integers(1, 200), millions=st.integers(1, 200), cores=st.integers(1, 64))
def test_nothing_is_faster_than_its_parts(slots: int, millions: int, cores: int) -> None:
    import scaling

    costs = scaling.Costs(**COSTS)
    machines = structs.replace(scaling.cluster(slots), source_cores=cores)
    rows = millions * 1_000_000
    found = scaling.extract(costs, machines, rows, 150_000)
    assert found == scaling.extract(costs, machines, rows, 150_000)
    work, served = rows * costs.worker_row, rows * costs.source_row
    least = costs.start + max(work / slots, served / cores, rows / 150_000 * costs.driver_window)
    assert found.seconds >= least * 0.999
    # All slots have work until the last windows, of which none takes long.
    windows = max(1, -(-rows // 150_000))
    longest = 2 * 150_000 * costs.worker_row * max(1, slots * costs.source_row / cores)
    most = costs.start + windows * (costs.driver_window + costs.commit)
    assert found.seconds <= most + work / slots + served / cores + 4 * longest + windows * 0.03


def test_more_slots_help_until_something_else_limits() -> None:
    import scaling

    costs = scaling.Costs(**COSTS)
    times = [
        scaling.extract(costs, scaling.cluster(slots), 10**9, 150_000) for slots in scaling.SLOTS
    ]
    assert [one.limit for one in times[:3]] == ["slots"] * 3
    assert all(later.seconds < one.seconds * 1.02 for one, later in pairwise(times))
    assert times[0].seconds / times[2].seconds == pytest.approx(4, rel=0.05)
    slow_source = structs.replace(scaling.cluster(200), source_cores=2)
    assert scaling.extract(costs, slow_source, 10**9, 150_000).limit == "source"


def test_without_dense_keys_one_connection_is_not_enough_for_many_slots() -> None:
    import scaling

    costs, many = scaling.Costs(**COSTS), scaling.cluster(200)
    assert many.edge_connections == 16
    one = structs.replace(many, edge_connections=1)
    searched = scaling.extract(costs, one, 10**9, 150_000, dense=False)
    assert searched.limit == "window edges"
    assert searched.seconds >= costs.start + 10**9 * costs.edge_row
    dense = scaling.extract(costs, many, 10**9, 150_000)
    faster = scaling.extract(costs, many, 10**9, 150_000, dense=False)
    assert dense.limit == faster.limit != "window edges"
    assert dense.seconds < faster.seconds < searched.seconds / 2


def test_slots_that_share_cores_with_the_source_are_no_faster() -> None:
    import scaling

    costs = scaling.Costs(**COSTS)
    found = {}
    for slots in (1, 2, 4):
        machines = scaling.cluster(slots)
        machines = structs.replace(machines, worker_cores=4, source_cores=4, shared=True)
        found[slots] = scaling.extract(costs, machines, 2_000_000, 125_000)
    assert [one.limit for one in found.values()] == ["slots", "slots", "cores"]
    assert found[1].seconds - costs.start == pytest.approx(
        2 * (found[2].seconds - costs.start), rel=0.1
    )
    many = structs.replace(machines, slots=8)
    eight = scaling.extract(costs, many, 2_000_000, 125_000)
    assert eight.limit == "cores"
    assert eight.seconds == pytest.approx(found[4].seconds, rel=0.1)
    work = 2_000_000 * (costs.worker_row + costs.source_row)
    assert found[4].seconds - costs.start >= work / 4


def test_a_window_is_written_when_a_row_group_is_full() -> None:
    import scaling

    costs = scaling.Costs(**COSTS)
    work, source = costs.worker_row, costs.source_row
    for rows in (1000, 50_000, 125_000, 150_000, 3_000_000):
        seconds = scaling.seconds_alone(costs, rows)
        assert max(0.6 * work, source) * rows < seconds < 0.045 + work * rows
    few = scaling.seconds_alone(costs, 100_000)  # one row group: written when all rows were read
    assert few == pytest.approx(0.045 + 100_000 * work * 0.9)
    many = scaling.seconds_alone(costs, 3_000_000)  # reading hardly ever waits for writing
    assert many == pytest.approx(3_000_000 * work * 0.6, rel=0.03)
    slow = structs.replace(costs, source_row=2 * work)
    assert scaling.seconds_alone(slow, 1_000_000) > 1_000_000 * slow.source_row


def test_idle_tables_cost_the_same_with_any_number_of_slots() -> None:
    import scaling

    costs = scaling.Costs(**COSTS)
    found = {scaling.many_tables(costs, scaling.cluster(n), 10_000, 0).seconds for n in (1, 200)}
    assert found == {costs.start + 30.0}
