"""The history of a table is read within bounds, and runs that have ended only once."""

from pathlib import Path

import pytest

import floodmark
from floodmark.api import runs
from floodmark.cli.main import run
from floodmark.model import lake_layout
from floodmark.model.lake_layout import COMPACTIONS, MANIFESTS
from floodmark.model.manifest import Chunk
from floodmark.state import compaction
from floodmark.storage.local import LocalObjectStore
from floodmark.storage.objects import StoredObject
from sample_lake import HOUR, Sample, SampleLake
from scenarios import open_store


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> SampleLake:
    made = SampleLake(tmp_path_factory.mktemp("lake"), [Sample(name="shop.t", rows=90)], days=4)
    made.fill(every=4 * HOUR)
    return made


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> SampleLake:
    """Some tables with many manifests a day, one of which was moved, and one recovered."""
    samples = [
        Sample(name="shop.t", rows=90, fate="differs", deleted=37),
        Sample(name="shop.recovered", rows=90, fate="behind"),
    ]
    made = SampleLake(tmp_path_factory.mktemp("busy"), samples, days=1)
    made.fill(every=HOUR / 2)
    return made


def history(config: Path, days: int = 30, table: str = "shop.t") -> runs.TableHistory:
    with floodmark.open_project(config, environment={}) as project:
        return project.history(table, days=days)


def test_the_first_day_is_whole(lake: SampleLake) -> None:
    everything = history(lake.config)
    some = history(lake.config, days=2)
    assert (some.since.hour, some.since.minute) == (0, 0)
    assert some.days == tuple(d for d in everything.days if d.day >= f"{some.since:%Y-%m-%d}")
    assert len(some.days) < len(everything.days)
    with floodmark.open_project(lake.config, environment={}) as project:
        rows = project.status()[0].watermark
    assert rows
    assert sum(day.rows for day in everything.days) == rows.mysql_state.total_rows


def test_a_day_that_is_not_read_whole_is_kept_and_marked(
    busy: SampleLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy table has more manifests a day than are read."""
    everything = history(busy.config)
    assert not any(day.partial for day in everything.days)
    monkeypatch.setattr(runs, "MOST_MANIFESTS", 30)
    monkeypatch.setattr(runs, "LAST_MANIFESTS", 4)
    some = history(busy.config)
    newest = everything.last[-30:]
    assert some.since == newest[0].created_at > everything.since
    assert some.days[0].partial
    assert not any(day.partial for day in some.days[1:])
    chunks = [each.change for each in newest if isinstance(each.change, Chunk)]
    assert sum(day.rows for day in some.days) == sum(chunk.extracted_rows for chunk in chunks) > 0
    assert len(some.changes) == len(everything.changes) == 1
    assert some.last == everything.last[-4:]


def test_recoveries_are_shown_of_all_days_and_findings_of_all_manifests(
    busy: SampleLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "LAST_MANIFESTS", 4)
    found = history(busy.config).found
    assert [(each.deleted, each.stale) for each in found] == [(37, 2)]
    monkeypatch.setattr(runs, "MOST_MANIFESTS", 1)
    recovered = history(busy.config, table="shop.recovered")
    assert len(recovered.recoveries) == 1
    assert recovered.recoveries[0].at < recovered.since


def test_a_long_history_is_read_from_its_compactions(
    busy: SampleLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by `status --html`, of which each table is read."""
    gets: list[str] = []
    get = LocalObjectStore.get

    def counted(store: LocalObjectStore, key: str) -> StoredObject:
        gets.append(key)
        return get(store, key)

    monkeypatch.setattr(compaction, "SIZE", 10)
    table = busy.table(busy.samples[0])
    store = open_store(busy.objects)
    for head in list(store.log.heads(table)):
        if head.sequence % 10 == 0:
            store.log.compact(table, head)
    everything = history(busy.config)
    monkeypatch.setattr(LocalObjectStore, "get", counted)
    assert history(busy.config) == everything
    page = str(tmp_path / "page.html")
    logs = {"history": [*gets]}
    gets.clear()
    assert run(["status", "--config", str(busy.config), "-t", "shop.t", "--html", page]) == 0
    logs["page"] = gets
    manifests = sum(day.chunks for day in everything.days) + 1
    assert manifests >= 50
    for name, keys in logs.items():
        read = [key for key in keys if key.startswith((MANIFESTS, COMPACTIONS))]
        # Of every ten manifests one compaction and its last manifest; those after it one by one.
        assert len(read) <= 2 * (manifests // 10) + 10, name


def test_runs_that_have_ended_are_not_read_again(lake: SampleLake) -> None:
    with floodmark.open_project(lake.config, environment={}) as project:
        context = project.new_run()
        known = {record.run_id: record for record in runs.read_runs(context)}
        newest, *older = known
        key = lake_layout.run_record(older[0])
        data = lake.objects.get(key).data
        lake.objects.put(key, b"damaged")
        try:
            assert [r.run_id for r in runs.read_runs(context, known=known)] == [newest, *older]
            assert [r.run_id for r in runs.read_runs(context)] == [newest, *older[1:]]
        finally:
            lake.objects.put(key, data)
        assert [r.run_id for r in runs.read_runs(context, known=known, most=1)] == [newest]
