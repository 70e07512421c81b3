"""Create tables in Redshift, and change them when the source's schema changes."""

from collections.abc import Sequence

from msgspec import structs

from floodmark.config.models import TableSettings
from floodmark.errors import ConfigError, FloodmarkError, StatementFailed
from floodmark.model.load import TargetTable
from floodmark.model.manifest import Column
from floodmark.model.notice import Notice
from floodmark.warehouse.grants import grantees, granting, refuse_unknown
from floodmark.warehouse.redshift.keys import (
    declared_key,
    dropping_key,
    key_columns,
    key_query,
    never_null,
    not_null_query,
    stays_true,
)
from floodmark.warehouse.redshift.types import folded
from floodmark.warehouse.redshift.widening import (
    Role,
    check_widening,
    grows_in_place,
    rewriting,
    role_of,
    roles_query,
    views_query,
)
from floodmark.warehouse.sql_dialect import free_name, quote
from floodmark.warehouse.sql_target import SqlTarget


class RedshiftTables(SqlTarget):
    """Distribution, keys, encodings, privileges, and wider types."""

    _schema: str
    _settings: TableSettings

    def _create_statement(self, table: TargetTable) -> str:
        settings = self._settings
        named = {
            "distkey": [settings.distkey] if settings.distkey else [],
            "sortkey": settings.sort_columns,
            "encode": settings.encode,
        }
        for key, columns in named.items():
            for name in map(folded, columns):
                if name not in [column.name for column in table.columns]:
                    raise ConfigError(
                        f"{key} of {table.name} names {name!r}, which is not a column"
                    )
        if settings.distkey and table.column(folded(settings.distkey)).arrow == "binary":
            raise ConfigError(
                f"distkey of {table.name} names {settings.distkey!r}, which is binary",
                hint="Redshift cannot distribute by VARBYTE: name another column, or none",
            )
        statement = super()._create_statement(table)
        if settings.diststyle:
            statement += f" DISTSTYLE {settings.diststyle.upper()}"
        for key in ("distkey", "sortkey"):
            if columns := ", ".join(quote(folded(column)) for column in named[key]):
                statement += f" {key.upper()} ({columns})"
        return statement

    def _table_key(self, table: TargetTable) -> str:
        key = declared_key(table)
        return f", PRIMARY KEY ({', '.join(map(quote, key))})" if key else ""

    def _column_definition(self, table: TargetTable, column: Column) -> str:
        encodings = {folded(name): how for name, how in self._settings.encode.items()}
        encoding = encodings.get(column.name)
        definition = super()._column_definition(table, column)
        if encoding:
            definition += f" ENCODE {encoding.upper()}"
        return f"{definition} NOT NULL" if column.name in never_null(table) else definition

    def _make_nullable(
        self, table: TargetTable, columns: Sequence[str], found: dict[str, str]
    ) -> list[str]:
        """First drop a declared key that rows no longer keep to."""
        done = []
        constraint, declared = self._declared_key(table.name)
        if declared and not stays_true(declared, table.primary_key):
            self._drop_key(table.name, constraint, "rows are loaded by another key")
            done.append(f"dropped the primary key of {table.name}")
        return done + super()._make_nullable(table, columns, found)

    def _widen(self, table: str, column: str, kind: str) -> None:
        columns = self._columns_of(table)
        name, old = self._name(table), columns[column]
        role = self._role(table, column)
        check_widening(name, column, old, kind, role)
        if grows_in_place(old, kind, role):
            if role.constraint:
                self._drop_key(
                    table, role.constraint, f"it prevents the change of {column} to {kind}"
                )
            self._execute(f"ALTER TABLE {name} ALTER COLUMN {quote(column)} TYPE {kind}")
            return
        message = f"{table}.{column} becomes {kind}: this rewrites every row of the table"
        self._rewrite(table, column, kind, role, message)

    def _rewrite(self, table: str, column: str, kind: str, role: Role, message: str) -> None:
        """Replace a column with a wider one that holds its values."""
        if role.constraint:
            message += ", and its PRIMARY KEY is no longer declared"
        self.report(Notice("info", message, "widening"))
        columns = self._columns_of(table)
        wider = free_name("floodmark_wider", columns)
        name, old = self._name(table), columns[column]
        self._run_together(rewriting(name, column, wider, old, kind, role))

    def _not_null(self, name: str) -> dict[str, bool]:
        return dict(self._query(not_null_query(self._schema, name)))

    def _run_hint(self, table: str, statement: str) -> str | None:
        """Redshift neither drops NOT NULL nor changes a type, except for a longer VARCHAR."""
        fixed = "DROP NOT NULL" in statement or (
            " TYPE " in statement and "VARCHAR" not in statement
        )
        return None if fixed else super()._run_hint(table, statement)

    def _allow_null(self, table: str, column: str, kind: str) -> None:
        role = self._role(table, column)
        check_widening(self._name(table), column, kind, f"{kind} NULL", role, in_place=False)
        message = f"{table}.{column} may be NULL now: this rewrites every row of the table"
        self._rewrite(table, column, kind, role, message)

    def _declared_key(self, table: str) -> tuple[str, tuple[str, ...]]:
        """Return the name and columns of a table's primary key; empty if it has none."""
        for constraint, definition in self._query(key_query(self._schema, table)):
            return str(constraint), key_columns(str(definition))
        return "", ()

    def _drop_key(self, table: str, constraint: str, why: str) -> None:
        message = f"{table}: its PRIMARY KEY is no longer declared in Redshift: {why}"
        self.report(Notice("warning", message, "key"))
        self._execute(dropping_key(self._name(table), constraint))

    def _role(self, table: str, column: str) -> Role:
        views = [str(name) for (name,) in self._query(views_query(self._schema, table, column))]
        found = [(r[0], r[1], r[2], r[3]) for r in self._query(roles_query(self._schema, table))]
        if (role := role_of(column, found, views)) is None:
            raise FloodmarkError(
                f"{table}.{column} must be widened, but svv_redshift_columns does not show it",
                hint="make the user the owner of the table",
            )
        constraint, key = self._declared_key(table)
        return structs.replace(role, constraint=constraint) if column in key else role

    def _grants_on(self, table: str) -> Sequence[str]:
        return granting(self._name(table), self.grants, {"group": "GROUP", "role": "ROLE"})

    def check_grants(self, name: str) -> None:
        """Check that users and groups exist; roles may not be visible."""
        expected = [who for who in grantees(self.grants) if who.kind in ("user", "group")]
        if not expected or self._columns_of(folded(name)):
            return
        try:
            users = self._query("SELECT usename FROM pg_user")
            groups = self._query("SELECT groname FROM pg_group")
        except StatementFailed:
            return  # GRANT itself will fail
        # The case of user names is kept, such as IAMR:Analyst; GRANT itself will be exact.
        known = {("user", folded(user)) for (user,) in users}
        known |= {("group", folded(group)) for (group,) in groups}
        names = [who.name for who in expected if (who.kind, folded(who.name)) not in known]
        refuse_unknown("Redshift", name, names)

    def _run_together(self, statements: Sequence[str]) -> None:
        """Run statements in one transaction."""
        self._begin()
        try:
            for statement in statements:
                self._execute(statement)
            self._commit()
        except BaseException:
            self._rollback()
            raise
