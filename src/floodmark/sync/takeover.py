"""Take over one table that another tool has filled, without loading it again.

    inspect (all tables first) → lease → inspect again → commit → load → reconcile

| step              | a crash right after it leaves                                              |
| ----------------- | -------------------------------------------------------------------------- |
| inspect           | nothing                                                                    |
| commit            | the position; a chunk without files, pending. The command continues, and a |
|                   | sync does as well                                                          |
| load              | an entry in the ledger: the target's table belongs to this source table    |
| reconcile         | what a reconciliation leaves; the command continues it                     |

The chunk covers everything from the table's start to its position, so a reconciliation and a
verification compare all of it, and repair what the other tool has missed, duplicated or not
deleted. Rows after the position are read by the next sync, and replace those with the same key.
"""

from datetime import datetime, timedelta

from msgspec import Struct, structs

from floodmark.config.models import TableSettings
from floodmark.errors import FloodmarkError, LeaseLost, UsageError
from floodmark.model.fingerprint import Hashing, nearest_moment, number_kind
from floodmark.model.history import RowsBefore
from floodmark.model.load import TargetTable
from floodmark.model.manifest import Chunk, Column
from floodmark.model.position import START, Position
from floodmark.model.schema_change import Mismatch
from floodmark.model.table import TableName
from floodmark.model.takeover_result import TakeoverResult
from floodmark.model.timestamps import plain
from floodmark.model.transitions import history_counted, marks_found
from floodmark.model.watermark import Watermark
from floodmark.mysql.connection import MysqlSession
from floodmark.mysql.gtids import worth_keeping
from floodmark.mysql.in_flight import read_next_id
from floodmark.planning.columns import refuse_names
from floodmark.planning.cursor import version_column
from floodmark.planning.cursor_change import describe_cursor
from floodmark.planning.schema_change import before_loads
from floodmark.planning.takeover_position import takeover_position
from floodmark.sync.compared_sides import compared_shape
from floodmark.sync.extraction import Extraction
from floodmark.sync.history import rows_outside
from floodmark.sync.load import load_after
from floodmark.sync.loading import Loading
from floodmark.sync.log_facts import Known
from floodmark.sync.machine_clock import check_against_source
from floodmark.sync.plan import TablePlan, lake_columns, plan_table
from floodmark.sync.reconcile_checks import HeldBack, refuse_without_key
from floodmark.sync.reconcile_plan import refuse_type_of_mark, target_table
from floodmark.sync.result import TableResult
from floodmark.warehouse.target import ComparedTable, Target, refuse_stopping

_WITHOUT_KEY = (
    "set 'cursor: none' for it, and every sync replaces all of it in the target; or let a sync load"
    " it under another 'target_name'"
)


class Takeover(Struct, frozen=True, kw_only=True):
    """How to take over a table.

    `margin` is the step back from the target's greatest time. `deleted_at` is the column that marks
    deleted rows, if reconciliations keep them; the other tool may have marked some already.
    """

    extraction: Extraction
    loading: Loading
    margin: timedelta
    deleted_at: str | None = None


class _Ready(Struct, frozen=True, kw_only=True):
    """A table that can be taken over: how to read it, and what the target holds.

    `before` are the rows of the source before the table's start, which are not compared. `marked`
    is the column in which the target has marks of deleted rows.
    """

    plan: TablePlan
    position: Position
    changes: tuple[str, ...]
    before: RowsBefore | None
    marked: str | None


def inspect_table(takeover: Takeover, table: TableName, settings: TableSettings) -> TableResult:
    """Compare a table with its target; change nothing. FloodmarkError if it does not match."""
    return _as_result(table, _inspect(takeover, table, settings))


