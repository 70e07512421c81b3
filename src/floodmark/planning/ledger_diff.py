"""What a target's ledger says, held against the manifests and the watermark."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct, structs

from floodmark.model.load import LedgerEntry, loaded_rows, quarantined_rows
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Chunk, Manifest
from floodmark.model.watermark import RedshiftState, Watermark
from floodmark.planning.load_batches import loaded_through, pending_manifests


class LedgerState(Struct, frozen=True, kw_only=True):
    """What the ledger of a load epoch adds up to.

    `through` is the furthest place up to which everything is loaded; what is `pending` is not.
    """

    through: ManifestId
    rows: int
    quarantined_rows: int
    pending: tuple[Manifest, ...]


def keep_existing_rows(places: Iterable[ManifestId], load_epoch: int) -> bool:
    """Whether a load epoch began with a loss: a reset that opened it would be in the epoch before.

    Then the target holds rows of which the lake knows nothing.
    """
    return load_epoch > 1 and all(head.epoch != load_epoch - 1 for head in places)


def why_not_loaded(
    place: str | None, state: RedshiftState, ledger: Collection[LedgerEntry]
) -> str | None:
    """Say why rows that the watermark calls loaded are not in the target; None if they are."""
    tracked = state.total_rows + state.quarantined_rows
    if state.target not in (None, place) and tracked:
        return f"the target is now {place} instead of {state.target}; loading what it lacks"
    if loaded_rows(ledger) + quarantined_rows(ledger) < tracked:
        return "the target has lost loaded rows; loading them again"
    return None


def ledger_state(
    watermark: Watermark, manifests: Sequence[Manifest], ledger: Sequence[LedgerEntry]
) -> LedgerState:
    """Say how far loading has come by the ledger alone."""
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
        pending=tuple(pending),
    )


def ledger_differences(
    watermark: Watermark, manifests: Sequence[Manifest], ledger: Sequence[LedgerEntry]
) -> list[str]:
    """Name every difference between the ledger, the manifests and what the watermark calls loaded.

    Manifests of an epoch that a reset left behind may be in the ledger: a manual watermark can
    have asked for them.
    """
    chunks = [m.head for m in manifests if isinstance(m.change, Chunk)]
    found = ledger_errors(manifests, ledger)
    state = ledger_state(watermark, manifests, ledger)
    found += [
        f"the watermark calls manifest {manifest.head} loaded, the ledger lacks it"
        for manifest in state.pending
        if manifest.head <= watermark.loaded_head
    ]
    tracked = watermark.redshift_state.total_rows
    if tracked != state.rows:
        found.append(f"watermark says {tracked:,} rows are loaded, the ledger says {state.rows:,}")
    aside = watermark.redshift_state.quarantined_rows
    if aside != state.quarantined_rows:
        found.append(
            f"watermark says {aside:,} rows are in quarantine,"
            f" the ledger says {state.quarantined_rows:,}"
        )
    if any(watermark.loaded_head < head <= state.through for head in chunks):
        found.append(
            f"watermark says loading has come to {watermark.loaded_head},"
            f" the ledger says to {state.through}"
        )
    return found


def ledger_errors(manifests: Sequence[Manifest], ledger: Sequence[LedgerEntry]) -> list[str]:
    """Say what in the ledger cannot be: then it is no truth that a watermark could be mended by."""
    chunks = {m.head: m for m in manifests if isinstance(m.change, Chunk)}
    entries = (_entry_difference(entry, chunks) for entry in sorted(ledger, key=_place))
    times = Counter(entry.head for entry in ledger)
    twice = (
        f"the ledger names manifest {head} {count} times"
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
    """Say what is wrong with the number of rows that the target holds, where that can be said.

    Without a key every row loaded is there; a reload leaves its own rows. With a key rows replace
    each other, and after a loss there are others: then only that there are some is certain.
    """
    rows_of = {entry.head: entry.rows for entry in ledger}
    known = [m for m in manifests if m.head in rows_of and isinstance(m.change, Chunk)]
    loaded = [m.change for m in known if isinstance(m.change, Chunk)]
    rows = sum(rows_of[manifest.head] for manifest in known)
    if not rows:
        return None
    if held is None:
        return f"the target has no table {name}, the ledger says {rows:,} rows were loaded into it"
    last = loaded[-1]
    if last.reload:
        rows = rows_of[known[-1].head]
    others = keep_existing_rows((manifest.head for manifest in manifests), load_epoch)
    keyed = any(chunk.primary_key or chunk.reload for chunk in loaded)
    exact = last.reload or not (others or keyed)
    if held != rows if exact else not held:
        return f"{name} holds {held:,} rows in the target, the ledger says {rows:,} were loaded"
    return None


def _entry_difference(entry: LedgerEntry, chunks: Mapping[ManifestId, Manifest]) -> str | None:
    manifest = chunks.get(entry.head)
    if manifest is None:
        return f"the ledger names manifest {entry.head}, the lake has none of that number"
    if manifest.checksum != entry.digest:
        return (
            f"manifest {entry.head} is not the one that was loaded: its digest is"
            f" {manifest.checksum[:12]}…, the ledger's {entry.digest[:12]}…"
        )
    assert isinstance(manifest.change, Chunk)
    if manifest.change.rows != entry.rows + entry.quarantined_rows:
        aside = f" and {entry.quarantined_rows:,} set aside" if entry.quarantined_rows else ""
        return (
            f"the ledger says {entry.rows:,} rows of manifest {entry.head} were loaded{aside},"
            f" the manifest names {manifest.change.rows:,}"
        )
    return None


def _place(entry: LedgerEntry) -> ManifestId:
    return entry.head
