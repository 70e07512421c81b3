"""Convert rows whose schema differs from the target table: names, types, missing columns."""

from collections.abc import Iterable

from msgspec import structs

from floodmark.errors import FloodmarkError
from floodmark.model.load import LoadBatch, TargetTable
from floodmark.model.manifest import Column
from floodmark.warehouse.sql_dialect import STAGING, SqlBackend, quote

_FITTED = "floodmark_fitted"
_SMALL = Column("", "smallint", nullable=True, arrow="int16")


class ConvertingBackend(SqlBackend):
    """Convert staged rows to the columns and types of the target table."""

    def _holds(self, kind: str, held: str) -> bool:
        """Whether a target column can hold every value of a type, converted if necessary."""
        return kind == held or self.widens(kind, held) or self._needs_conversion(kind, held)

    def _needs_conversion(self, kind: str, held: str) -> bool:
        """Whether values of a type must be converted to numbers or text for a column."""
        if kind == held or self.widens(kind, held):
            return False
        return self.is_text(held, kind) or (kind.upper() == "BOOLEAN" and self._is_number(held))

    def _is_number(self, held: str) -> bool:
        """Whether a column of the target holds small numbers, so also 0 and 1."""
        small = self.column_type(_SMALL)
        return held == small or self.widens(small, held)

    def _fill_in(self, batch: LoadBatch, found: dict[str, str]) -> None:
        """Set the values of columns that already loaded rows did not have."""
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
        """Raise FloodmarkError if a fill value is one that the target cannot hold.

        These rows are already loaded, so none can be quarantined.
        """
        column = next((c for c in batch.table.columns if c.name.lower() == name.lower()), None)
        if column is None or column.arrow not in ("string", "binary"):
            return
        import pyarrow as pa

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
                    f"{batch.table_name}: the target cannot hold the value that {name} has in rows"
                    f" read before: {unsupported_value.reason}",
                    hint=f"leave it out with 'exclude: [{name}]' for the table, or change it in the"
                    " source; then run 'floodmark watermark reset -t"
                    f" {batch.table_name} --force' and sync, which reads all rows again",
                )

    def _fit_staging(self, table: TargetTable, found: dict[str, str]) -> TargetTable:
        """Rename staged columns, and convert their values where necessary, to match the target.

        Return the table as the target holds it.
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
        """Return the SQL expression that converts a staged column to the target column's type."""
        if not self._needs_conversion(kind, held):
            return name
        if kind.upper() == "BOOLEAN":
            digit = ("'1'", "'0'") if self.is_text(held, kind) else ("1", "0")
            return f"CASE WHEN {name} THEN {digit[0]} WHEN NOT {name} THEN {digit[1]} END"
        return self._as_text(name, kind, held)


def held_name(name: str | None, found: Iterable[str]) -> str | None:
    """Return a column's name as the target spells it; None if it has no such column."""
    names = list(found)
    if name is None or name in names:
        return name
    return next((known for known in names if known.lower() == name.lower()), None)


def held_as(table: TargetTable, found: Iterable[str]) -> TargetTable:
    """Return a table with its columns spelled as in the target, where only the case differs."""
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
