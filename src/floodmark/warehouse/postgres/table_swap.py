"""Put a table that was filled beforehand in the place of an empty one.

A table that is swapped in has another identity, so everything that is attached to the old one would
be lost: views, triggers, policies, comments, publications. A table with any of it is not swapped;
its rows are inserted from the new one instead. Privileges are copied.
"""

from floodmark.errors import DuplicateKey, FloodmarkError
from floodmark.model.load import TargetTable
from floodmark.warehouse.postgres.target import PostgresTarget
from floodmark.warehouse.sql_dialect import quote

# Readers queue behind a session that waits for an exclusive lock: do not block them for longer.
_PATIENCE = "3s"

_PLAIN = """
SELECT 1 FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
LEFT JOIN pg_class x ON x.oid = i.indexrelid
LEFT JOIN pg_constraint k ON k.conindid = i.indexrelid AND k.conrelid = c.oid
WHERE n.nspname = $1 AND c.relname = $2
AND pg_get_userbyid(c.relowner) = current_user
AND c.relkind = 'r' AND c.relpersistence = 'p' AND c.relreplident = 'd'
AND c.reloptions IS NULL AND c.reltablespace = 0 AND c.reloftype = 0
AND c.relam = (
    SELECT oid FROM pg_am WHERE amname = current_setting('default_table_access_method')
)
AND NOT (c.relispartition OR c.relhassubclass OR c.relrowsecurity OR c.relforcerowsecurity)
AND (i.indexrelid IS NULL OR (
    i.indnatts = i.indnkeyatts AND NOT i.indisclustered
    AND x.reloptions IS NULL AND x.reltablespace = 0
))
AND NOT EXISTS (
    SELECT 1 FROM aclexplode(c.relacl) a WHERE a.grantor <> c.relowner
)
AND NOT EXISTS (
    SELECT 1 FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND (
        a.atthasdef OR a.attidentity <> '' OR a.attinhcount > 0 OR a.attacl IS NOT NULL
        OR a.attoptions IS NOT NULL OR a.attstorage <> t.typstorage
        OR COALESCE(a.attstattarget, -1) <> -1
        OR COALESCE(to_jsonb(a) ->> 'attcompression', '') <> ''
    )
)
AND NOT EXISTS (
    SELECT 1 FROM pg_depend d
    WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid AND NOT (
        d.refobjsubid = 0 AND d.deptype = 'i'
        AND d.classid IN ('pg_type'::regclass, 'pg_class'::regclass)
        OR d.classid = 'pg_constraint'::regclass AND EXISTS (
            SELECT 1 FROM pg_constraint o
            WHERE o.oid = d.objid AND o.conrelid = c.oid AND o.contype IN ('p', 'n')
        )
    )
)
AND NOT EXISTS (
    SELECT 1 FROM pg_depend d
    WHERE d.refclassid = 'pg_type'::regclass AND d.deptype <> 'i'
    AND d.refobjid IN (c.reltype, (SELECT typarray FROM pg_type WHERE oid = c.reltype))
)
AND NOT EXISTS (
    SELECT 1 FROM pg_depend d
    WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype IN ('e', 'x')
)
AND NOT EXISTS (SELECT 1 FROM pg_description d WHERE d.objoid IN (c.oid, i.indexrelid, k.oid))
AND NOT EXISTS (SELECT 1 FROM pg_seclabel s WHERE s.objoid IN (c.oid, i.indexrelid, k.oid))
AND NOT EXISTS (
    SELECT 1 FROM pg_publication_tables p WHERE p.schemaname = $1 AND p.tablename = $2
)
"""


