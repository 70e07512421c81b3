"""Schemas of PostgreSQL and Redshift: qualify names, create and drop them."""

from floodmark.warehouse.sql_dialect import quote
from floodmark.warehouse.sql_target import SqlTarget

_TABLES = ("r", "p")
_OTHERS = {
    "v": "a view",
    "m": "a materialized view",
    "f": "a foreign table",
    "S": "a sequence",
    "i": "an index",
    "I": "an index",
    "c": "a type",
}


class SchemaTarget(SqlTarget):
    """A target whose tables are all in one schema."""

    _schema: str

    def _name(self, table: str) -> str:
        return f"{quote(self._schema)}.{quote(table)}"

    def _other_relation(self, name: str) -> str | None:
        """Look it up in the catalog; Redshift has the same kinds of relations."""
        rows = self._query(
            "SELECT c.relkind FROM pg_class AS c"  # noqa: S608
            " JOIN pg_namespace AS n ON n.oid = c.relnamespace"
            f" WHERE n.nspname = {self._text(self._schema)} AND c.relname = {self._text(name)}"
        )
        kinds = [str(kind) for (kind,) in rows]
        return next((_OTHERS.get(kind, "no table") for kind in kinds if kind not in _TABLES), None)

    def scratch_schemas(self, prefix: str) -> list[str]:
        """Look them up in the catalog."""
        rows = self._query("SELECT nspname FROM pg_namespace")
        return sorted(str(name) for (name,) in rows if str(name).startswith(prefix))

    def drop_scratch(self, schema: str) -> None:
        """Drop a schema, if it exists."""
        self._begin()
        try:
            self._execute(f"DROP SCHEMA IF EXISTS {quote(schema)} CASCADE")
            self._commit()
        except BaseException:
            self._rollback()
            raise

    def _make_schema(self) -> None:
        name = self._text(self._schema)
        if not self._query(f"SELECT 1 FROM pg_namespace WHERE nspname = {name}"):  # noqa: S608
            self._execute(f"CREATE SCHEMA {quote(self._schema)}")
