"""The history of a table is read within bounds, and runs that have ended only once."""

from pathlib import Path

import pytest

import floodmark
from floodmark.api import runs
from floodmark.model import lake_layout
from sample_lake import HOUR, Sample, SampleLake


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> SampleLake:
    made = SampleLake(tmp_path_factory.mktemp("lake"), [Sample(name="shop.t", rows=90)], days=4)
    made.fill(every=4 * HOUR)
    return made


def history(config: Path, days: int = 30) -> runs.TableHistory:
    with floodmark.open_project(config, environment={}) as project:
        return project.history("shop.t", days=days)


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


def test_a_day_that_is_not_read_whole_is_left_out(
    lake: SampleLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = history(lake.config)
    monkeypatch.setattr(runs, "MOST_MANIFESTS", 10)
    monkeypatch.setattr(runs, "LAST_MANIFESTS", 4)
    some = history(lake.config)
    assert 0 < len(some.days) < len(everything.days)
    assert some.days == everything.days[-len(some.days) :]
    assert some.since > everything.since
    assert f"{some.since:%Y-%m-%d}" <= some.days[0].day
    assert some.last == everything.last[-4:]


def test_runs_that_have_ended_are_not_read_again(lake: SampleLake) -> None:
    with floodmark.open_project(lake.config, environment={}) as project:
        run = project.new_run()
        known = {record.run_id: record for record in runs.read_runs(run)}
        newest, *older = known
        key = lake_layout.run_record(older[0])
        data = lake.objects.get(key).data
        lake.objects.put(key, b"damaged")
        try:
            assert [r.run_id for r in runs.read_runs(run, known=known)] == [newest, *older]
            assert [r.run_id for r in runs.read_runs(run)] == [newest, *older[1:]]
        finally:
            lake.objects.put(key, data)
        assert [r.run_id for r in runs.read_runs(run, known=known, most=1)] == [newest]
