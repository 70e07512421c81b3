"""Compare a target's ledger with the manifests and the watermark."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, structs

from floodmark.model.load import (
    LedgerEntry,
    LedgerTotals,
    deleted_rows,
    loaded_rows,
    quarantined_rows,
)
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Chunk, Manifest
from floodmark.model.watermark import RedshiftState, Watermark
from floodmark.planning.load_batches import loaded_through, pending_manifests


class LedgerState(Struct, frozen=True, kw_only=True):
    """The totals of a load epoch's ledger.

    `through` is the last manifest up to which everything is loaded; `pending` is not loaded.
    """

    through: ManifestId
    rows: int
    quarantined_rows: int
    deleted_rows: int
    pending: tuple[Manifest, ...]


def keep_existing_rows(places: Iterable[ManifestId], load_epoch: int) -> bool:
    """Return whether a load epoch began with a loss: no reset in the epoch before opened it.

    Then the target has rows that are not in the lake.
    """
    return load_epoch > 1 and all(head.epoch != load_epoch - 1 for head in places)


def why_not_loaded(place: str | None, state: RedshiftState, ledger: LedgerTotals) -> str | None:
    """Say why rows that the watermark calls loaded are not in the target; None if they are."""
    tracked = state.total_rows + state.quarantined_rows + state.deleted_rows
    if state.target not in (None, place) and tracked:
        return f"the target is now {place} instead of {state.target}; loading missing rows"
    if ledger.all_rows < tracked:
        return "the target has lost loaded rows; loading them again"
    return None


def ledger_state(
    watermark: Watermark, manifests: Sequence[Manifest], ledger: Sequence[LedgerEntry]
) -> LedgerState:
    """Return the load progress according to the ledger alone."""
    since = watermark.redshift_state.eligible_from_epoch
    eligible = [manifest for manifest in manifests if manifest.epoch >= since]
    digests = {manifest.head: manifest.checksum for manifest in eligible}
    known = {
        entry.head: structs.replace(entry, digest=digests[entry.head])
        for entry in ledger
        if entry.head in digests
    }
    pending = pending_manifests(eligible, known)
    return LedgerState(
        through=loaded_through(eligible, pending, ManifestId(since, 0)),
        rows=loaded_rows(ledger),
        quarantined_rows=quarantined_rows(ledger),
        deleted_rows=deleted_rows(ledger),
        pending=tuple(pending),
    )


def ledger_differences(
    watermark: Watermark, manifests: Sequence[Manifest], ledger: Sequence[LedgerEntry]
) -> list[str]:
    """Return every difference between the ledger, the manifests and the watermark's load state.

    Manifests of an epoch before a reset may be in the ledger: a manual watermark can have selected
    them.
    """
    chunks = [m.head for m in manifests if isinstance(m.change, Chunk)]
    found = ledger_errors(manifests, ledger)
    state = ledger_state(watermark, manifests, ledger)
    found += [
        f"manifest {manifest.head} is loaded in the watermark, but not in the ledger"
        for manifest in state.pending
        if manifest.head <= watermark.loaded_head
    ]
    tracked = watermark.redshift_state.total_rows
    if tracked != state.rows:
        found.append(f"rows loaded: {tracked:,} in the watermark, {state.rows:,} in the ledger")
    quarantined = watermark.redshift_state.quarantined_rows
    if quarantined != state.quarantined_rows:
        found.append(
            f"rows in quarantine: {quarantined:,} in the watermark,"
            f" {state.quarantined_rows:,} in the ledger"
        )
    deleted = watermark.redshift_state.deleted_rows
    if deleted != state.deleted_rows:
        found.append(
            f"rows deleted: {deleted:,} in the watermark, {state.deleted_rows:,} in the ledger"
        )
    if any(watermark.loaded_head < head <= state.through for head in chunks):
        found.append(
            f"loaded up to {watermark.loaded_head} in the watermark,"
            f" but up to {state.through} in the ledger"
        )
    return found


def ledger_errors(manifests: Sequence[Manifest], ledger: Sequence[LedgerEntry]) -> list[str]:
    """Return what is invalid in the ledger; a watermark cannot be repaired from such a ledger."""
    chunks = {m.head: m for m in manifests if isinstance(m.change, Chunk)}
    entries = (_entry_difference(entry, chunks) for entry in sorted(ledger, key=_place))
    times = Counter(entry.head for entry in ledger)
    twice = (
        f"the ledger contains manifest {head} {count} times"
        for head, count in sorted(times.items())
        if count > 1
    )
    return [*filter(None, entries), *twice]


def target_difference(
    manifests: Sequence[Manifest],
    ledger: Sequence[LedgerEntry],
    held: int | None,
    name: str,
    *,
    load_epoch: int = 1,
) -> str | None:
    """Return what is wrong with the number of rows in the target; None if nothing is known wrong.

    Without a key, the target has every loaded row; after a reload, only the rows of the reload.
    With a key rows replace each other, and after a loss there are other rows: then the target must
    only not be empty, unless rows were deleted.
    """
    rows_of = {entry.head: entry.rows for entry in ledger}
    known = [m for m in manifests if m.head in rows_of and isinstance(m.change, Chunk)]
    loaded = [m.change for m in known if isinstance(m.change, Chunk)]
    rows = sum(rows_of[manifest.head] for manifest in known)
    if not rows:
        return None
    if held is None:
        return f"the target has no table {name}, but its ledger has {rows:,} loaded rows"
    last = loaded[-1]
    if last.reload:
        rows = rows_of[known[-1].head]
    others = keep_existing_rows((manifest.head for manifest in manifests), load_epoch)
    keyed = any(chunk.primary_key or chunk.reload for chunk in loaded)
    exact = last.reload or not (others or keyed)
    if not exact and deleted_rows(ledger):
        return None
    if held != rows if exact else not held:
        return f"rows of {name}: {held:,} in the target, {rows:,} loaded according to the ledger"
    return None


def _entry_difference(entry: LedgerEntry, chunks: Mapping[ManifestId, Manifest]) -> str | None:
    manifest = chunks.get(entry.head)
    if manifest is None:
        return f"manifest {entry.head} is in the ledger, but not in the lake"
    if manifest.checksum != entry.digest:
        return (
            f"manifest {entry.head} is not the one that was loaded: its digest is"
            f" {manifest.checksum[:12]}…, but {entry.digest[:12]}… in the ledger"
        )
    assert isinstance(manifest.change, Chunk)
    if manifest.change.rows != entry.rows + entry.quarantined_rows:
        others = f" and {entry.quarantined_rows:,} quarantined" if entry.quarantined_rows else ""
        return (
            f"rows of manifest {entry.head}: {entry.rows:,} loaded{others} in the ledger,"
            f" {manifest.change.rows:,} in the manifest"
        )
    return None


def _place(entry: LedgerEntry) -> ManifestId:
    return entry.head
