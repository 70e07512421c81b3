"""Which manifests are loaded, and in which batches."""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from floodmark.errors import CorruptLog
from floodmark.model.load import LedgerEntry, LoadBatch
from floodmark.model.log_state import LogState, ManifestId
from floodmark.model.manifest import (
    Change,
    Chunk,
    Column,
    DataFile,
    Manifest,
    Reconciled,
    Reset,
    Set,
)
from floodmark.model.position import Position
from floodmark.planning.load_batches import batches_of, pending_manifests, target_table, wins

ID = Column("id", "bigint", False, "int64")
NOTE = Column("note", "text", True, "string")
NOW = datetime(2025, 8, 1, tzinfo=UTC)


def chunk(
    size: int = 10, *, columns: tuple[Column, ...] = (ID,), reload: bool = False, files: int = 1
) -> Chunk:
    file = DataFile("path", 5, size, "", "", Position(id=1), Position(id=5))
    return Chunk(
        start=Position(id=0),
        end=Position(id=5),
        files=(file,) * files,
        strategy="sequential",
        columns=columns,
        primary_key=("id",),
        reload=reload,
    )


MOVES: list[Change] = [Set(position=Position(id=0)), Reset(stages=("load",))]


def log(*changes: Change) -> list[Manifest]:
    """Manifests 1-1, 1-2 … with these changes."""
    return [
        Manifest(
            table_name="A:b.t",
            epoch=1,
            sequence=number,
            created_at=NOW,
            session_id="s",
            author="a",
            change=change,
            standing=LogState(),
            checksum=f"digest {number}",
        )
        for number, change in enumerate(changes, 1)
    ]


def entry(manifest: Manifest) -> LedgerEntry:
    return LedgerEntry(head=manifest.head, digest=manifest.checksum, rows=5)


def batches(
    manifests: Sequence[Manifest], most_bytes: int = 10**9, known: Sequence[Manifest] = ()
) -> list[LoadBatch]:
    pending = pending_manifests(manifests, {m.head: entry(m) for m in known})
    return list(
        batches_of(
            pending,
            [m.head for m in manifests if m in known or not isinstance(m.change, Chunk)],
            target_name="t",
            load_epoch=3,
            session_id="session",
            most_bytes=most_bytes,
            manifest_key={m.head: f"key of {m.head}" for m in pending},
        )
    )


def numbers(found: Sequence[LoadBatch]) -> list[list[int]]:
    return [[chunk.head.sequence for chunk in batch.chunks] for batch in found]


def test_manifests_in_the_ledger_are_not_pending() -> None:
    manifests = log(chunk(), chunk(), chunk())
    assert numbers(batches(manifests, known=manifests[:1])) == [[2, 3]]
    assert batches(manifests, known=manifests) == []
    assert batches([]) == []


def test_another_manifest_under_a_known_number_is_refused() -> None:
    manifests = log(chunk(), chunk())
    other = structs.replace(entry(manifests[0]), digest="another")
    with pytest.raises(CorruptLog, match=r"1-1 of A:b\.t is not the one that was loaded"):
        pending_manifests(manifests, {other.head: other})


def test_a_reload_makes_earlier_manifests_unnecessary() -> None:
    manifests = log(chunk(), chunk(reload=True), chunk(reload=True))
    assert numbers(batches(manifests)) == [[3]]
    assert batches(manifests)[0].reload
    assert numbers(batches(manifests, known=manifests[2:])) == []
    assert numbers(batches(log(chunk(), chunk(reload=True), chunk(), chunk()))) == [[2], [3, 4]]


def test_a_batch_ends_where_an_operator_moved_the_position() -> None:
    for move in MOVES:
        assert numbers(batches(log(chunk(), chunk(), move, chunk()))) == [[1, 2], [4]]


def test_a_late_manifest_is_loaded_alone() -> None:
    manifests = log(*[chunk()] * 6)
    assert numbers(batches(manifests, known=manifests[2:3])) == [[1, 2], [4, 5, 6]]


def test_a_batch_ends_where_the_schema_changes() -> None:
    wider = chunk(columns=(ID, NOTE))
    keyless = structs.replace(chunk(), primary_key=())
    found = batches(log(chunk(), chunk(), wider, wider, keyless))
    assert numbers(found) == [[1, 2], [3, 4], [5]]
    assert [len(batch.table.columns) for batch in found] == [1, 2, 1]


def test_rows_read_after_a_move_win() -> None:
    before = Column("at", "timestamp", False, "timestamp[us, UTC]")
    now = structs.replace(before, type="datetime", arrow="timestamp[us]")
    (first,) = log(structs.replace(chunk(), columns=(before,), version="at"))
    assert isinstance(first.change, Chunk)
    same = target_table("t", first.change)
    assert not wins(first, same)
    assert wins(structs.replace(first, epoch=2), same)
    moved = structs.replace(first.standing.mysql_state, steered=True)
    log_state = structs.replace(first.standing, mysql_state=moved)
    assert wins(structs.replace(first, standing=log_state), same)
    # Versions of different types do not compare.
    assert wins(first, structs.replace(same, columns=(now,)))
    # Without a version, the later row wins anyway; and older manifests contain no columns.
    assert not wins(structs.replace(first, change=chunk()), same)
    bare = structs.replace(first.change, columns=())
    assert not wins(structs.replace(first, change=bare), target_table("t", bare))


