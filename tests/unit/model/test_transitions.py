"""The rules hold for any sequence of changes to a table."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from msgspec import structs

from floodmark.errors import CorruptLog, IllegalTransition, LostRace
from floodmark.model import lake_layout
from floodmark.model.checksummed_json import seal
from floodmark.model.load_transitions import load_failed, loaded, unloaded
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Chunk, DataFile, Reconciled
from floodmark.model.position import Position
from floodmark.model.rules import check_transition
from floodmark.model.table import TableName
from floodmark.model.transitions import (
    Authorship,
    checkpoint,
    extract_failed,
    record,
)
from floodmark.model.verification_transitions import differs, verified
from floodmark.model.watermark import (
    VerifiedState,
    Watermark,
    decode_watermark,
    empty_watermark,
)
from floodmark.state import operator_changes
from floodmark.state.lake_validation import validate
from floodmark.state.run import Run
from floodmark.state.watermark_store import WatermarkStore
from floodmark.storage.memory import MemoryObjectStore
from floodmark.storage.objects import ObjectStore

TABLE = TableName("PROD", "shop", "orders")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def data_file(path: str, rows: int, end: Position) -> DataFile:
    return DataFile(
        path=path, rows=rows, bytes=rows * 10, etag="e", checksum="c", first=end, last=end
    )


class Crash(Exception):
    """The process dies here."""


class CrashingStore(MemoryObjectStore):
    """A store whose process dies after some number of writes."""

    def __init__(self) -> None:
        super().__init__()
        self.writes_left: int | None = None

    def _write(self, key: str, data: bytes) -> str:
        if self.writes_left == 0:
            raise Crash
        if self.writes_left is not None:
            self.writes_left -= 1
        return super()._write(key, data)


class Table(RuleBasedStateMachine):
    """A table, and the simplest possible model of its expected state."""

    def __init__(self) -> None:
        super().__init__()
        self.objects = CrashingStore()
        self.sessions = 0
        self.now = NOW
        self.next_id = 0
        self.next_file = 0
        self.store = self.new_store()

    def clock(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now

    def new_store(self) -> WatermarkStore:
        self.sessions += 1
        run = Run(
            session_id=f"20260101_000000_{self.sessions:06d}",
            author="test",
            clock=self.clock,
            report=lambda _: None,
            random=Random(0),
            sleep=lambda _: None,
        )
        return WatermarkStore(self.objects, run)

    @initialize()
    def start(self) -> None:
        # The model: chunks as (epoch, sequence, rows, files), what counts, load progress.
        self.chunks: list[tuple[ManifestId, int, int]] = []
        self.repairs: list[tuple[ManifestId, int, int]] = []
        self.deleted_at: str | None = None
        self.counted_from = 1
        self.position = Position()
        self.loaded = ManifestId(1, 0)
        self.load_epoch = 1
        self.epoch = 1

    def current(self) -> Watermark:
        found = self.store.get(TABLE)
        return found or empty_watermark(TABLE, "none", self.now)

    def chunk(self, rows: int, files: int) -> Any:
        self.next_id += rows
        end = Position(None, self.next_id)

        def decide(current: Watermark) -> Chunk:
            names = [f"incremental/{TABLE.key}/{self.next_id}-{i}.parquet" for i in range(files)]
            return Chunk(
                start=current.position,
                end=end,
                files=tuple(data_file(name, rows, end) for name in names),
                strategy="sequential",
                seconds=1.5,
            )

        return decide

    @rule(rows=st.integers(0, 5), files=st.integers(0, 3))
    def extract(self, rows: int, files: int) -> None:
        decide = self.chunk(rows, files)
        before = self.current()
        if decide(before).end.compare(before.position) == -1:
            return
        after = self.store.commit(TABLE, decide)
        self.chunks.append((after.head, rows * files, files))
        self.position = after.position
        assert after.position == Position(None, self.next_id)

    @rule(rows=st.integers(1, 5), writes=st.integers(0, 3))
    def extract_and_crash(self, rows: int, writes: int) -> None:
        decide = self.chunk(rows, 1)
        before = self.current()
        if decide(before).end.compare(before.position) == -1:
            return
        self.objects.writes_left = writes
        with suppress(Crash):
            self.store.commit(TABLE, decide)
        self.objects.writes_left = None
        self.store = self.new_store()
        after = self.current()
        if writes >= 1:  # writing the manifest is the commit
            assert after.position == Position(None, self.next_id)
            self.chunks.append((after.head, rows, 1))
            self.position = after.position
        else:
            assert after.position == before.position

    @rule(rows=st.integers(0, 5))
    def adopt(self, rows: int) -> None:
        """Adopt files of an older system; the position stays."""
        before = self.current()
        self.next_file += 1
        end = before.position
        file = data_file(f"incremental/{TABLE.key}/old{self.next_file}.parquet", rows, end)
        chunk = Chunk(
            start=end, end=end, files=(file,), strategy=before.backup_strategy, adopted=True
        )
        after = self.store.commit(TABLE, lambda _: chunk)
        self.chunks.append((after.head, rows, 1))
        assert after.backup_strategy == before.backup_strategy
        assert after.metadata.manual_set_at == before.metadata.manual_set_at
        state, earlier = after.mysql_state, before.mysql_state
        assert after.verified_state == VerifiedState()
        assert state.last_extraction_time == earlier.last_extraction_time
        assert (state.status, state.last_session_rows) == (
            earlier.status,
            earlier.last_session_rows,
        )

    @rule(rows=st.integers(0, 5), keys=st.integers(0, 5), soft=st.booleans())
    def reconcile(self, rows: int, keys: int, soft: bool) -> None:
        """Commit deletes and repaired rows; only the number of files and their bytes change."""
        before = self.current()
        self.next_file += 1
        end, name = before.position, f"{TABLE.key}/fix{self.next_file}.parquet"
        found = Reconciled(
            deletes=(data_file(f"deletes/{name}", keys, end),),
            deleted=keys,
            stale=rows,
            deleted_at="_deleted_at" if soft else None,
        )
        chunk = Chunk(
            start=end,
            end=end,
            files=(data_file(f"incremental/{name}", rows, end),),
            strategy=before.backup_strategy,
            primary_key=("id",),
            reconciled=found,
        )
        after = self.store.commit(TABLE, lambda _: chunk)
        self.repairs.append((after.head, rows, 2))
        self.deleted_at = found.deleted_at or self.deleted_at
        assert self.store.log.read(TABLE, after.head).version == 2
        assert (after.metadata, after.verified_state) == (before.metadata, before.verified_state)
        assert after.redshift_state.status != "success"
        assert after.mysql_state == structs.replace(
            before.mysql_state,
            s3_file_count=before.mysql_state.s3_file_count + 2,
            s3_bytes=before.mysql_state.s3_bytes + chunk.bytes,
            last_sequence=after.head.sequence,
            last_manifest=str(after.head),
            deleted_at=self.deleted_at,
            error=None,
        )

    @precondition(lambda self: self.current().redshift_state.total_rows > 0)
    @rule()
    def lose_the_target(self) -> None:
        start = ManifestId(self.current().redshift_state.eligible_from_epoch, 0)
        self.store.update(TABLE, lambda w: unloaded(w, through=start, total_rows=0))
        self.loaded = start
        state = self.current().redshift_state
        assert (state.status, state.total_rows) == ("pending", 0)

    @rule()
    def fail(self) -> None:
        before = self.current()
        self.store.update(TABLE, lambda w: load_failed(extract_failed(w, "broken"), "broken"))
        after = self.current()
        assert after.position == before.position
        assert after.loaded_head == before.loaded_head
        assert after.mysql_state.status == after.redshift_state.status == "failed"

    @rule(data=st.data())
    def load(self, data: st.DataObject) -> None:
        watermark = self.current()
        eligible = watermark.redshift_state.eligible_from_epoch
        chunks = self.chunks + self.repairs
        pending = [c for c in chunks if c[0].epoch >= eligible and c[0] > watermark.loaded_head]
        if not pending:
            return
        through = data.draw(st.sampled_from([c[0] for c in pending]))
        done = [c for c in chunks if c[0].epoch >= eligible and c[0] <= through]
        rows = sum(c[1] for c in done)
        self.store.update(
            TABLE,
            lambda w: loaded(w, through=through, total_rows=rows, session_rows=1, now=self.now),
        )
        self.loaded = through
        assert self.current().redshift_state.total_rows == rows

    @rule(data=st.data(), equal=st.booleans())
    def verify(self, data: st.DataObject, equal: bool) -> None:
        watermark = self.current()
        known = watermark.position.id
        identity = data.draw(st.integers(0, known if isinstance(known, int) else 0))
        position = Position(None, identity) if identity else Position()
        through, since = watermark.loaded_head, ManifestId(1, 0)

        def change(w: Watermark) -> Watermark:
            if equal:
                return verified(w, position, through=through, now=self.now)
            return differs(w, position, "they differ", since=since, now=self.now)

        after = self.store.update(TABLE, change)
        assert after.verified_state.position == position
        assert after.verified_state.head == (through if equal else since)
        assert self.store.update(TABLE, change) == after

    @rule(identity=st.integers(0, 50))
    def set(self, identity: int) -> None:
        operator_changes.set_position(self.store, TABLE, Position(None, identity))
        self.position = Position(None, identity)
        self.next_id = max(self.next_id, identity)
        assert self.current().metadata.manual_watermark

    @rule(stages=st.sampled_from([("extract",), ("load",), ("extract", "load")]))
    def reset(self, stages: Any) -> None:
        operator_changes.reset(self.store, TABLE, stages)
        self.epoch += 1
        watermark = self.current()
        assert watermark.epoch == self.epoch
        if "extract" in stages:
            self.counted_from = self.epoch
            self.position = Position()
            self.next_id = 0
        if "load" in stages:
            self.load_epoch = self.epoch
            self.loaded = watermark.loaded_head
        assert watermark.verified_state == VerifiedState()
        if "load" in stages:
            assert watermark.redshift_state.total_rows == 0

    @precondition(lambda self: self.current().mysql_state.last_manifest is not None)
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        head = data.draw(st.sampled_from(list(self.store.log.heads(TABLE))))
        earlier = self.store.log.read(TABLE, head).standing
        after = operator_changes.prepare_restore(self.store, TABLE, head).commit()
        assert after.position == earlier.mysql_state.position
        self.position = after.position
        self.counted_from = earlier.mysql_state.counted_from_epoch
        if after.redshift_state.load_epoch != self.load_epoch:
            self.load_epoch = after.redshift_state.load_epoch
            self.loaded = after.loaded_head
        known = after.position.id
        self.next_id = max(self.next_id, known if isinstance(known, int) else 0)

    @rule(damage=st.sampled_from([b"", b"{}", b"garbage", None]))
    def lose_the_primary(self, damage: bytes | None) -> None:
        if damage is None:
            self.objects.delete(lake_layout.primary(TABLE))
        else:
            self.objects.put(lake_layout.primary(TABLE), damage)
        if self.store.log.is_empty(TABLE):
            # Nothing was committed yet: a damaged primary alone would count as lost state.
            for info in list(self.objects.list_objects("watermarks/")):
                self.objects.delete(info.key)
        self.store = self.new_store()

    @rule()
    def another_process(self) -> None:
        self.store = self.new_store()

    @invariant()
    def the_account_agrees(self) -> None:
        watermark = self.current()
        counted = [c for c in self.chunks if c[0].epoch >= self.counted_from]
        state = watermark.mysql_state
        assert watermark.position == self.position
        assert state.total_rows == sum(c[1] for c in counted)
        repairs = [c for c in self.repairs if c[0].epoch >= self.counted_from]
        assert state.s3_file_count == sum(c[2] for c in counted + repairs)
        assert state.deleted_at == self.deleted_at
        assert state.chunk_count == len(counted)
        assert watermark.epoch == self.epoch
        assert watermark.verified_state.head <= watermark.loaded_head <= watermark.head
        assert watermark.verified_state.position.compare(watermark.position) in (-1, 0)
        assert watermark.redshift_state.load_epoch == self.load_epoch

    @invariant()
    def what_is_saved_reads_back_equal(self) -> None:
        watermark = self.current()
        data = seal(watermark)
        again = decode_watermark(data, TABLE, name="it", now=self.now)
        assert structs.replace(again, checksum="") == structs.replace(watermark, checksum="")

    def teardown(self) -> None:
        findings = validate(self.store, TABLE)
        missing = [d for d in findings.differences if "data file" not in d]
        assert missing == []


TestTable = Table.TestCase
TestTable.settings = settings(max_examples=120, stateful_step_count=25, deadline=None)


def new_store(objects: ObjectStore, session: str) -> WatermarkStore:
    run = Run(
        session_id=session,
        author="test",
        clock=lambda: NOW,
        report=lambda _: None,
        random=Random(0),
        sleep=lambda _: None,
    )
    return WatermarkStore(objects, run)


def one_row(end: int) -> Chunk:
    position = Position(None, end)
    file = data_file(f"incremental/{end}.parquet", 1, position)
    return Chunk(start=position, end=position, files=(file,), strategy="sequential")


def test_a_position_without_a_manifest_is_refused() -> None:
    before = empty_watermark(TABLE, "s", NOW)
    state = structs.replace(before.mysql_state, last_id=5)
    with pytest.raises(IllegalTransition, match="moves only by manifests"):
        check_transition(before, structs.replace(before, mysql_state=state), [])


def test_a_chunk_that_goes_back_is_refused_before_it_is_committed() -> None:
    store = new_store(MemoryObjectStore(), "a")
    store.commit(TABLE, lambda _: one_row(9))
    with pytest.raises(IllegalTransition, match="back"):
        store.commit(TABLE, lambda _: one_row(8))
    assert [str(head) for head in store.log.heads(TABLE)] == ["1-1"]


@pytest.mark.parametrize("change", ["chunk", "set", "reset", "reset load"])
def test_a_run_that_did_not_see_a_change_cannot_commit(change: str) -> None:
    objects = MemoryObjectStore()
    paused, other = new_store(objects, "a"), new_store(objects, "b")
    paused.commit(TABLE, lambda _: one_row(1))
    match change:
        case "chunk":
            other.commit(TABLE, lambda _: one_row(2))
        case "set":
            operator_changes.set_position(other, TABLE, Position(None, 0))
        case "reset":
            operator_changes.reset(other, TABLE, ["extract", "load"])
        case _:
            operator_changes.reset(other, TABLE, ["load"])
    after = other.get(TABLE)
    with pytest.raises(LostRace):
        paused.commit(TABLE, lambda _: one_row(3))
    assert new_store(objects, "c").get(TABLE) == after


def test_nothing_is_written_when_nothing_changed() -> None:
    objects = MemoryObjectStore()
    store = new_store(objects, "a")
    store.commit(TABLE, lambda _: one_row(1))
    before = {info.key: objects.get(info.key).etag for info in objects.list_objects("")}
    new_store(objects, "b").update(TABLE, lambda same: same)
    new_store(objects, "b").get(TABLE)
    assert before == {info.key: objects.get(info.key).etag for info in objects.list_objects("")}


def test_a_manifest_that_does_not_follow_is_refused() -> None:
    start = empty_watermark(TABLE, "s", NOW)
    by = Authorship("s", "test", NOW)
    first = record(start, one_row(1), by)
    second = record(checkpoint(start, first), one_row(2), by)
    with pytest.raises(CorruptLog, match="1-2"):
        checkpoint(start, second)
    with pytest.raises(CorruptLog):
        checkpoint(start, structs.replace(first, standing=second.standing))


def test_loading_cannot_overtake_extraction_or_go_back() -> None:
    store = new_store(MemoryObjectStore(), "a")
    store.commit(TABLE, lambda _: one_row(1))
    store.commit(TABLE, lambda _: one_row(2))

    def load(sequence: int) -> None:
        store.update(
            TABLE,
            lambda w: loaded(
                w, through=ManifestId(1, sequence), total_rows=sequence, session_rows=1, now=NOW
            ),
        )

    with pytest.raises(IllegalTransition, match="only 1-2 is extracted"):
        load(3)
    load(2)
    with pytest.raises(IllegalTransition, match="cannot go back"):
        load(1)


def test_nothing_is_verified_that_is_not_loaded() -> None:
    store = new_store(MemoryObjectStore(), "a")
    store.commit(TABLE, lambda _: one_row(5))
    through = ManifestId(1, 1)
    with pytest.raises(IllegalTransition, match="1-1 is verified, but only 1-0 is loaded"):
        store.update(TABLE, lambda w: verified(w, Position(None, 5), through=through, now=NOW))
    store.update(TABLE, lambda w: loaded(w, through=through, total_rows=1, session_rows=1, now=NOW))
    with pytest.raises(IllegalTransition, match="id 6 is verified, but only id 5 is extracted"):
        store.update(TABLE, lambda w: verified(w, Position(None, 6), through=through, now=NOW))
    after = store.update(TABLE, lambda w: verified(w, Position(None, 5), through=through, now=NOW))
    assert after.verified_state.status == "success"
    lost = store.update(TABLE, lambda w: unloaded(w, through=ManifestId(1, 0), total_rows=0))
    assert lost.verified_state == VerifiedState()


def test_what_is_verified_goes_back_with_the_position() -> None:
    store = new_store(MemoryObjectStore(), "a")
    store.commit(TABLE, lambda _: one_row(5))
    through = ManifestId(1, 1)
    store.update(
        TABLE,
        lambda w: verified(
            loaded(w, through=through, total_rows=1, session_rows=1, now=NOW),
            Position(None, 5),
            through=through,
            now=NOW,
        ),
    )
    for position, stays in [(7, 5), (5, 5), (3, 3)]:
        after = operator_changes.set_position(store, TABLE, Position(None, position))
        assert after.verified_state.position == Position(None, stays)
    text = operator_changes.set_position(store, TABLE, Position(None, "somewhere"))
    assert text.verified_state.position == Position()


def test_a_position_can_be_set_on_a_broken_log() -> None:
    objects = MemoryObjectStore()
    store = new_store(objects, "a")
    store.commit(TABLE, lambda _: one_row(1))
    store.commit(TABLE, lambda _: one_row(2))
    objects.put(lake_layout.manifest(TABLE, ManifestId(1, 2)), b"garbage")
    objects.delete(lake_layout.primary(TABLE))
    for info in list(objects.list_objects("watermarks/backups/")):
        objects.delete(info.key)
    with pytest.raises(CorruptLog, match="00000002"):
        new_store(objects, "b").get(TABLE)
    operator_changes.set_position(new_store(objects, "c"), TABLE, Position(None, 1))
    after = new_store(objects, "d")
    watermark = after.get(TABLE)
    assert watermark is not None
    assert watermark.position == Position(None, 1)
    assert watermark.epoch > 1000
    assert after.commit(TABLE, lambda _: one_row(2)).position == Position(None, 2)


def test_rows_are_counted_by_day_and_manifests_of_earlier_versions_still_apply() -> None:
    watermark = empty_watermark(TABLE, "s", NOW)
    expected = [(0, 5, 5), (1, 3, 8), (25, 2, 2), (24 * 9, 1, 1)]
    for hours, rows, rows_of_day in expected:
        now = NOW + timedelta(hours=hours)
        end = Position(id=(watermark.mysql_state.total_rows + rows))
        chunk = Chunk(
            start=watermark.position,
            end=end,
            files=(data_file("incremental/f.parquet", rows, end),),
            strategy="sequential",
        )
        manifest = record(watermark, chunk, Authorship("s", "me", now))
        before, watermark = watermark, checkpoint(watermark, manifest)
        state = watermark.mysql_state
        assert (state.day, state.day_rows) == (f"{now:%Y-%m-%d}", rows_of_day)
        old = structs.replace(manifest.standing.mysql_state, day=None, day_rows=0)
        standing = structs.replace(manifest.standing, mysql_state=old)
        assert checkpoint(before, structs.replace(manifest, standing=standing)).mysql_state == old
