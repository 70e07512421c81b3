"""Rehearse recovery: damage a copy of a table's state in every way, and recover it.

    read the state → copy it to scratch → for each damage: damage the copy → recover it with the
    code that recovers real state → compare with the original → undo → remove the scratch

The state itself is only read: no lease is taken, and all writes are under `drills/`. A drill that
is killed leaves scratch, which the next drill removes (`state/drill_scratch.py`).
"""

import time
from collections.abc import Mapping

from msgspec import Struct

from floodmark.errors import FloodmarkError
from floodmark.model import lake_layout
from floodmark.model.table import TableName
from floodmark.model.watermark import Watermark, same_content
from floodmark.state.drill_damage import DAMAGES, Damage, Damaged
from floodmark.state.drill_scratch import read_state
from floodmark.state.lake_validation import tracked_facts
from floodmark.state.mirror_copy import get
from floodmark.state.run import Run
from floodmark.state.watermark_store import WatermarkStore
from floodmark.storage.objects import ObjectStore
from floodmark.storage.prefixed import PrefixedObjectStore
from floodmark.storage.threads import in_threads
from floodmark.sync.recover import recover_table


class Rehearsal(Struct, frozen=True, kw_only=True):
    """One kind of damage, and whether the copy was recovered; None if it could not be tried."""

    name: str
    recovered: bool | None
    seconds: float = 0.0
    detail: str = ""


class TableDrill(Struct, frozen=True, kw_only=True):
    """The rehearsals of a table; `error` is why there are none."""

    table_name: str
    rehearsals: tuple[Rehearsal, ...] = ()
    error: str | None = None

    @property
    def failures(self) -> tuple[str, ...]:
        """The rehearsals that failed."""
        if self.error:
            return (f"{self.table_name}: {self.error}",)
        failed = (r for r in self.rehearsals if r.recovered is False)
        return tuple(f"{self.table_name}: {r.name}: {r.detail}" for r in failed)


def drill_table(
    lake: ObjectStore,
    scratch: ObjectStore,
    mirror: ObjectStore | None,
    table: TableName,
    run: Run,
) -> TableDrill:
    """Rehearse the recovery of a table on a copy of its state."""
    state = read_state(lake, table)
    if not any(key.startswith(lake_layout.manifests(table)) for key in state):
        return TableDrill(table_name=str(table))
    return TableDrill(
        table_name=str(table),
        rehearsals=tuple(_Rehearsing(scratch, mirror, table, run, state).all()),
    )


class _Rehearsing:
    """Rehearsals on one copy of a table's state."""

    def __init__(
        self,
        scratch: ObjectStore,
        mirror: ObjectStore | None,
        table: TableName,
        run: Run,
        state: Mapping[str, bytes],
    ) -> None:
        self._place = PrefixedObjectStore(scratch, f"{table.key}/lake/")
        self._table = table
        self._run = run
        self._state = state
        self._mirror: ObjectStore | None = None
        in_threads(lambda item: self._place.put(*item), state.items())
        self._expected = self._store().get(table, write_back=False)
        if mirror is not None:
            self._mirror = PrefixedObjectStore(scratch, f"{table.key}/mirror/")
            self._copy_mirror(mirror)

    def all(self) -> list[Rehearsal]:
        """Rehearse every kind of damage."""
        return [self._rehearse(damage) for damage in DAMAGES]

    def _store(self) -> WatermarkStore:
        return WatermarkStore(self._place, self._run)

    def _copy_mirror(self, mirror: ObjectStore) -> None:
        """Copy what the mirror has of the state; it may have got more in the meantime."""
        place = self._mirror
        assert place is not None

        def copy(key: str) -> None:
            if (found := get(mirror, key)) is not None and found.data == self._state[key]:
                place.put(key, found.data)

        in_threads(copy, self._state)

    def _rehearse(self, damage: Damage) -> Rehearsal:
        if damage.mirror and self._mirror is None:
            return Rehearsal(name=damage.name, recovered=None, detail="there is no mirror")
        damaged = damage.damage(self._table, self._state)
        in_threads(lambda item: self._replace(*item), damaged.items())
        began = time.monotonic()
        try:
            detail = self._compare(self._recover(damage), damage, damaged)
        except FloodmarkError as error:
            detail = error.message
        seconds = time.monotonic() - began
        self._undo(damaged)
        return Rehearsal(
            name=damage.name, recovered=not detail, seconds=round(seconds, 3), detail=detail or ""
        )

    def _replace(self, key: str, data: bytes | None) -> None:
        if data is None:
            self._place.delete(key)
        else:
            self._place.put(key, data)

    def _recover(self, damage: Damage) -> Watermark | None:
        store = self._store()
        if damage.mirror:
            assert self._mirror is not None
            recover_table(store, self._mirror, self._table, None)
        with store.lease(self._table):
            return store.get(self._table)

    def _compare(self, found: Watermark | None, damage: Damage, damaged: Damaged) -> str | None:
        """Return what differs from the original; None if nothing does."""
        expected = self._expected
        if found is None or expected is None:
            return "nothing was recovered"
        for key in (key for key in damaged if key.startswith(lake_layout.MANIFESTS)):
            stored = get(self._place, key)
            if stored is None or stored.data != self._state[key]:
                head = lake_layout.head_of_manifest(key, self._table)
                if self._mirror is not None and get(self._mirror, key) is None:
                    return f"the mirror does not have manifest {head}"
                return f"manifest {head} is not the same"
        facts, real = tracked_facts(found), tracked_facts(expected)
        for name, value in real.items():
            if facts[name] != value:
                return f"{name} is {facts[name]} instead of {value}"
        if self._has_copy(damage, damaged) and not same_content(found, expected):
            return "the load progress is not the same, though a copy had it"
        return None

    def _has_copy(self, damage: Damage, damaged: Damaged) -> bool:
        """Return whether the watermark itself was left somewhere; else the ledger has the rest."""
        key = lake_layout.primary(self._table)
        same = [k for k, data in self._state.items() if data == self._state.get(key)]
        if any(k not in damaged for k in same):
            return True
        return damage.mirror and self._mirror is not None and get(self._mirror, key) is not None

    def _undo(self, damaged: Damaged) -> None:
        """Put the original state back in place of the damaged and recovered one."""
        for info in list(self._place.list_objects("")):
            if info.key not in self._state:
                self._place.delete(info.key)
        changed = [
            (key, data)
            for key, data in self._state.items()
            if key in damaged or not key.startswith(lake_layout.MANIFESTS)
        ]
        in_threads(lambda item: self._place.put(*item), changed)


def drill_or_error(
    lake: ObjectStore,
    scratch: ObjectStore,
    mirror: ObjectStore | None,
    table: TableName,
    run: Run,
) -> TableDrill:
    """Rehearse the recovery of a table; an error is a result."""
    try:
        return drill_table(lake, scratch, mirror, table, run)
    except FloodmarkError as error:
        return TableDrill(table_name=str(table), error=error.message)
