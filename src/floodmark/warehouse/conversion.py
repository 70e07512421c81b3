"""Rows of another schema than the target's table has: other names, types, or fewer columns."""

from collections.abc import Iterable, Mapping

from msgspec import structs

from floodmark.model.load import TargetTable
from floodmark.warehouse.backend import STAGING, SqlBackend, quote

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

    def _fill_in(
        self, table: TargetTable, fills: Mapping[str, str | None], found: dict[str, str]
    ) -> None:
        """Give all rows that are there their value in columns that they did not have."""
        names = {name.lower(): name for name in found}
        for column, value in fills.items():
            if (name := names.get(column.lower())) is None:
                continue
            literal = "NULL" if value is None else self._literal(value, found[name])
            others = f"{quote(name)} IS NOT NULL"
            if value is not None:
                others = self._differs(quote(name), literal, found[name])
            self._execute(
                f"UPDATE {self._name(table.name)} SET {quote(name)} = {literal} WHERE {others}"  # noqa: S608
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
