"""The ledger in the target: which manifests are loaded, from which source, into which table.

The ledger also records who owns a target table. A table that exists belongs to the source table
whose entries name it, and all rows of one load epoch are in one table. A load that would break this
is refused before anything is written: first without a lock, so that no work is wasted, then again
in the load's transaction, where a lock makes one source table the first. A dropped table has no
owner: its entries are deleted when a new one is created.

Tables are loaded in parallel, so a load's transaction writes to the ledger only at its end.

Entries of earlier versions name no target table. They count as loaded into the configured one, and
the next load fills that in.
"""

from collections.abc import Sequence
from itertools import count
from typing import final

from floodmark.errors import FloodmarkError, LeaseLost, TargetTaken
from floodmark.model.load import (
    LedgerEntry,
    LedgerTotals,
    LoadBatch,
    LoadChunk,
    RenamedManifest,
    TargetTable,
)
from floodmark.model.log_state import ManifestId
from floodmark.warehouse.sql_dialect import LEDGER, SqlBackend
from floodmark.warehouse.target import not_a_table, refuse_stopping

_KEY = ("table_name", "load_epoch", "epoch", "sequence")
_COLUMNS = {
    "table_name": "VARCHAR(1000) NOT NULL",
    "load_epoch": "BIGINT NOT NULL",
    "epoch": "BIGINT NOT NULL",
    "sequence": "BIGINT NOT NULL",
    "manifest": "VARCHAR(4000) NOT NULL",
    "digest": "VARCHAR(64) NOT NULL",
    "row_count": "BIGINT NOT NULL",
    "range_start": "VARCHAR(4000)",
    "range_end": "VARCHAR(4000)",
    "session_id": "VARCHAR(40) NOT NULL",
    "loaded_at": "TIMESTAMP NOT NULL",
    "quarantined_rows": "BIGINT",
    "target_table": "VARCHAR(1000)",
    "deleted_rows": "BIGINT",
}
_ADDED_COUNTS = ("quarantined_rows", "deleted_rows")  # by later versions
# Positions are informational, and may contain text keys of any length. UTF-8 takes at most four
# bytes a character, and Redshift counts bytes.
_LONGEST_RANGE = 1000
_NOTED_AT_ONCE = 500  # a statement takes at most 32,767 values


