"""Commit what a reconciliation found: rows to repair, and the keys of deleted rows."""

import time

from msgspec import Struct

from floodmark.errors import LeaseLost
from floodmark.model import lake_layout
from floodmark.model.extraction import Receipt
from floodmark.model.manifest import Chunk, Column, DataFile, Reconciled
from floodmark.model.reconcile_policy import Policy
from floodmark.model.reconcile_result import ReconcileResult
from floodmark.model.table import TableName
from floodmark.model.watermark import Watermark
from floodmark.mysql.gtids import worth_keeping
from floodmark.planning.cursor import version_column
from floodmark.planning.cursor_change import describe_cursor
from floodmark.sync.extraction import Extraction
from floodmark.sync.new_columns import NewColumns
from floodmark.sync.plan import TablePlan, lake_columns
from floodmark.sync.repair import read_rows


class Written(Struct, frozen=True, kw_only=True):
    """The files in the lake that a manifest is to list."""

    receipts: list[Receipt]
    deletes: tuple[DataFile, ...] = ()

    @property
    def repaired(self) -> int:
        """The number of rows that were read again."""
        return sum(receipt.rows for receipt in self.receipts)

    @property
    def deleted(self) -> int:
        """The number of deleted keys."""
        return sum(file.rows for file in self.deletes)


def write_files(
    extraction: Extraction,
    plan: TablePlan,
    table: TableName,
    watermark: Watermark,
    found: ReconcileResult,
) -> Written:
    """Write the rows to repair, and the keys to delete unless they are only reported."""
    sequence = watermark.log_state.next_head.sequence
    receipts = read_rows(extraction, plan, table, sequence, found.to_repair)
    if found.deletes == "report" or not found.deleted:
        return Written(receipts=receipts)
    from floodmark.worker.delete_file import write_deletes

    version = version_column(plan.source, plan.choice.cursor)
    held = {column.name: column for column in lake_columns(plan.source, plan.columns)}
    names = dict.fromkeys((*plan.source.primary_key, *([version] if version else [])))
    columns: list[Column] = [held[name] for name in names]  # the version may be part of the key
    path = lake_layout.deletes_file_key(table, extraction.session_id, sequence)
    file = write_deletes(extraction.lake, path, columns, found.deleted)
    return Written(receipts=receipts, deletes=(file,))


def chunk_of(
    extraction: Extraction,
    plan: TablePlan,
    seen: Watermark,
    current: Watermark,
    found: ReconcileResult,
    written: Written,
    new: NewColumns,
    policy: Policy,
    began: float,
) -> Chunk:
    """Return the chunk to commit; LeaseLost if the table has changed since it was compared."""
    # Deletes apply to the rows of all earlier manifests, which were read before the comparison.
    if (current.position, current.head, current.loaded_head) != (
        seen.position,
        seen.head,
        seen.loaded_head,
    ):
        raise LeaseLost(
            f"{seen.table_name} was moved or loaded during this run", hint="run the command again"
        )
    receipts = written.receipts
    return Chunk(
        start=current.position,
        end=current.position,
        files=tuple(file for receipt in receipts for file in receipt.files),
        quarantine=tuple(file for receipt in receipts for file in receipt.quarantine),
        strategy=extraction.strategy,
        columns=lake_columns(plan.source, plan.columns),
        primary_key=plan.source.primary_key,
        version=version_column(plan.source, plan.choice.cursor),
        seconds=round(time.monotonic() - began, 3),
        server=extraction.source.server.identity,
        clock=plan.clock,
        cursor=describe_cursor(plan.source, plan.choice.cursor),
        gtids=worth_keeping(plan.gtids),
        fills=new.fills,
        unfilled=new.unfilled,
        reconciled=Reconciled(
            deletes=written.deletes,
            deleted=written.deleted,
            missing=len(found.missing),
            stale=len(found.stale),
            duplicate=len(found.duplicate),
            deleted_at=policy.deleted_at if policy.deletes == "soft" else None,
        ),
    )
