"""What differs is decided key by key."""

from floodmark.model.reconciliation import FoundKey
from floodmark.planning.differing_keys import DifferingKeys, KeyVersion, differing_keys


def row(
    key: int, version: int | None = 1, *, counts: bool = True, later: bool = False
) -> KeyVersion:
    return KeyVersion((key,), version, counts, later)


def test_each_kind() -> None:
    target = [row(1), row(2), row(3, 5), row(4, 1), row(4, 7), row(6)]
    source = [row(1), row(3, 4), row(4, 7), row(5), row(6, 2)]
    assert differing_keys(target, source) == DifferingKeys(
        gone=[FoundKey((2,), 1)], missing=[(5,)], stale=[(3,), (6,)], duplicate=[(4,)]
    )


def test_rows_of_the_source_that_were_not_synced_do_not_differ() -> None:
    target = [row(1), row(2), row(2)]
    source = [row(n, 9, counts=False, later=True) for n in (1, 2, 3)]
    assert differing_keys(target, source) == DifferingKeys()


def test_rows_of_the_source_that_no_sync_brings_differ_from_synced_ones() -> None:
    target = [row(1), row(2), row(2), row(3, None), row(4, counts=False), row(5)]
    source = [row(n, None if n in (3, 5) else 9, counts=False) for n in range(1, 7)]
    assert differing_keys(target, source) == DifferingKeys(
        moved_out=[FoundKey((1,), 9), FoundKey((2,), 9), FoundKey((5,), None)]
    )


def test_rows_of_the_target_from_elsewhere_are_left_alone() -> None:
    target = [row(1, counts=False), row(2, None, counts=False)]
    assert differing_keys(target, []) == DifferingKeys()
    assert differing_keys(target, [row(1, 2)]) == DifferingKeys(stale=[(1,)])


def test_the_newest_of_several_copies_is_the_version_that_was_seen() -> None:
    target = [row(1, 3), row(1, None), row(1, 8)]
    assert differing_keys(target, []) == DifferingKeys(gone=[FoundKey((1,), 8)])