def test_a_batch_has_a_size_limit_and_at_least_one_manifest() -> None:
    assert numbers(batches(log(chunk(4), chunk(6), chunk(1), chunk(50)), 10)) == [[1, 2], [3], [4]]


def test_many_small_chunks_are_one_batch() -> None:
    day = log(*[chunk(1_000_000, columns=(ID, NOTE)) for _ in range(288)])  # every five minutes
    (batch,) = batches(day, 1024 * 1024 * 1024)
    assert len([path for found in batch.chunks for path in found.paths]) == 288


def test_a_batch_has_everything_the_target_needs() -> None:
    (batch,) = batches(log(chunk(7, files=2)))
    (found,) = batch.chunks
    assert (batch.table_name, batch.load_epoch, batch.table.name) == ("A:b.t", 3, "t")
    assert (batch.session_id, batch.reload) == ("session", False)
    assert (found.head, found.digest, found.manifest) == (
        ManifestId(1, 1),
        "digest 1",
        "key of 1-1",
    )
    assert (found.rows, found.bytes, found.paths) == (10, 14, ("path", "path"))
    assert (found.start, found.end) == ("id 0", "id 5")


CHANGES = st.lists(
    st.one_of(
        st.builds(
            chunk,
            st.integers(0, 30),
            columns=st.sampled_from([(ID,), (ID, NOTE)]),
            reload=st.booleans(),
            files=st.integers(0, 2),
        ),
        st.sampled_from(MOVES),
    ),
    max_size=12,
)


@given(CHANGES, st.sets(st.integers(1, 12)), st.integers(1, 60))
def test_every_log_is_loaded_in_order_and_once(
    changes: list[Change], known: set[int], most_bytes: int
) -> None:
    manifests = log(*changes)
    found = batches(manifests, most_bytes, [m for m in manifests if m.sequence in known])
    loaded = [number for batch in numbers(found) for number in batch]
    reloads = [n for n, c in enumerate(changes, 1) if isinstance(c, Chunk) and c.reload]
    first = reloads[-1] if reloads else 1
    expected = [n for n, c in enumerate(changes, 1) if isinstance(c, Chunk) and n >= first]
    assert loaded == [number for number in expected if number not in known]
    for batch in found:
        inside = [changes[c.head.sequence - 1] for c in batch.chunks]
        assert len(batch.chunks) == 1 or sum(c.bytes for c in batch.chunks) <= most_bytes
        assert len({c.columns for c in inside if isinstance(c, Chunk)}) == 1
        assert not batch.reload or len(inside) == 1
        for left, right in pairwise(c.head.sequence for c in batch.chunks):
            assert all(isinstance(c, Chunk) for c in changes[left:right])


def reconciled(deleted: int = 2, **facts: Any) -> Chunk:
    files = tuple(DataFile("deletes/p", deleted, 9, "", "", Position(), Position()) for _ in "a")
    found = Reconciled(deletes=files if deleted else (), deleted=deleted, **facts)
    return structs.replace(
        chunk(columns=(NOTE, ID, AT)), version="at", start=Position(id=5), reconciled=found
    )


AT = Column("at", "datetime", True, "timestamp[us]")


def test_a_reconciliation_is_loaded_alone_and_wins() -> None:
    manifests = log(
        chunk(), chunk(), reconciled(deleted_at="gone"), reconciled(0), chunk(), chunk()
    )
    made = batches(manifests)
    assert [[c.head.sequence for c in batch.chunks] for batch in made] == [[1, 2], [3], [4], [5, 6]]
    assert [wins(m, target_table("t", chunk())) for m in manifests] == [False] * 2 + [True] * 2 + [
        False
    ] * 2
    assert [batch.deletes is not None for batch in made] == [False, True, False, False]
    deletes = made[1].deletes
    assert deletes is not None
    assert [column.name for column in deletes.columns] == ["id", "at"]
    assert (deletes.keys, deletes.version, deletes.deleted_at, deletes.at) == (2, "at", "gone", NOW)
    assert (deletes.paths, deletes.sizes) == (("deletes/p",), (9,))
    assert made[1].chunks[0].bytes == 10


def test_deletes_of_before_a_full_reload_are_not_loaded() -> None:
    made = batches(log(chunk(), reconciled(), chunk(reload=True), reconciled()))
    assert [[c.head.sequence for c in batch.chunks] for batch in made] == [[3], [4]]