def take_table(takeover: Takeover, table: TableName, settings: TableSettings) -> TableResult:
    """Commit the position of a table, and record in the target whose table it is."""
    store = takeover.extraction.store
    with store.lease(table):
        found = _inspect(takeover, table, settings)
        result = _as_result(table, found)
        if not isinstance(found, _Ready):
            return result
        before, marked = found.before, found.marked
        if before or marked:
            store.update(
                table, lambda current: marks_found(history_counted(current, before), marked)
            )
        store.commit(table, lambda current: _chunk(takeover, table, found, current))
    done = TakeoverResult(position=found.position, changes=found.changes, taken=True)
    return load_after(structs.replace(result, takeover=done), takeover.loading, table)


def _as_result(table: TableName, found: _Ready | HeldBack | TakeoverResult) -> TableResult:
    result = TableResult(table_name=str(table))
    if isinstance(found, HeldBack):
        return structs.replace(result, status="held_back", held_back=found.reason, hint=found.hint)
    if not isinstance(found, _Ready):
        return structs.replace(result, takeover=found)
    return structs.replace(
        result,
        takeover=TakeoverResult(position=found.position, changes=found.changes),
        before_start=found.before,
        warnings=(_not_compared(table, found.before),) if found.before else (),
    )


def _not_compared(table: TableName, before: RowsBefore) -> str:
    """Return the warning about rows before the table's start."""
    end = plain(before.up_to.timestamp) if before.up_to.timestamp else before.up_to.id
    first = "set 'default_start: all' before the takeover; or " if before.by == "default" else ""
    return (
        f"{before} are neither compared nor repaired; to include them, {first}run 'floodmark"
        f' backfill -t {table} --to "{end}"\' after it'
    )


def _inspect(
    takeover: Takeover, table: TableName, settings: TableSettings
) -> _Ready | HeldBack | TakeoverResult:
    """Return what to commit; or why nothing, or that it was committed by an earlier run."""
    extraction, loading = takeover.extraction, takeover.loading
    watermark = extraction.store.get(table, write_back=False)
    if watermark is not None and (known := _synced(watermark)) is not None:
        return known
    with extraction.source.session() as session:
        check_against_source(session, extraction.store.now)
        plan = plan_table(
            extraction.source,
            session,
            table,
            settings,
            extraction.settings,
            position=START,
            known=Known(),
            default_start=extraction.default_start,
            limit=None,
        )
        if plan.choice.cursor.kind == "none":
            return TakeoverResult(skipped="it has no cursor, so every sync replaces all of it")
        refuse_without_key(plan.source, _WITHOUT_KEY)
        refuse_names(
            plan.source,
            plan.choice.cursor,
            list(extraction.reserved(column.name for column in plan.columns)),
        )
        if (held := plan.held_back) is not None:
            return HeldBack(held.held_by or "the server cannot show all transactions", held.hint)
        newest = _newest(session, plan)
        start_by, now = extraction.start_by, extraction.store.now()
        before = rows_outside(session, plan, watermark, start_by, now).before
    if takeover.deleted_at is not None:
        refuse_type_of_mark(plan, loading, takeover.deleted_at)
    with loading.open_target() as target:
        target.check_owner(str(table), 1, loading.target_name)
        if target.load_epochs(str(table)):
            raise FloodmarkError(
                f"{table}: the target's ledger has loads of it, but the lake has no log of it",
                hint="check that 'lake:' is the one that it was loaded from",
            )
        shape = target_table(plan, loading)
        mismatches = target.compare(shape)
        if not mismatches and not target.columns_held(shape):
            return TakeoverResult(skipped=f"the target has no table {shape.name}")
        mismatches = [_judged(plan, mismatch) for mismatch in mismatches]
        refuse_stopping(shape.name, mismatches)
        greatest = _greatest(target, plan, shape)
        marked = _marked(target, shape, takeover.deleted_at)
    if greatest is None:
        first = plan.choice.cursor.columns[0]
        return TakeoverResult(
            skipped=f"{shape.name} has no row with a value of {first} in the target"
        )
    if plan.end is None:
        raise FloodmarkError(
            f"{table}: the source has no rows, and the target has some",
            hint="check that this is the right server and table",
        )
    position = takeover_position(
        table, greatest, takeover.margin, start=plan.start, bound=plan.end, newest=newest
    )
    return _Ready(
        plan=plan,
        position=position,
        changes=tuple(f"{m.column}: {m.will}" for m in mismatches),
        before=before,
        marked=marked,
    )


