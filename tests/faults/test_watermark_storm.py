"""An object store that fails three requests in ten: every update is still right."""

import random
import uuid
from collections import Counter
from collections.abc import Iterator

import pytest

from floodmark.errors import FloodmarkError
from floodmark.model import lake_layout
from floodmark.model.load_transitions import loaded
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Chunk, Manifest
from floodmark.model.position import Position
from floodmark.model.timestamps import utc_now
from floodmark.model.watermark import Watermark
from floodmark.state import operator_changes
from floodmark.state.lake_validation import validate
from floodmark.state.watermark_store import WatermarkStore
from scenarios import TABLE, Lake, land, new_lake, open_store, use_test_keys
from servers.faults import FaultyProxy, random_faults
from servers.ministack import Ministack

CHUNKS = 150
RATE = 0.3


@pytest.fixture
def proxy(ministack: Ministack, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyProxy]:
    use_test_keys(monkeypatch)
    with FaultyProxy(ministack.endpoint) as proxy:
        yield proxy


@pytest.fixture
def lakes(
    proxy: FaultyProxy, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Lake, Lake]:
    """The same lake, in the storm and out of it."""
    calm = new_lake("ministack", request, tmp_path_factory.mktemp("unused"))
    return Lake(prefix=calm.prefix, endpoint=proxy.endpoint), calm


def read(store: WatermarkStore) -> Watermark | None:
    """Read until an answer comes through."""
    while True:
        try:
            return store.get(TABLE)
        except FloodmarkError:
            continue


def sync(store: WatermarkStore, chunks: int) -> Counter[str]:
    """Extract chunk after chunk, loading each; after an error go on from what is committed."""
    errors: Counter[str] = Counter()
    current = read(store)
    while True:
        done = current.mysql_state.chunk_count if current else 0
        try:
            if current and current.loaded_head < current.head:
                current = store.update(TABLE, note_load)
            elif done < chunks:
                current = land(store, rows=done + 1, name=f"chunk-{done:04d}")
            else:
                return errors
        except FloodmarkError as error:
            errors[type(error).__name__] += 1
            current = read(store)


def note_load(watermark: Watermark) -> Watermark:
    """Carry over what the target would say: everything is loaded."""
    rows = watermark.mysql_state.total_rows
    return loaded(
        watermark, through=watermark.head, total_rows=rows, session_rows=rows, now=utc_now()
    )


def manifests(store: WatermarkStore) -> list[Manifest]:
    return list(store.log.manifests(TABLE))


def test_a_sync_in_a_storm_loses_and_repeats_nothing(
    proxy: FaultyProxy, lakes: tuple[Lake, Lake]
) -> None:
    stormy, calm = lakes
    proxy.plan = random_faults(1, RATE)
    errors = sync(open_store(stormy.open()), CHUNKS)
    print(f"{proxy.requests} requests, {proxy.faults} faults, {errors} errors")
    assert proxy.faults.total() > 0.25 * proxy.requests.total()
    assert proxy.faults["DropAnswer"] > 20
    assert proxy.faults["AnswerError"] > 20
    assert errors, "no error ever came through to the run: the storm was too weak"

    store = open_store(calm.open())
    log = manifests(store)
    assert [manifest.head for manifest in log] == [ManifestId(1, n) for n in range(1, CHUNKS + 1)]
    position = Position()
    for number, manifest in enumerate(log):
        chunk = manifest.change
        assert isinstance(chunk, Chunk)
        assert chunk.start == position, "a gap or an overlap"
        assert [file.path.rpartition("/")[2] for file in chunk.files] == [
            f"chunk-{number:04d}.parquet"
        ]
        position = chunk.end
    watermark = store.get(TABLE)
    assert watermark is not None
    rows = CHUNKS * (CHUNKS + 1) // 2
    assert watermark.position == Position(id=rows)
    assert watermark.mysql_state.total_rows == watermark.redshift_state.total_rows == rows
    assert watermark.mysql_state.s3_file_count == CHUNKS
    assert watermark.loaded_head == watermark.head
    assert validate(store, TABLE).differences == ()
    assert store.recoveries.of(TABLE) == []


def test_operator_changes_under_request_failures_happen_once_or_are_reported(
    proxy: FaultyProxy, lakes: tuple[Lake, Lake]
) -> None:
    """A command that says it is done has happened; one that failed happened once or not at all."""
    stormy, calm = lakes
    land(open_store(calm.open()), rows=10, name="first")
    proxy.plan = random_faults(3, RATE)
    generator = random.Random(3)
    calm_store = open_store(calm.open())
    claimed = 0
    for attempt in range(40):
        position = Position(id=generator.randrange(1_000_000))
        # Each command is a run of its own, and the one before may not have given back its lease.
        calm_store.objects.delete(lake_layout.lease(TABLE))
        before = len(list(calm_store.log.heads(TABLE)))
        store = open_store(stormy.open(), session=f"20250801_{attempt:06d}_{uuid.uuid4().hex[:4]}")
        try:
            after = operator_changes.set_position(store, TABLE, position)
        except FloodmarkError:
            assert len(list(calm_store.log.heads(TABLE))) in (before, before + 1)
        else:
            claimed += 1
            assert after.position == position
            found = open_store(calm.open()).get(TABLE)
            assert found is not None
            assert found.position == position
            assert len(list(calm_store.log.heads(TABLE))) == before + 1
    assert claimed > 10
    assert validate(open_store(calm.open()), TABLE).differences == ()
