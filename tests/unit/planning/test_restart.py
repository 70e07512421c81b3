"""After any loss, each row is in the target exactly once, and no number is used again."""

from collections import Counter
from datetime import UTC, datetime
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from floodmark.errors import CorruptLog
from floodmark.model.checksummed_json import seal, unseal
from floodmark.model.load import LedgerEntry
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Chunk, Column, DataFile, Manifest, Reconciled, Reset, Set
from floodmark.model.position import Position
from floodmark.model.table import TableName
from floodmark.model.transitions import Authorship, checkpoint, record
from floodmark.model.watermark import Watermark, empty_watermark
from floodmark.planning.restart import Restart, in_epoch, new_epoch, plan_restart

NOW = datetime(2025, 8, 1, tzinfo=UTC)
BY = Authorship("20250801_000000_a", "me", NOW)
TABLE = TableName("PROD", "shop", "orders")
COLUMN = Column("id", "bigint", nullable=False, arrow="int64")


def chunk(
    start: int,
    end: int,
    name: str,
    key: tuple[str, ...],
    *,
    reload: bool = False,
    adopted: bool = False,
) -> Chunk:
    rows = end - start
    first, last = Position(id=start or None), Position(id=end)
    file = DataFile(f"incremental/{name}.parquet", rows, rows, "", "", first, last)
    return Chunk(
        start=first,
        end=last,
        files=(file,),
        strategy="sequential",
        columns=(COLUMN,),
        primary_key=key,
        reload=reload,
        adopted=adopted,
    )


def build(changes: list[Chunk | Set | Reset]) -> list[Manifest]:
    """Commit changes one after another."""
    watermark: Watermark = empty_watermark(TABLE, BY.session_id, NOW)
    log = []
    for change in changes:
        manifest: Manifest = unseal(seal(record(watermark, change, BY)), Manifest, name="")
        watermark = checkpoint(watermark, manifest)
        log.append(manifest)
    return log


def entry(manifest: Manifest, digest: str | None = None) -> LedgerEntry:
    change = manifest.change
    assert isinstance(change, Chunk)
    return LedgerEntry(head=manifest.head, digest=digest or manifest.checksum, rows=change.rows)


def files_of(log: list[Manifest]) -> dict[str, int]:
    changes = [m.change for m in log if isinstance(m.change, Chunk)]
    return {file.path: file.bytes for change in changes for file in change.files}


def rows_of(manifest: Manifest) -> list[int]:
    change = manifest.change
    assert isinstance(change, Chunk)
    return list(range(_id(change.start) + 1, _id(change.end) + 1))


def _id(position: Position) -> int:
    return position.id if isinstance(position.id, int) else 0


class Loss(NamedTuple):
    """A log of which some is mirrored, some loaded, and some files are left."""

    log: list[Manifest]
    mirrored: int
    loaded: set[int]
    kept: set[int]


@st.composite
def losses(draw: st.DrawFn) -> Loss:
    ends = sorted(draw(st.sets(st.integers(1, 60), min_size=1, max_size=6)))
    key = ("id",) if draw(st.booleans()) else ()
    starts = [0, *ends[:-1]]
    log = build([chunk(s, e, f"f{e}", key) for s, e in zip(starts, ends, strict=True)])
    count = len(log)
    mirrored = draw(st.integers(1, count))
    # A manual watermark may have left out earlier manifests, so that it is not always a prefix.
    loaded = draw(st.sets(st.integers(0, count - 1)))
    return Loss(log, mirrored, loaded, draw(st.sets(st.integers(0, count - 1))))


@given(losses())
def test_every_row_is_in_the_target_once(loss: Loss) -> None:
    log = loss.log
    known, last = log[: loss.mirrored], _id(_chunk(log[-1]).end)
    keyed = bool(_chunk(log[0]).primary_key)
    target = Counter(row for number in loss.loaded for row in rows_of(log[number]))
    ledgers = {1: [entry(log[number]) for number in sorted(loss.loaded)]}
    files = files_of([log[number] for number in loss.kept])
    restart = plan_restart(known, known[-1].standing, ledgers, files)
    if restart is None:
        for number, manifest in enumerate(known):
            if number not in loss.loaded:
                assert number in loss.kept
                target.update(rows_of(manifest))
        position = _id(known[-1].standing.mysql_state.position)
    else:
        position = _id(restart.state.mysql_state.position)
        if restart.kind == "read again":
            assert not keyed
            target.clear()
            position = 0
    again = range(position + 1, last + 1)
    if keyed:
        target = Counter(dict.fromkeys([*target, *again], 1))
    else:
        target.update(again)
    assert target == Counter(range(1, last + 1))


@given(losses())
def test_a_new_epoch_has_no_numbers_of_before(loss: Loss) -> None:
    ledgers = {1: [entry(m) for m in loss.log], 40_000_000: [entry(loss.log[0])]}
    epoch = new_epoch(loss.log, ledgers, NOW)
    assert epoch - 1 > 40_000_000
    assert epoch - 1 > max(m.epoch for m in loss.log)
    state = in_epoch(loss.log[-1].standing, epoch)
    assert (state.eligible_from_epoch, state.load_epoch) == (epoch, epoch)


def _chunk(manifest: Manifest) -> Chunk:
    assert isinstance(manifest.change, Chunk)
    return manifest.change


def plan(log: list[Manifest], loaded: list[LedgerEntry], files: dict[str, int]) -> Restart | None:
    return plan_restart(log, log[-1].standing, {1: loaded}, files)


