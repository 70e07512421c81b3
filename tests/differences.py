"""Compare the keys and versions of a pipeline's tables, as a reconciliation does."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from floodmark.api.context import RunContext
from floodmark.api.verification import verification_of
from floodmark.config.loading import load_config
from floodmark.model.reconciliation import IntervalDifferences
from floodmark.planning.verify_ranges import synced_ranges
from floodmark.sync import verify
from floodmark.sync.find_differences import find_differences
from floodmark.sync.log_facts import loaded_chunks
from floodmark.sync.verify import Verification
from floodmark.tunnels.tunnel import Tunnels
from pipelines import DirectEngine, Pipeline

Found = dict[str, list[Any]]


@contextmanager
def comparing(it: Pipeline, name: str = "t", **options: Any) -> Iterator[Iterator[Any]]:
    """Yield the intervals of a table, which are found as they are asked for."""
    run = RunContext(load_config(it.config, {}), it.lake.open(), lambda _notice: None)
    table = it.table(name)
    engine: Any = DirectEngine
    with verification_of(run, table, engine, Tunnels(), everything=True) as how:
        yield _intervals(how, run, table, options)


def _intervals(
    how: Verification, run: RunContext, table: Any, options: dict[str, Any]
) -> Iterator[IntervalDifferences]:
    watermark = run.store.get(table)
    assert watermark is not None
    since, position = verify._verified_so_far(watermark, everything=True)
    with how.extraction.source.session() as session:
        plan, *_ = verify._plan(how, session, table, run.table_settings(table), watermark)
    chunks = loaded_chunks(run.store.log, table, watermark, since)
    loaded = verify._loaded_position(run.store, table, watermark)
    ranges = synced_ranges(chunks, position, loaded)
    return find_differences(
        how.extraction, how.open_target, how.target_name, plan, ranges, loaded=loaded, **options
    )


def differences(it: Pipeline, name: str = "t", **options: Any) -> Found:
    """Compare a whole table, and return the kinds of differences that there are, in order."""
    with comparing(it, name, **options) as intervals:
        return together(list(intervals))


def together(intervals: list[IntervalDifferences]) -> Found:
    """Return the differences of all intervals by kind; single values of single keys."""
    assert intervals[-1].through is None
    assert all(interval.through is not None for interval in intervals[:-1])

    def short(key: Any) -> Any:
        return key[0] if len(key) == 1 else key

    kinds: Found = {
        "deleted": [short(found.key) for one in intervals for found in one.deleted],
        **{
            kind: [short(key) for one in intervals for key in getattr(one, kind)]
            for kind in ("missing", "stale", "duplicate")
        },
    }
    return {kind: sorted(keys) for kind, keys in kinds.items() if keys}
