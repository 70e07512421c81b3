"""Every kind of damage to a table's state that recovery promises to survive.

docs/guides/recover.md lists them. Damage that needs the mirror is marked.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from msgspec import Struct, structs

from floodmark.model import lake_layout
from floodmark.model.checksummed_json import seal, unseal
from floodmark.model.manifest import Manifest, Reset
from floodmark.model.table import TableName
from floodmark.model.transitions import after
from floodmark.model.watermark import empty_watermark
from floodmark.state.lease import LeaseDocument
from floodmark.state.mirror_copy import stored_watermark

State = Mapping[str, bytes]
Damaged = dict[str, bytes | None]
"""Objects that are replaced, or lost (None)."""


class Damage(Struct, frozen=True, kw_only=True):
    """A kind of damage: what it does to the objects of a state.

    `mirror` is whether the mirror is needed.
    """

    name: str
    damage: Callable[[TableName, State], Damaged]
    mirror: bool = False


def _primary(table: TableName, _state: State) -> Damaged:
    return {lake_layout.primary(table): None}


def _truncated(table: TableName, state: State) -> Damaged:
    key = lake_layout.primary(table)
    return {key: state[key][: len(state[key]) // 2]} if key in state else {key: b"{"}


def _foreign(table: TableName, state: State) -> Damaged:
    """Replace the watermark with that of another table."""
    key = lake_layout.primary(table)
    if key not in state:
        return {key: None}
    other = structs.replace(stored_watermark(state[key], table), table_name=f"{table}_")
    return {key: seal(other)}


def _older(table: TableName, state: State) -> Damaged:
    """Replace the watermark with the one before the last manifest."""
    now, keys = datetime.now(UTC), _manifests(table, state)
    watermark = empty_watermark(table, "", now)
    if len(keys) > 1:
        watermark = after(watermark, unseal(state[keys[-2]], Manifest, name=keys[-2]))
    return {lake_layout.primary(table): seal(watermark)}


def _changed_byte(data: bytes) -> bytes:
    """Change a digit, so that only the checksum is wrong."""
    found = re.search(rb'"created_at":\s*"(\d)', data)
    assert found is not None
    digit = b"%d" % ((int(found[1]) + 1) % 10)
    return data[: found.start(1)] + digit + data[found.end(1) :]


def _changed(table: TableName, state: State) -> Damaged:
    key = lake_layout.primary(table)
    return {key: _changed_byte(state[key]) if key in state else None}


def _changed_manifest(table: TableName, state: State) -> Damaged:
    keys = _manifests(table, state)
    middle = keys[len(keys) // 2]
    return {middle: _changed_byte(state[middle])}


def _future(table: TableName, state: State) -> Damaged:
    """Replace the watermark with one that was saved by a clock of tomorrow."""
    key = lake_layout.primary(table)
    if key not in state:
        return {key: None}
    known = stored_watermark(state[key], table)
    return {key: seal(structs.replace(known, updated_at=datetime.now(UTC) + timedelta(days=1)))}


def _before_reset(table: TableName, state: State) -> Damaged:
    """Lose the watermark, and set its copies back to before the last reset, or manifest."""
    keys, watermark = _manifests(table, state), empty_watermark(table, "", datetime.now(UTC))
    log: list[Manifest] = [unseal(state[key], Manifest, name=key) for key in keys]
    resets = [number for number, one in enumerate(log) if isinstance(one.change, Reset)]
    last = resets[-1] if resets else len(log) - 1
    if last > 0:
        watermark = after(watermark, log[last - 1])
    copies = (key for key in state if not key.startswith(lake_layout.MANIFESTS))
    return dict.fromkeys(copies, seal(watermark)) | _primary(table, state)


def _dead_lease(table: TableName, _state: State) -> Damaged:
    """Leave the lease of a run that died."""
    then = datetime.now(UTC) - timedelta(hours=1)
    lease = LeaseDocument(
        table_name=str(table),
        number=1,
        session_id="",
        owner="",
        taken_at=then,
        expires_at=then,
    )
    return {lake_layout.lease(table): seal(lease)}


def _damaged_lease(table: TableName, _state: State) -> Damaged:
    return {lake_layout.lease(table): b"{"}


def _lost(table: TableName, state: State, *folders: str) -> Damaged:
    """Lose the watermark and its copies in these folders."""
    return {k: None for k in state if k.startswith(folders)} | _primary(table, state)


def _all_truncated(table: TableName, state: State) -> Damaged:
    manifests = lake_layout.manifests(table)
    return {k: data[: len(data) // 2] for k, data in state.items() if not k.startswith(manifests)}


def _manifests(table: TableName, state: State) -> list[str]:
    return sorted(key for key in state if key.startswith(lake_layout.manifests(table)))


def _newest_manifest(table: TableName, state: State) -> Damaged:
    return {_manifests(table, state)[-1]: None}


def _damaged_manifest(table: TableName, state: State) -> Damaged:
    keys = _manifests(table, state)
    middle = keys[len(keys) // 2]
    return {middle: state[middle][: len(state[middle]) // 2]}


def _log(table: TableName, state: State) -> Damaged:
    return dict.fromkeys(_manifests(table, state))


def _everything(_table: TableName, state: State) -> Damaged:
    return dict.fromkeys(state)


DAMAGES = (
    Damage(name="watermark lost", damage=_primary),
    Damage(name="watermark truncated", damage=_truncated),
    Damage(name="watermark with a changed byte", damage=_changed),
    Damage(name="watermark from the future", damage=_future),
    Damage(name="watermark of another table", damage=_foreign),
    Damage(name="watermark older than its copies", damage=_older),
    Damage(
        name="watermark and daily copies lost",
        damage=lambda table, state: _lost(table, state, lake_layout.DAILY),
    ),
    Damage(
        name="watermark and session copies lost",
        damage=lambda table, state: _lost(table, state, lake_layout.SESSIONS),
    ),
    Damage(
        name="watermark and all copies lost",
        damage=lambda table, state: _lost(table, state, lake_layout.DAILY, lake_layout.SESSIONS),
    ),
    Damage(name="watermark and all copies truncated", damage=_all_truncated),
    Damage(name="watermark lost, copies older than a reset", damage=_before_reset),
    Damage(name="lease of a dead run", damage=_dead_lease),
    Damage(name="lease damaged", damage=_damaged_lease),
    Damage(name="newest manifest lost", damage=_newest_manifest, mirror=True),
    Damage(name="manifest truncated", damage=_damaged_manifest, mirror=True),
    Damage(name="manifest with a changed byte", damage=_changed_manifest, mirror=True),
    Damage(name="all manifests lost", damage=_log, mirror=True),
    Damage(name="whole state lost", damage=_everything, mirror=True),
)
