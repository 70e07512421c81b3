"""Compare the target's table with the source's columns, and change it to fit.

A change only ever lets the table hold more: columns are added and widened, and lose NOT NULL.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import final

from msgspec import structs

from floodmark.errors import FloodmarkError, PassingConflict, SchemaConflict
from floodmark.model.load import TargetTable
from floodmark.model.manifest import Column
from floodmark.model.schema_change import KEY, STOPS, Mismatch
from floodmark.warehouse.conversion import ConvertingBackend, held_as
from floodmark.warehouse.row_checksums import Family, family_of
from floodmark.warehouse.sql_dialect import quote
from floodmark.warehouse.target import (
    Dropped,
    both_sides,
    no_columns,
    not_a_table,
    refuse_stopping,
)

_MOMENTS: tuple[set[Family], ...] = ({"timestamp"}, {"instant"})  # of another precision


class TableChanges(ConvertingBackend):
    """Add and widen columns, unless that would lose values or is not allowed."""

    @final
    def compare(self, table: TargetTable, dropped: Dropped = no_columns) -> list[Mismatch]:
        """Compare with the catalog."""
        table = self._named(table)
        if what := self._other_relation(table.name):
            return [not_a_table(what)]
        found = self._columns_of(table.name)
        return self._compare(held_as(table, found), found, dropped) if found else []

    def _compare(
        self, table: TargetTable, found: dict[str, str], dropped: Dropped
    ) -> list[Mismatch]:
        required = self._not_null(table.name)
        mismatches = [
            mismatch
            for column in table.columns
            for mismatch in self._mismatches(table, column, found.get(column.name), required)
        ]
        names = [column.name for column in table.columns]
        extra = [name for name, default in required.items() if name not in names and not default]
        return [*mismatches, *self._extra(table, found, extra, dropped), *self._other_key(table)]

    def _other_key(self, table: TargetTable) -> Iterator[Mismatch]:
        key = self._key_of(table.name)
        if key is not None and set(key) != set(table.primary_key):
            yield Mismatch(column=KEY, source=_names(table.primary_key), target=_names(key))

    def _mismatches(
        self, table: TargetTable, column: Column, held: str | None, required: Collection[str]
    ) -> Iterator[Mismatch]:
        """Yield why a column's rows do not fit."""
        kind = self.column_type(column)
        if held is None:
            needed = Mismatch(column=column.name, source=kind, target="nothing", change="add")
            yield self._allowed(table, needed, "added", f"ADD COLUMN {quote(column.name)} {kind}")
            return
        if not self._holds(kind, held):
            needed = Mismatch(column=column.name, source=kind, target=held, change="widen")
            statement = f"ALTER COLUMN {quote(column.name)} TYPE {kind}"
            if self.widens(held, kind):
                yield self._allowed(table, needed, f"widened to {kind}", statement)
            else:
                cure = self._cure(table, column, held)
                yield structs.replace(needed, change=None, cure=cure)
        is_key = column.name in table.primary_key  # which is NOT NULL in the target
        if column.nullable and column.name in required and not is_key:
            yield self._nullable(table, column.name, kind, f"{held} NOT NULL")

    def _cure(self, table: TargetTable, column: Column, held: str) -> str | None:
        """Return how to make a column fit whose rows are in the target, but not in the lake."""
        kind, name = self.column_type(column), quote(column.name)
        families = {family_of(kind), family_of(held)}
        if "boolean" in families and column.type.startswith("tinyint"):
            return f"read it as one with 'booleans: [{column.name}]' for the table"
        statement = f"ALTER COLUMN {name} TYPE {kind}"
        if families == {"timestamp", "instant"}:
            zoned = self._run_hint(table.name, f"{statement} USING {name} AT TIME ZONE 'UTC'")
            return zoned and f"{zoned}, or with the zone that the other tool has assumed"
        fits = families <= {"integer", "decimal", "float"} or families in _MOMENTS
        return self._run_hint(table.name, statement) if fits else None

    def _extra(
        self, table: TargetTable, found: dict[str, str], extra: Sequence[str], dropped: Dropped
    ) -> Iterator[Mismatch]:
        """Yield columns that the source does not have and that rows need a value for."""
        known = {name.lower() for name in dropped()} if extra else set()
        for name in extra:
            held = f"{found[name]} NOT NULL"
            if name.lower() in known:
                yield self._nullable(table, name, "no longer there", held)
            else:
                yield Mismatch(
                    column=name,
                    source="nothing",
                    target=f"{held} without a default",
                    hint=self._run_hint(table.name, _drop_not_null(name))
                    or f"create {quote(name)} without NOT NULL, or with a default",
                )

    def _nullable(self, table: TargetTable, name: str, source: str, held: str) -> Mismatch:
        needed = Mismatch(column=name, source=source, target=held, change="allow NULL")
        return self._allowed(table, needed, "made nullable", _drop_not_null(name))

    def _allowed(
        self, table: TargetTable, mismatch: Mismatch, done: str, statement: str
    ) -> Mismatch:
        """Return a mismatch that a change of the table removes, if it may be altered."""
        if not self.frozen:
            return structs.replace(mismatch, will=f"the column is {done}", stops=False)
        run = self._run_hint(table.name, statement)
        follow = "set 'schema_changes: follow' for the table, and sync"
        if mismatch.change == "add":
            follow += f", or leave it out with 'exclude: [{mismatch.column}]'"
        return structs.replace(
            mismatch,
            will=f"{STOPS}: it would have to be {done}, and 'schema_changes' is 'freeze'",
            hint=f"{run}, or {follow}" if run else follow,
        )

    def _run_hint(self, table: str, statement: str) -> str | None:
        """Return the hint to run an ALTER TABLE; None if the target does not support it."""
        return f"run ALTER TABLE {self._name(table)} {statement} in the target"

    def _change_table(
        self, table: TargetTable, found: dict[str, str], dropped: Dropped
    ) -> list[str]:
        """Change the table to fit; SchemaConflict, before anything is changed, if it cannot."""
        mismatches = self._compare(table, found, dropped)
        refuse_stopping(table.name, mismatches)
        with _explaining_dependents(table.name):
            strict = [m.column for m in mismatches if m.change == "allow NULL"]
            done = self._make_nullable(table, strict, found)
            return done + self._adapt(table, found)

    def _make_nullable(
        self, table: TargetTable, columns: Sequence[str], found: dict[str, str]
    ) -> list[str]:
        """Drop NOT NULL of columns, and return what was done."""
        for name in columns:
            self._allow_null(table.name, name, found[name])
        return [f"dropped NOT NULL of {table.name}.{name}" for name in columns]

    def _allow_null(self, table: str, column: str, kind: str) -> None:  # noqa: ARG002
        self._execute(f"ALTER TABLE {self._name(table)} {_drop_not_null(column)}")

    def _adapt(self, table: TargetTable, found: dict[str, str]) -> list[str]:
        done = []
        for column in table.columns:
            kind = self.column_type(column)
            if column.name not in found:
                self._create(
                    f"ALTER TABLE {self._name(table.name)} ADD COLUMN {quote(column.name)} {kind}"
                )
                done.append(f"added {table.name}.{column.name}")
            elif not self._holds(kind, found[column.name]):
                self._widen(table.name, column.name, kind)
                done.append(f"widened {table.name}.{column.name} to {kind}")
        return done

    def _check_fit(self, table: TargetTable, found: dict[str, str]) -> None:
        """Raise SchemaConflict unless the target's table can hold all rows of these manifests.

        Manifests may be older than the last schema change, the target may have been changed by
        others, and its names may be case-insensitive.
        """
        for column in held_as(table, found).columns:
            kind, holds = self.column_type(column), found.get(column.name, "nothing")
            if not self._holds(kind, holds):
                raise SchemaConflict(both_sides(table.name, column.name, holds, kind))


def _drop_not_null(column: str) -> str:
    return f"ALTER COLUMN {quote(column)} DROP NOT NULL"


def _names(columns: Sequence[str]) -> str:
    return f"({', '.join(columns)})" if columns else "nothing"


@contextmanager
def _explaining_dependents(name: str) -> Iterator[None]:
    """Add a hint about dependent objects to errors without one."""
    try:
        yield
    except PassingConflict:
        raise
    except FloodmarkError as error:
        error.hint = error.hint or (
            f"if a view or an index uses {name}, drop that in the target, sync, and create it again"
        )
        raise