class SwappingTarget(PostgresTarget):
    """Swap tables, if nothing is attached to the old one."""

    def _is_plain(self, name: str) -> bool:
        """Whether a table has nothing but columns, NOT NULL, a primary key and privileges.

        It must be ours, since only its owner may drop it. A published table is not plain: its
        subscribers would receive the rows under the name of another table.
        """
        return bool(self._query(_PLAIN, (self._schema, name)))

    def _is_empty(self, name: str) -> bool:
        return bool(self._query(f"SELECT NOT EXISTS (SELECT 1 FROM {self._name(name)})")[0][0])  # noqa: S608

    def _add_key(self, name: str, table: TargetTable) -> None:
        """Add the primary key; of rows with the same key, keep the newest."""
        keys = ", ".join(map(quote, table.primary_key))
        add = f"ALTER TABLE {self._name(name)} ADD PRIMARY KEY ({keys})"
        self._begin()
        try:
            self._execute("SAVEPOINT without_key")
            try:
                self._execute(add)
            except DuplicateKey:
                self._execute("ROLLBACK TO without_key")
                self._remove_duplicates(name, table)
                self._execute(add)
            self._commit()
        except BaseException:
            self._rollback()
            raise

    def _swap(self, new: str, old: str, *others: str, replace_rows: bool = False) -> bool:
        """Drop the old table, and give the new one its name, privileges and name of the key.

        Also drop the `others`. Return False, with nothing done, if something is attached to the old
        table, somebody is using it, or it has rows. Part of the load's transaction.
        """
        self._execute("SAVEPOINT not_swapped")
        try:
            self._execute(f"SET LOCAL lock_timeout = '{_PATIENCE}'")
            self._execute(
                f"LOCK TABLE {self._name(old)}, {self._name(new)} IN ACCESS EXCLUSIVE MODE"
            )
            self._execute("SET LOCAL lock_timeout TO DEFAULT")
            if self._is_plain(old) and (replace_rows or self._is_empty(old)):
                self._copy_privileges(old, new)
                key = self._key_name(old)
                self._execute(f"DROP TABLE {', '.join(map(self._name, (old, *others)))}")
                self._execute(f"ALTER TABLE {self._name(new)} RENAME TO {quote(old)}")
                self._rename_key(old, key)
                return True
        except FloodmarkError:
            if self._session.closed:
                raise
        self._execute("ROLLBACK TO not_swapped")
        return False

    def _rename_key(self, name: str, key: str | None) -> None:
        if key and (found := self._key_name(name)) and found != key:
            self._execute(
                f"ALTER TABLE {self._name(name)} RENAME CONSTRAINT {quote(found)} TO {quote(key)}"
            )

    def _remove_duplicates(self, name: str, table: TargetTable) -> None:
        keys = ", ".join(map(quote, table.primary_key))
        newest = f" ORDER BY {quote(table.version)} DESC NULLS LAST" if table.version else ""
        ranked = (
            f"SELECT ctid AS place, row_number() OVER (PARTITION BY {keys}{newest}) AS rank"  # noqa: S608
            f" FROM {self._name(name)}"
        )
        self._execute(
            f"DELETE FROM {self._name(name)} WHERE ctid IN"  # noqa: S608
            f" (SELECT place FROM ({ranked}) AS ranked WHERE rank > 1)"
        )

    def _copy_privileges(self, old: str, new: str) -> None:
        """Grant on a table what is granted on another, and nothing else."""
        wanted, found = self._privileges(old), self._privileges(new)
        place = self._name(new)
        for who, privilege, _ in sorted(found - wanted):
            self._execute(f"REVOKE {privilege} ON TABLE {place} FROM {who}")
        for who, privilege, may_grant in sorted(wanted - found):
            option = " WITH GRANT OPTION" if may_grant else ""
            self._execute(f"GRANT {privilege} ON TABLE {place} TO {who}{option}")

    def _privileges(self, name: str) -> set[tuple[str, str, bool]]:
        rows = self._query(
            "SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC'"
            " ELSE quote_ident(pg_get_userbyid(a.grantee)) END, a.privilege_type, a.is_grantable"
            " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace,"
            " aclexplode(COALESCE(c.relacl, acldefault('r', c.relowner))) a"
            " WHERE n.nspname = $1 AND c.relname = $2",
            (self._schema, name),
        )
        return {(str(who), str(privilege), bool(option)) for who, privilege, option in rows}

    def _key_name(self, name: str) -> str | None:
        rows = self._query(
            "SELECT k.conname FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid"
            " JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = $1 AND c.relname = $2 AND k.contype = 'p'",
            (self._schema, name),
        )
        return str(rows[0][0]) if rows else None
