"""Rows of another schema than the target's table has: other names, types, or fewer columns."""

from collections.abc import Iterable

import pyarrow as pa
from msgspec import structs

from floodmark.errors import FloodmarkError
from floodmark.model.load import LoadBatch, TargetTable
from floodmark.warehouse.sql_dialect import STAGING, SqlBackend, quote

_FITTED = "floodmark_fitted"
_INTEGERS = ("SMALLINT", "INTEGER", "BIGINT")


class ConvertingBackend(SqlBackend):
    """Converts what is staged to what the target holds."""

    def _holds(self, kind: str, held: str) -> bool:
        """Whether a column of the target holds every value of a type, as it is or converted."""
        return kind == held or self.widens(kind, held) or self._needs_conversion(kind, held)

    def _needs_conversion(self, kind: str, held: str) -> bool:
        """Whether values of a type become numbers or text on their way into a column."""
        if kind == held or self.widens(kind, held):
            return False
        is_number = kind.upper() == "BOOLEAN" and held.upper() in _INTEGERS
        return is_number or self.is_text(held, kind)

    def _fill_in(self, batch: LoadBatch, found: dict[str, str]) -> None:
        """Give all rows that are there their value in columns that they did not have."""
        table = batch.table
        names = {name.lower(): name for name in found}
        for column, value in batch.fills.items():
            if value is not None:
                self._refuse_unfit(batch, column, value)
            if (name := names.get(column.lower())) is None:
                continue
            literal = "NULL" if value is None else self._literal(value, found[name])
            others = f"{quote(name)} IS NOT NULL"
            if value is not None:
                others = self._differs(quote(name), literal, found[name])
            self._execute(
                f"UPDATE {self._name(table.name)} SET {quote(name)} = {literal} WHERE {others}"  # noqa: S608
            )

    def _refuse_unfit(self, batch: LoadBatch, name: str, value: str) -> None:
        """FloodmarkError if rows are to get a value that the target cannot hold.

        No row can be set aside for it: those that are there were loaded before.
        """
        column = next((c for c in batch.table.columns if c.name.lower() == name.lower()), None)
        if column is None or column.arrow not in ("string", "binary"):
            return
        held = bytes.fromhex(value) if column.arrow == "binary" else value
        row = pa.record_batch({column.name: [held]})
        unsupported_values = [
            unsupported_value
            for unsupported_value in self.unsupported_values(batch.table)
            if unsupported_value.column == column.name
        ]
        for unsupported_value in unsupported_values:
            if unsupported_value.found(row)[0].as_py():
                raise FloodmarkError(
                    f"{batch.table_name}: the value of {name} that rows read before have by now"
                    f" {unsupported_value.reason}",
                    hint=f"leave it out with 'exclude: [{name}]' for the table, or change it in the"
                    f" source; then 'floodmark watermark reset -t {batch.table_name} --force' and"
                    " sync read all rows again",
                )

    def _fit_staging(self, table: TargetTable, found: dict[str, str]) -> TargetTable:
        """Give staged columns the names and, where values must be converted, the types they have.

        Returns the table as the target holds it.
        """
        held = held_as(table, found)
        values = [
            self._converted(quote(column.name), self.column_type(column), found[kept.name])
            for column, kept in zip(table.columns, held.columns, strict=True)
        ]
        if held == table and values == [quote(column.name) for column in table.columns]:
            return table
        columns = ", ".join(
            f"{value} AS {quote(kept.name)}"
            for value, kept in zip(values, held.columns, strict=True)
        )
        self._execute(f"CREATE TEMPORARY TABLE {_FITTED} AS SELECT {columns} FROM {STAGING}")  # noqa: S608
        self._drop_staging()
        self._execute(f"ALTER TABLE {_FITTED} RENAME TO {STAGING}")
        return held

    def _drop_staging(self) -> None:
        self._execute(f"DROP TABLE {STAGING}")

    def _converted(self, name: str, kind: str, held: str) -> str:
        """What a staged column is converted to, so that the target's column holds it."""
        if not self._needs_conversion(kind, held):
            return name
        if kind.upper() == "BOOLEAN":
            digit = ("'1'", "'0'") if self.is_text(held, kind) else ("1", "0")
            return f"CASE WHEN {name} THEN {digit[0]} WHEN NOT {name} THEN {digit[1]} END"
        return self._as_text(name, kind, held)


def held_as(table: TargetTable, found: Iterable[str]) -> TargetTable:
    """A table with its columns as the target spells them, if only the case of a name changed."""
    exact = set(found)
    spelled = {name.lower(): name for name in exact}

    def held(name: str) -> str:
        return name if name in exact else spelled.get(name.lower(), name)

    return structs.replace(
        table,
        columns=tuple(structs.replace(c, name=held(c.name)) for c in table.columns),
        primary_key=tuple(map(held, table.primary_key)),
        version=held(table.version) if table.version else None,
    )