def test_a_complete_lake_needs_nothing() -> None:
    log = build([chunk(0, 5, "a", ("id",)), chunk(5, 9, "b", ("id",))])
    assert plan(log, [entry(log[0])], files_of(log[1:])) is None
    assert plan(log, [entry(m) for m in log], {}) is None


def test_a_file_of_another_size_is_lost() -> None:
    log = build([chunk(0, 5, "a", ("id",))])
    found = plan(log, [], {"incremental/a.parquet": 1})
    assert found is not None
    assert found.lost == (ManifestId(1, 1),)


def test_another_manifest_under_a_number_is_an_unknown_load() -> None:
    log = build([chunk(0, 5, "a", ("id",)), chunk(5, 9, "b", ("id",))])
    found = plan(log, [entry(log[0]), entry(log[1], "another")], files_of(log))
    assert found is not None
    assert found.unknown == (ManifestId(1, 2),)
    assert found.state.mysql_state.position == Position(id=5)


def test_loads_after_a_reset_that_the_log_does_not_know_are_unknown() -> None:
    log = build([chunk(0, 5, "a", ("id",))])
    later = [LedgerEntry(head=ManifestId(2, 1), digest="x", rows=1)]
    found = plan_restart(log, log[-1].standing, {1: [entry(log[0])], 2: later}, {})
    assert found is not None
    assert found.unknown == (ManifestId(2, 1),)
    assert found.state.mysql_state.position == Position(id=5)


def test_loads_of_earlier_load_epochs_do_not_matter() -> None:
    both = Reset(stages=("extract", "load"))
    log = build([chunk(0, 5, "a", ("id",)), both, chunk(0, 5, "b", ("id",))])
    earlier = [LedgerEntry(head=ManifestId(1, 9), digest="x", rows=1)]
    ledgers = {1: earlier, 2: [entry(log[-1])]}
    assert plan_restart(log, log[-1].standing, ledgers, {}) is None


def test_the_position_goes_back_to_where_an_operator_had_set_it() -> None:
    back = Set(position=Position(id=4))
    log = build([chunk(0, 9, "a", ("id",)), back, chunk(4, 12, "b", ("id",))])
    found = plan(log, [entry(log[0])], {})
    assert found is not None
    assert found.state.mysql_state.position == Position(id=4)


def repair(position: Position, *rows: int, deletes: int = 0) -> Chunk:
    """Repaired rows and deleted keys, committed at a position."""
    files = [
        DataFile(f"incremental/r{row}.parquet", 1, 1, "", "", Position(id=row), Position(id=row))
        for row in rows
    ]
    start = Position()
    gone = DataFile("deletes/d.parquet", deletes, deletes, "", "", start, start)
    return structs.replace(
        chunk(0, 0, "", ("id",)),
        start=position,
        end=position,
        files=tuple(files),
        reconciled=Reconciled(deletes=(gone,) if deletes else (), deleted=deletes),
    )


def test_deletes_that_are_not_loaded_are_lost_with_their_file() -> None:
    log = build([chunk(0, 9, "a", ("id",)), repair(Position(id=9), deletes=3)])
    assert plan(log, [entry(log[0])], {"deletes/d.parquet": 3}) is None
    found = plan(log, [entry(log[0])], {})
    assert found is not None
    assert (found.lost, found.deleted) == ((ManifestId(1, 2),), 3)
    assert found.state.mysql_state.position == Position(id=9)


@given(st.sets(st.integers(1, 9), min_size=1), st.booleans())
def test_the_position_goes_back_before_repaired_rows(rows: set[int], lost: bool) -> None:
    """Also if their files are there: no chunk before the new epoch is loaded."""
    last = Position(id=9)
    log = build([chunk(0, 9, "a", ("id",)), repair(last, *rows), chunk(9, 12, "b", ("id",))])
    files = files_of(log[:1] if lost else log[:2])
    found = plan(log, [entry(log[0])], files)
    assert found is not None
    assert found.repairs == (ManifestId(1, 2),)
    before = found.state.mysql_state.position
    assert before == (Position(id=min(rows) - 1))


def test_a_whole_reload_is_repeated() -> None:
    log = build([chunk(0, 5, "a", (), reload=True)])
    found = plan(log, [], {})
    assert found is not None
    assert found.kind == "go back"  # the next one replaces all rows in any case


def test_adopted_rows_can_be_anywhere() -> None:
    log = build([chunk(0, 5, "a", ("id",)), chunk(0, 5, "b", ("id",), adopted=True)])
    found = plan(log, [entry(log[0])], {})
    assert found is not None
    assert (found.kind, found.adopted) == ("read again", (ManifestId(1, 2),))


def test_log_continues_after_a_loss() -> None:
    """A watermark from before the loss is rolled forward over the manifest that begins it."""
    log = build([chunk(0, 5, "a", ("id",))])
    watermark = checkpoint(empty_watermark(TABLE, BY.session_id, NOW), log[0])
    state = in_epoch(log[0].standing, 29_000_000)
    begins = structs.replace(log[0], epoch=29_000_000, sequence=1, standing=state)
    assert checkpoint(watermark, begins).epoch == 29_000_000
    with pytest.raises(CorruptLog):
        checkpoint(watermark, structs.replace(begins, sequence=2))
    with pytest.raises(CorruptLog):
        checkpoint(watermark, structs.replace(begins, epoch=3))
