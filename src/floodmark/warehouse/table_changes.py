"""Compare the target's table with the source's columns, and change it to fit.

A change only ever lets the table hold more: columns are added and widened, and lose NOT NULL.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import final

from floodmark.errors import FloodmarkError
from floodmark.model.load import TargetTable
from floodmark.model.manifest import Column
from floodmark.model.schema_change import STOPS, Mismatch
from floodmark.warehouse.conversion import ConvertingBackend, held_as
from floodmark.warehouse.sql_dialect import PassingConflict, quote
from floodmark.warehouse.target import (
    Dropped,
    SchemaConflict,
    both_sides,
    no_columns,
    refuse_stopping,
)

FROZEN = "'schema_changes: freeze' does not allow it"


class TableChanges(ConvertingBackend):
    """Add and widen columns, unless that would lose values or is not allowed."""

    @final
    def compare(self, table: TargetTable, dropped: Dropped = no_columns) -> list[Mismatch]:
        """Compare with the catalog."""
        table = self._named(table)
        found = self._columns_of(table.name)
        return self._compare(held_as(table, found), found, dropped) if found else []

    def _compare(
        self, table: TargetTable, found: dict[str, str], dropped: Dropped
    ) -> list[Mismatch]:
        required = self._not_null(table.name)
        pairs = ((column, found.get(column.name)) for column in table.columns)
        mismatches = [self._mismatch(table, column, held, required) for column, held in pairs]
        names = [column.name for column in table.columns]
        extra = [name for name, default in required.items() if name not in names and not default]
        return [*filter(None, mismatches), *self._extra(table, found, extra, dropped)]

    def _mismatch(
        self, table: TargetTable, column: Column, held: str | None, required: Collection[str]
    ) -> Mismatch | None:
        kind = self.column_type(column)
        if held is None:
            statement = f"ADD COLUMN {quote(column.name)} {kind}"
            return self._change(table, column.name, kind, "nothing", "added", statement)
        if not self._holds(kind, held):
            if not self.widens(held, kind):
                return Mismatch(
                    column=column.name, source=kind, target=held, will=STOPS, stops=True
                )
            statement = f"ALTER COLUMN {quote(column.name)} TYPE {kind}"
            return self._change(table, column.name, kind, held, f"widened to {kind}", statement)
        if column.nullable and column.name in required:
            return self._change(
                table,
                column.name,
                kind,
                f"{held} NOT NULL",
                "made nullable",
                _nullable(column.name),
            )
        return None

    def _extra(
        self, table: TargetTable, found: dict[str, str], extra: Sequence[str], dropped: Dropped
    ) -> Iterator[Mismatch]:
        """Yield columns that the source does not have and that rows need a value for."""
        known = {name.lower() for name in dropped()} if extra else set()
        for name in extra:
            held = f"{found[name]} NOT NULL"
            statement = _nullable(name)
            if name.lower() in known:
                yield self._change(table, name, "no longer there", held, "made nullable", statement)
            else:
                yield Mismatch(
                    column=name,
                    source="nothing",
                    target=f"{held} without a default",
                    will=STOPS,
                    stops=True,
                    hint=self._run_hint(table.name, statement)
                    or f"create {quote(name)} without NOT NULL, or with a default",
                )

    def _change(
        self, table: TargetTable, column: str, source: str, held: str, will: str, statement: str
    ) -> Mismatch:
        """Return a mismatch that a change of the table removes, if that is allowed."""
        if not self.frozen:
            return Mismatch(column=column, source=source, target=held, will=f"the column is {will}")
        run = self._run_hint(table.name, statement)
        follow = "set 'schema_changes: follow' for the table, and sync"
        return Mismatch(
            column=column,
            source=source,
            target=held,
            will=f"{STOPS}: {FROZEN} to be {will}",
            stops=True,
            hint=f"{run}, or {follow}" if run else follow,
        )

    def _run_hint(self, table: str, statement: str) -> str | None:
        """Return the hint to run an ALTER TABLE; None if the target does not support it."""
        return f"run ALTER TABLE {self._name(table)} {statement} in the target, and sync"

    def _change_table(
        self, table: TargetTable, found: dict[str, str], dropped: Dropped
    ) -> list[str]:
        """Change the table to fit; SchemaConflict, before anything is changed, if it cannot."""
        mismatches = self._compare(table, found, dropped)
        refuse_stopping(table.name, mismatches)
        key = self._key_of(table.name)
        if key is not None and set(key) != set(table.primary_key):
            raise SchemaConflict(
                f"the primary key of {table.name} is {_names(key)} in the target, but"
                f" {_names(table.primary_key)} in the source's schema"
            )
        with _explaining_dependents(table.name):
            extra = [m.column for m in mismatches if m.will == "the column is made nullable"]
            done = self._make_nullable(table, extra, found)
            return done + self._adapt(table, found)

    def _make_nullable(
        self, table: TargetTable, columns: Sequence[str], found: dict[str, str]
    ) -> list[str]:
        for name in columns:
            self._allow_null(table.name, name, found[name])
        return [f"dropped NOT NULL of {table.name}.{name}" for name in columns]

    def _allow_null(self, table: str, column: str, kind: str) -> None:  # noqa: ARG002
        self._execute(f"ALTER TABLE {self._name(table)} {_nullable(column)}")

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


def _nullable(column: str) -> str:
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