def _marked(target: Target, shape: TargetTable, name: str | None) -> str | None:
    """Return the column that marks deleted rows, if the target has it."""
    if name is None:
        return None
    mark = Column(name, "datetime(6)", True, "timestamp[us]")
    return name if target.columns_held(structs.replace(shape, columns=(mark,))) else None


def _synced(watermark: Watermark) -> TakeoverResult | None:
    """Return what is known of a table with a log; None if it has none."""
    watermark.refuse_moved()
    if watermark.mysql_state.last_manifest is None:
        return None
    if not watermark.mysql_state.inherited:
        return TakeoverResult(skipped="it has a watermark already")
    if watermark.reconciled_state.last_finished is not None:
        return TakeoverResult(skipped="it was taken over before")
    return TakeoverResult(position=watermark.position, taken=True)


def _newest(session: MysqlSession, plan: TablePlan) -> datetime | int:
    """Return the source's clock as its cursor shows it, or the greatest id that it has given."""
    if plan.clock is None:
        return read_next_id(session, plan.source, plan.choice.cursor.key[0]) - 1
    assert plan.now is not None
    return plan.now + timedelta(seconds=plan.clock.offset_seconds)


def _judged(plan: TablePlan, mismatch: Mismatch) -> Mismatch:
    """Let a column that the target lacks stop the table: its values must come from the source."""
    if mismatch.change != "add":
        types = {column.name.lower(): column.type for column in plan.columns}
        source = types.get(mismatch.column.lower(), mismatch.source)
        return structs.replace(before_loads(mismatch), source=source)
    name = mismatch.column
    needed = {n.lower() for n in (*plan.source.primary_key, *plan.choice.cursor.columns)}
    hint = (
        f"without {name}, rows cannot be compared with the source's; let a sync load the table"
        " under another 'target_name'"
        if name.lower() in needed
        else f"leave it out with 'exclude: [{name}]' for the table, or add the column to the target"
        " and fill it"
    )
    return structs.replace(mismatch, stops=True, hint=hint)


def _greatest(target: Target, plan: TablePlan, shape: TargetTable) -> datetime | int | None:
    """Return the greatest value of the cursor's first column in the target."""
    source, cursor = plan.source, plan.choice.cursor
    name = cursor.columns[0]
    kind = number_kind(source.column(name))
    if kind not in ("integer", "moment"):
        raise UsageError(f"{source.name}: its cursor {name} is neither a time nor an integer")
    compared = ComparedTable(
        # With the key, so that one that cannot be compared is refused now.
        table=structs.replace(shape, primary_key=(name, *source.primary_key)),
        key=(kind, *compared_shape(source, cursor).key),
        version=None,
        hashing=Hashing.random(),
        extents=(),
    )
    bounds = target.key_bounds(compared)
    if bounds is None:
        return None
    return nearest_moment(bounds[1]) if kind == "moment" else bounds[1]


def _chunk(takeover: Takeover, table: TableName, ready: _Ready, current: Watermark) -> Chunk:
    if current.mysql_state.last_manifest is not None:
        raise LeaseLost(f"{table} was synced during this run", hint="run the command again")
    plan, extraction = ready.plan, takeover.extraction
    return Chunk(
        start=plan.start,
        end=ready.position,
        files=(),
        strategy=extraction.strategy,
        columns=lake_columns(plan.source, plan.columns),
        primary_key=plan.source.primary_key,
        version=version_column(plan.source, plan.choice.cursor),
        server=extraction.source.server.identity,
        clock=plan.clock,
        cursor=describe_cursor(plan.source, plan.choice.cursor),
        gtids=worth_keeping(plan.gtids),
        inherited=True,
    )
