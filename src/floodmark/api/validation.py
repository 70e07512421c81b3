"""Check that the tracking matches the lake and the warehouse."""

from collections.abc import Sequence
from typing import Self

from msgspec import Struct

from floodmark.api.context import RunContext
from floodmark.api.loading import loading_of
from floodmark.api.verification import verification_of
from floodmark.config.models import SparkSettings
from floodmark.errors import DifferenceFound, FloodmarkError
from floodmark.model.table import TableName
from floodmark.model.verification import VerificationResult
from floodmark.state.lake_validation import Findings
from floodmark.state.lake_validation import validate as validate_lake
from floodmark.sync.loading import Loading
from floodmark.sync.spark_engine import SparkEngine
from floodmark.sync.tunnels import open_for_workers
from floodmark.sync.validate import compare_cursor, repair_table, validate_table
from floodmark.sync.verify import load_again, verify_table
from floodmark.tunnels.tunnel import Tunnels


class TableValidation(Struct, frozen=True, kw_only=True):
    """The findings for a table; `error` is why its rows could not be compared."""

    table_name: str
    findings: Findings
    verification: VerificationResult | None = None
    error: FloodmarkError | None = None

    @property
    def differs(self) -> bool:
        """Whether the table differs from its tracking or from the source."""
        rows = self.verification is not None and bool(self.verification.differences)
        return bool(self.findings.differences) or rows or isinstance(self.error, DifferenceFound)


class ValidationResult(Struct, frozen=True, kw_only=True):
    """The findings for each table."""

    tables: tuple[TableValidation, ...]
    repaired: bool = False

    def raise_for_failures(self) -> Self:
        """Return the result; raise DifferenceFound, or the error of a table not compared."""
        if differing := [table.table_name for table in self.tables if table.differs]:
            raise DifferenceFound(
                f"differences in {', '.join(differing)}", hint=self._hint(differing)
            )
        for table in self.tables:
            if table.error:
                raise table.error
        if unchecked := [table.table_name for table in self.tables if table.findings.unchecked]:
            raise FloodmarkError(
                f"the target of {', '.join(unchecked)} could not be checked",
                hint="--lake-only skips it",
            )
        return self

    def _hint(self, differing: Sequence[str]) -> str | None:
        found = [table.findings for table in self.tables]
        if not self.repaired and any(findings.repairable for findings in found):
            return "'floodmark watermark validate --repair' repairs the tracking"
        compared = [table.verification for table in self.tables if table.verification]
        tracking = any(findings.differences for findings in found)
        if tracking and not any(rows.differences for rows in compared):
            return None
        keyed = not any(rows.differences and not rows.keys for rows in compared)
        return load_again(" -t ".join(differing), keyed=keyed)


class Validating(Struct, frozen=True, kw_only=True):
    """A validation and its options; with `data`, it also compares all rows with the source."""

    run: RunContext
    engine: SparkEngine
    spark: SparkSettings
    tables: list[TableName]
    repair: bool = False
    lake_only: bool = False
    data: bool = False

    def validate(self) -> ValidationResult:
        """Validate each table, repair the tracking if `repair` is set, then compare the rows."""
        run = self.run
        known = () if self.lake_only else run.config.tables
        with Tunnels(run.folder) as tunnels:
            loadings = {t: loading_of(run, t, tunnels) if t in known else None for t in self.tables}
            found = {table: self._validate_table(table, loadings[table]) for table in self.tables}
            for table, findings in found.items() if self.repair else ():
                if findings.differences:
                    repair_table(run.store, table, loadings[table])
                    found[table] = self._validate_table(table, loadings[table])
            compared = [table for table in self.tables if table in known] if self.data else []
            rows = self._compare(compared, tunnels)
        return ValidationResult(
            tables=tuple(
                TableValidation(
                    table_name=str(table),
                    findings=findings,
                    verification=rows[table][0] if table in rows else None,
                    error=rows[table][1] if table in rows else None,
                )
                for table, findings in found.items()
            ),
            repaired=self.repair,
        )

    def _validate_table(self, table: TableName, loading: Loading | None) -> Findings:
        store = self.run.store
        if self.lake_only:
            findings = validate_lake(store, table)
        else:
            findings = validate_table(store, table, loading)
        entry = self.run.config.tables.get(table)
        return compare_cursor(findings, store, table, entry[1].cursor_columns if entry else None)

    def _compare(
        self, tables: list[TableName], tunnels: Tunnels
    ) -> dict[TableName, tuple[VerificationResult | None, FloodmarkError | None]]:
        """Compare the rows of tables; an error affects only its own table."""
        run = self.run
        found: dict[TableName, tuple[VerificationResult | None, FloodmarkError | None]] = {}
        connections = [c for t in tables for c in (run.mysql(t.scope), run.target(t))]
        open_for_workers(tunnels, connections, self.spark)
        for table in tables:
            try:
                with verification_of(run, table, self.engine, tunnels, everything=True) as how:
                    found[table] = verify_table(how, table, run.table_settings(table)), None
            except FloodmarkError as error:
                found[table] = None, error
        return found