class LedgerTable(SqlBackend):
    """Read and write the ledger; refuse loads that would mix source tables or split one."""

    @final
    def ledger(
        self, table_name: str, load_epoch: int, *, after: ManifestId | None = None
    ) -> list[LedgerEntry]:
        """Read the ledger's rows of a table and load epoch."""
        if not (columns := self._columns_of(LEDGER)):
            return []
        counts = ", ".join(name if name in columns else "NULL" for name in _ADDED_COUNTS)
        later = "" if after is None else " AND ((epoch = $3 AND sequence > $4) OR epoch > $3)"
        bound = () if after is None else (after.epoch, after.sequence)
        rows = self._look(
            f"SELECT epoch, sequence, digest, row_count, loaded_at, {counts}"  # noqa: S608
            f" FROM {self._name(LEDGER)} WHERE table_name = $1 AND load_epoch = $2{later}",
            (table_name, load_epoch, *bound),
        )
        return [
            LedgerEntry(
                head=ManifestId(row[0], row[1]),
                digest=row[2],
                rows=row[3],
                loaded_at=row[4],
                quarantined_rows=row[5] or 0,
                deleted_rows=row[6] or 0,
            )
            for row in rows
        ]

    @final
    def ledger_totals(self, table_name: str, load_epoch: int) -> LedgerTotals:
        """Add up the entries of each epoch in SQL, then these few sums."""
        if not (columns := self._columns_of(LEDGER)):
            return LedgerTotals()
        sums = ", ".join(
            f"SUM({name})" if name in columns else "0" for name in ("row_count", *_ADDED_COUNTS)
        )
        found = self._look(
            f"SELECT epoch, MAX(sequence), COUNT(*), {sums} FROM {self._name(LEDGER)}"  # noqa: S608
            " WHERE table_name = $1 AND load_epoch = $2 GROUP BY epoch",
            (table_name, load_epoch),
        )
        epochs = [[int(value or 0) for value in row] for row in found]
        return LedgerTotals(
            entries=sum(row[2] for row in epochs),
            rows=sum(row[3] for row in epochs),
            quarantined_rows=sum(row[4] for row in epochs),
            deleted_rows=sum(row[5] for row in epochs),
            newest=max((ManifestId(row[0], row[1]) for row in epochs), default=None),
        )

    @final
    def load_epochs(self, table_name: str) -> tuple[int, ...]:
        """Read the load epochs that the ledger has of a table."""
        if not self._columns_of(LEDGER):
            return ()
        rows = self._look(
            f"SELECT DISTINCT load_epoch FROM {self._name(LEDGER)} WHERE table_name = $1",  # noqa: S608
            (table_name,),
        )
        return tuple(int(row[0]) for row in rows)

    @final
    def check_owner(self, table_name: str, load_epoch: int, name: str) -> None:
        """Check the ledger and the target's catalog."""
        if what := self._other_relation(self._ledger_name(name)):
            refuse_stopping(name, [not_a_table(what)])
        if "target_table" not in self._columns_of(LEDGER):
            self._refuse_unnamed(table_name, name)
            return
        mine = self._ledger_name(name)
        elsewhere = self._look(
            f"SELECT target_table, MAX(loaded_at) FROM {self._name(LEDGER)}"  # noqa: S608
            " WHERE table_name = $1 AND load_epoch = $2 AND target_table <> $3"
            " GROUP BY target_table ORDER BY 2 DESC",
            (table_name, load_epoch, mine),
        )
        if elsewhere:
            raise TargetTaken(
                f"the rows of {table_name} were loaded into {elsewhere[0][0]} so far: loading into"
                f" {name} now would split them over two tables",
                hint=f"set 'target_name' back to {elsewhere[0][0]}; or 'floodmark watermark reset"
                f" -t {table_name} --load-only', then sync, loads all of it into {name}",
            )
        others = self._look(
            f"SELECT table_name, MAX(loaded_at) FROM {self._name(LEDGER)}"  # noqa: S608
            " WHERE table_name <> $1 AND target_table = $2 GROUP BY table_name ORDER BY 2 DESC",
            (table_name, mine),
        )
        if others and self._columns_of(name):
            raise _taken(name, str(others[0][0]), table_name)
        self._refuse_unnamed(table_name, name)

    @final
    def check_rename(self, old: str, new: str) -> None:
        """Look for entries of both."""
        if not self._columns_of(LEDGER):
            return
        names = f"SELECT DISTINCT table_name FROM {self._name(LEDGER)}"  # noqa: S608
        if len(self._query(f"{names} WHERE table_name IN ($1, $2)", (old, new))) > 1:
            raise FloodmarkError(
                f"the ledger has loads of both {old} and {new}: they cannot be combined",
                hint=f"give {new} a 'target_name' of its own instead of moving {old}",
            )

    @final
    def rename_source(self, old: str, new: str, manifests: Sequence[RenamedManifest]) -> None:
        """Rename each entry; entries of other manifests still show that the lake differs."""
        if not self._columns_of(LEDGER):
            return
        self._begin()
        try:
            self._lock_ledger()
            self.check_rename(old, new)
            self._rename_entries(old, new, manifests)
            self._commit()
        except BaseException:
            self._rollback()
            raise

    def _rename_entries(self, old: str, new: str, manifests: Sequence[RenamedManifest]) -> None:
        ledger = self._name(LEDGER)
        rows = self._query(
            f"SELECT DISTINCT epoch, sequence, digest FROM {ledger} WHERE table_name = $1",  # noqa: S608
            (old,),
        )
        known = {(ManifestId(epoch, sequence), digest) for epoch, sequence, digest in rows}
        for found in manifests:
            if (found.head, found.before) in known:
                self._execute(
                    f"UPDATE {ledger} SET manifest = $1, digest = $2"  # noqa: S608
                    " WHERE table_name = $3 AND epoch = $4 AND sequence = $5 AND digest = $6",
                    (
                        found.manifest,
                        found.digest,
                        old,
                        found.head.epoch,
                        found.head.sequence,
                        found.before,
                    ),
                )
        self._execute(
            f"UPDATE {ledger} SET table_name = $1 WHERE table_name = $2",  # noqa: S608
            (new, old),
        )

    def _refuse_unnamed(self, table_name: str, name: str) -> None:
        """Raise TargetTaken if entries without a target table may be of loads into this one.

        Their target is not recorded; unless another was configured, it has the source table's name.
        """
        columns = self._columns_of(LEDGER)
        if not columns or not self._columns_of(name):
            return
        unnamed = "target_table IS NULL" if "target_table" in columns else "1 = 1"
        rows = self._look(
            f"SELECT DISTINCT table_name FROM {self._name(LEDGER)}"  # noqa: S608
            f" WHERE {unnamed} OR table_name = $1",
            (table_name,),
        )
        known = {str(row[0]) for row in rows}
        if table_name in known:
            return
        for other in sorted(known):
            own_name = other.partition(":")[2].partition(".")[2]
            if own_name and self._ledger_name(own_name) == self._ledger_name(name):
                raise _taken(name, other, table_name)

    def _prepare_ledger(self) -> list[str]:
        if not (found := self._columns_of(LEDGER)):
            columns = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())
            self._create(
                f"CREATE TABLE IF NOT EXISTS {self._name(LEDGER)}"
                f" ({columns}{self._ledger_key(_KEY)})"
            )
            return [f"created {LEDGER}"]
        lacking = [name for name in _COLUMNS if name not in found]
        for name in lacking:
            self._create(f"ALTER TABLE {self._name(LEDGER)} ADD COLUMN {name} {_COLUMNS[name]}")
        return [f"added {LEDGER}.{name}" for name in lacking]

    def _forget_lost(self, name: str) -> None:
        """Delete the entries of a dropped table before it is created again.

        The ledger is locked, so no load of another source can create and fill it meanwhile.
        """
        entries = f"FROM {self._name(LEDGER)} WHERE target_table = $1"
        values = (self._ledger_name(name),)
        if not self._query(f"SELECT 1 {entries} LIMIT 1", values):
            return
        self._begin()
        try:
            self._lock_ledger()
            if not self._columns_of(name):
                self._execute(f"DELETE {entries}", values)
            self._commit()
        except BaseException:
            self._rollback()
            raise

    def _fill_in_targets(self, batch: LoadBatch) -> None:
        """Set the target table in entries that have none."""
        entries = "table_name = $1 AND target_table IS NULL"
        ledger = self._name(LEDGER)
        if self._look(f"SELECT 1 FROM {ledger} WHERE {entries} LIMIT 1", (batch.table_name,)):  # noqa: S608
            self._execute(
                f"UPDATE {ledger} SET target_table = $2 WHERE {entries}",  # noqa: S608
                (batch.table_name, self._ledger_name(batch.table.name)),
            )

    def _refuse_overtaken(self, batch: LoadBatch) -> None:
        """Raise LeaseLost if another run began another load epoch while this load waited.

        By now the table holds what that run loaded after a reset or restore.
        """
        if batch.known_epochs is None:
            return
        if set(self.load_epochs(batch.table_name)) - {*batch.known_epochs, batch.load_epoch}:
            raise LeaseLost(
                f"{batch.table_name}: another run has loaded the table again after a reset or"
                " restore; nothing was loaded",
                hint="run the command again",
            )

    def _begins_again(self, batch: LoadBatch) -> bool:
        """Whether this is the first load since loading was reset.

        Without a key, rows loaded before the reset look the same as those loaded after it.
        """
        rows = self._look(
            f"SELECT DISTINCT load_epoch, target_table FROM {self._name(LEDGER)}"  # noqa: S608
            " WHERE table_name = $1",
            (batch.table_name,),
        )
        if not rows or batch.load_epoch in {int(row[0]) for row in rows}:
            return False
        name = batch.table.name
        if self._ledger_name(name) in {row[1] for row in rows}:
            return True
        held = int(self._query(f"SELECT COUNT(*) FROM {self._name(name)}")[0][0])  # noqa: S608
        if held:
            raise FloodmarkError(
                f"{name} contains {held:,} rows that may not be from {batch.table_name}, which was"
                f" loaded into {rows[0][1]} before: without a primary key, rows could be there"
                " twice",
                hint=f"empty {name} in the target, or use another 'target_name', then sync",
            )
        return False

    def _forget_loaded(self, batch: LoadBatch) -> None:
        """Delete the entries of rows that were removed, in case a restore goes back to them."""
        self._execute(
            f"DELETE FROM {self._name(LEDGER)} WHERE table_name = $1 AND target_table = $2",  # noqa: S608
            (batch.table_name, self._ledger_name(batch.table.name)),
        )

    def _note(self, batch: LoadBatch, chunks: Sequence[LoadChunk], *, again: bool) -> None:
        """Record manifests as loaded, many in one statement to save round trips.

        With `again`, the rows that were loaded before are gone.
        """
        self._fill_in_targets(batch)
        if again:
            self._forget_loaded(batch)
        for begin in range(0, len(chunks), _NOTED_AT_ONCE):
            entries = [self._entry(batch, c) for c in chunks[begin : begin + _NOTED_AT_ONCE]]
            names, numbers = list(entries[0]), count(1)
            rows = ", ".join(
                f"({', '.join(f'${next(numbers)}' for _ in names)}, {self.now})" for _ in entries
            )
            self._execute(
                f"INSERT INTO {self._name(LEDGER)} ({', '.join(names)}, loaded_at) VALUES {rows}",  # noqa: S608
                tuple(value for entry in entries for value in entry.values()),
            )

    def _entry(self, batch: LoadBatch, chunk: LoadChunk) -> dict[str, str | int]:
        return {
            "table_name": batch.table_name,
            "load_epoch": batch.load_epoch,
            "epoch": chunk.head.epoch,
            "sequence": chunk.head.sequence,
            "manifest": chunk.manifest,
            "digest": chunk.digest,
            "row_count": chunk.fitting_rows,
            "range_start": _shown(chunk.start),
            "range_end": _shown(chunk.end),
            "session_id": batch.session_id,
            "quarantined_rows": chunk.quarantined_rows,
            "target_table": self._ledger_name(batch.table.name),
            "deleted_rows": chunk.deleted_rows,
        }

    def _ledger_name(self, name: str) -> str:
        """Return a target table's name as the ledger stores it, in the target's own case."""
        bare = TargetTable(name=name, columns=(), primary_key=(), version=None)
        return self._named(bare).name


def _taken(name: str, owner: str, table_name: str) -> TargetTaken:
    return TargetTaken(
        f"{name} in the target belongs to {owner}, so {table_name} cannot be loaded into it",
        hint=f"give {table_name} another 'target_name', or drop {name} in the target if it is no"
        f" longer needed; if this is {owner} under a new name: floodmark watermark move -t {owner}"
        f" --to {table_name}",
    )


def _shown(text: str) -> str:
    """Format a position for the ledger: without U+0000, and not too long."""
    return text.replace("\0", "\\0")[:_LONGEST_RANGE]
