"""The three strategies bring the same rows: each once, whatever ties and wherever chunks end."""

from collections.abc import Callable
from typing import Any

import pytest

from pipelines import Pipeline, ask_once, numbers, warm_engine

New = Callable[..., Pipeline]
pytestmark = pytest.mark.enough_on("mysql")  # it is about the way of chunks to the lake

STRATEGIES = ("sequential", "inter-table", "intra-table")
TENS = "extraction: {window_rows: 10000, windows_per_chunk: 3}"
CHUNKS = {"sequential": 10, "inter-table": 10, "intra-table": 4}


def create(pipeline: Pipeline, name: str, columns: str, rows: str) -> None:
    ask_once(pipeline, f"CREATE TABLE `{name}` ({columns})")
    ask_once(pipeline, f"INSERT INTO `{name}` {rows}")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_hundred_thousand_rows_with_one_timestamp(
    pipeline: New, spark: Any, strategy: str
) -> None:
    lake = "seaweedfs" if strategy == "intra-table" else "local"
    it = pipeline(
        {"t": "{cursor: [update_at, id]}"}, settings=TENS, lake=lake, engine=warm_engine(spark)
    )
    create(
        it,
        "t",
        "id INT PRIMARY KEY, update_at DATETIME NOT NULL, KEY by_change (update_at, id)",
        f"SELECT seq * 3, '2025-06-01 12:00:00' FROM {numbers(1, 100000)}",
    )
    result = it.synced("--strategy", strategy)
    assert (result["rows"], result["chunks"]) == (100_000, CHUNKS[strategy])
    assert it.ids() == dict.fromkeys(range(3, 300_001, 3), 1)
    it.check_tracking()
    # A straggler with the same timestamp and a greater id belongs to the next sync.
    ask_once(it, "INSERT INTO t VALUES (300001, '2025-06-01 12:00:00')")
    assert it.synced("--strategy", strategy)["rows"] == 1
    assert it.ids()[300_001] == 1


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_ties_without_a_distinguishing_key(pipeline: New, strategy: str) -> None:
    it = pipeline({"t": "{cursor: update_at}"}, settings=TENS)
    create(
        it,
        "t",
        "id INT, update_at DATETIME NOT NULL, KEY by_change (update_at)",
        f"SELECT seq, IF(seq <= 5000, '2025-06-01', '2025-06-02') FROM {numbers(1, 100000)}",
    )
    result = it.synced("--strategy", strategy)
    assert result["rows"] == 100_000
    assert set(it.ids().values()) == {1}
    it.check_tracking()


@pytest.mark.parametrize(
    ("strategy", "limit"),
    [("sequential", 1), *((strategy, limit) for strategy in STRATEGIES for limit in (7, 10, 23))],
)
def test_limits_are_exact_among_ties(pipeline: New, strategy: str, limit: int) -> None:
    it = pipeline(
        {"t": "{cursor: [update_at, id]}"},
        settings="extraction: {window_rows: 5, windows_per_chunk: 2}",
    )
    create(
        it,
        "t",
        "id INT PRIMARY KEY, update_at DATETIME NOT NULL, KEY by_change (update_at, id)",
        f"SELECT seq, '2025-06-01 12:00:00' FROM {numbers(1, 23)}",
    )
    brought: list[int] = []
    while not brought or brought[-1]:
        result = it.synced("--strategy", strategy, "--limit", str(limit))
        brought.append(result["rows"])
        assert it.watermark().mysql_state.last_session_rows == (result["rows"] or brought[-2])
    whole, rest = divmod(23, limit)
    assert brought == [limit] * whole + [rest] * (rest > 0) + [0]
    assert it.ids() == dict.fromkeys(range(1, 24), 1)


def test_several_tables_at_once(pipeline: New, spark: Any) -> None:
    names = [f"t{number}" for number in range(6)]
    it = pipeline(
        dict.fromkeys(names, "{cursor: [update_at, id]}"),
        settings="extraction: {window_rows: 500, tables_at_once: 3}",
        engine=warm_engine(spark),
        lake="seaweedfs",
    )
    for name in names:
        create(
            it,
            name,
            "id INT PRIMARY KEY, update_at DATETIME NOT NULL, KEY by_change (update_at, id)",
            f"SELECT seq, '2025-06-01' + INTERVAL seq DIV 100 SECOND FROM {numbers(1, 1000)}",
        )
    ended = it.sync("--strategy", "inter-table", "--json")
    assert ended.code == 0
    assert [table["rows"] for table in ended.value["tables"]] == [1000] * 6
    for name in names:
        assert it.ids(name) == dict.fromkeys(range(1, 1001), 1)
        assert len(it.chunks(name)) == 2
        it.check_tracking(name)


def test_a_change_of_strategy_between_runs(pipeline: New) -> None:
    it = pipeline(
        {"t": "{cursor: [update_at, id]}"},
        settings="extraction: {window_rows: 4, windows_per_chunk: 3}",
    )
    create(
        it,
        "t",
        "id INT PRIMARY KEY, update_at DATETIME NOT NULL, KEY by_change (update_at, id)",
        f"SELECT seq, '2025-06-01' + INTERVAL seq DIV 5 SECOND FROM {numbers(1, 90)}",
    )
    for number in range(9):
        strategy = STRATEGIES[number % 3]
        it.synced("--strategy", strategy, "--limit", "10")
        assert it.watermark().backup_strategy == strategy
    assert it.ids() == dict.fromkeys(range(1, 91), 1)
    it.check_tracking()
