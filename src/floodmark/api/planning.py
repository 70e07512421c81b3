"""Plan a sync without running it."""

from itertools import repeat

from msgspec import Struct, structs

from floodmark.api.context import RunContext
from floodmark.api.schema_check import SchemaCheck
from floodmark.api.syncing import Syncing
from floodmark.errors import AnotherCursor, FloodmarkError
from floodmark.model.history import RowCount, RowsBefore, StartedBy
from floodmark.model.manifest import Chunk
from floodmark.model.notice import Notice
from floodmark.model.position import START, Position
from floodmark.model.schema_change import SchemaDifference
from floodmark.model.table import TableName
from floodmark.model.watermark import Watermark
from floodmark.mysql.connection import MysqlSession
from floodmark.planning.columns import refuse_names
from floodmark.planning.cursor import NO_INDEX
from floodmark.planning.parallelism import windows_per_chunk
from floodmark.sync.adopt import find_files
from floodmark.sync.clock_change import check_clock_change
from floodmark.sync.history import remarks_on, rows_outside
from floodmark.sync.load_selection import foresee
from floodmark.sync.loading import Loading
from floodmark.sync.log_facts import known_of
from floodmark.sync.machine_clock import check_against_source
from floodmark.sync.parallel_strides import walk_over
from floodmark.sync.plan import TablePlan as ExtractionPlan
from floodmark.sync.plan import plan_table
from floodmark.sync.plan_windows import chunks_of
from floodmark.sync.server_change import check_server_change
from floodmark.sync.source import Source, Sources
from floodmark.sync.window_sizes import window_sizes


class ReadPlan(Struct, frozen=True, kw_only=True):
    """What a sync would read of a table; `error` is why it would fail.

    `rows` is an estimate unless `counted`. `held_by` is what keeps newer rows from being read; with
    `held_back`, nothing would be read.
    """

    cursor: tuple[str, ...] = ()
    route: str = ""
    start: Position = START
    end: Position = START
    rows: int = 0
    counted: bool = True
    windows: int = 0
    chunks: int = 0
    held_by: str | None = None
    held_back: bool = False
    error: str | None = None
    hint: str | None = None
    before_start: RowsBefore | None = None
    begins: bool = False
    future_rows: RowCount = RowCount()
    warnings: tuple[str, ...] = ()

    @property
    def notes(self) -> list[str]:
        """The warnings, except for a missing index, which `route` mentions."""
        return [warning for warning in self.warnings if not warning.startswith(NO_INDEX)]


class LoadPlan(Struct, frozen=True, kw_only=True):
    """Manifests, files and rows in the lake that would be loaded or left out."""

    manifests: int
    files: int
    rows: int


class AdoptPlan(Struct, frozen=True, kw_only=True):
    """Files of older systems that would be adopted or left out."""

    files: int
    left_out: int


class TablePlan(Struct, frozen=True, kw_only=True):
    """What a sync would do to a table; None for steps it would not run."""

    table_name: str
    read: ReadPlan | None = None
    adopt: AdoptPlan | None = None
    load: LoadPlan | None = None
    left_out: LoadPlan | None = None
    schema: tuple[SchemaDifference, ...] = ()


def plan_sync(syncing: Syncing) -> list[TablePlan]:
    """Plan what a sync would read and load of each table; change nothing.

    A table that cannot be planned has its error in `read`, unless that is true of all.
    """
    start = syncing.run.start_of_new_tables()
    with (
        syncing.open_tunnels() as tunnels,
        Sources(tunnels) as sources,
        SchemaCheck(syncing.run, tunnels) as check,
    ):
        loadings = {table: syncing.loading(table, tunnels) for table in syncing.targets}
        plans: list[TablePlan] = []
        errors: list[FloodmarkError] = []
        for table in syncing.tables:
            try:
                plans.append(_plan_table(syncing, table, sources, loadings.get(table), start))
            except FloodmarkError as error:
                errors.append(error)
                failed = ReadPlan(error=error.message, hint=error.hint)
                plans.append(TablePlan(table_name=str(table), read=failed))
        if len(errors) == len(plans):
            raise errors[0]  # there is nothing to show
        return [
            plan
            if plan.read and plan.read.error
            else structs.replace(plan, schema=_differences(syncing, table, sources, check))
            for table, plan in zip(syncing.tables, plans, strict=True)
        ]


def _differences(
    syncing: Syncing, table: TableName, sources: Sources, check: SchemaCheck
) -> tuple[SchemaDifference, ...]:
    """Compare a table's columns on all sides that the sync would use."""
    loads = table in syncing.targets
    try:
        if table not in syncing.sources:
            return tuple(check.differences(table, None, loads=loads))
        with sources.of(syncing.sources[table]) as source, source.session() as session:
            return tuple(check.differences(table, session, loads=loads))
    except FloodmarkError as error:
        message = f"{table}: its columns are not compared: {error.message}"
        syncing.run.report(Notice("warning", message, table=str(table), hint=error.hint))
        return ()


def _plan_table(
    syncing: Syncing,
    table: TableName,
    sources: Sources,
    loading: Loading | None,
    start: tuple[Position, StartedBy],
) -> TablePlan:
    watermark = syncing.run.store.get(table, write_back=False)
    plan = TablePlan(table_name=str(table))
    if table in syncing.sources:
        plan = structs.replace(plan, read=_plan_read(syncing, table, sources, watermark, start))
    if syncing.adoption is not None:
        files = find_files(syncing.adoption, table, watermark)
        adopt = AdoptPlan(files=len(files.chosen), left_out=len(files.left_out))
        plan = structs.replace(plan, adopt=adopt)
    if loading is not None:
        chosen, left_out = foresee(loading, table, watermark) if watermark else ([], [])
        plan = structs.replace(plan, load=_summary(chosen), left_out=_summary(left_out))
    return plan


def _plan_read(
    syncing: Syncing,
    table: TableName,
    sources: Sources,
    watermark: Watermark | None,
    start: tuple[Position, StartedBy],
) -> ReadPlan:
    try:
        with sources.of(syncing.sources[table]) as source:
            return _read_plan(syncing, table, source, watermark, start)
    except AnotherCursor as error:
        return ReadPlan(error=error.message, hint=error.hint)


def _read_plan(
    syncing: Syncing,
    table: TableName,
    source: Source,
    watermark: Watermark | None,
    start: tuple[Position, StartedBy],
) -> ReadPlan:
    run, limit = syncing.run, syncing.limit
    settings = run.config.settings.extraction
    position = watermark.position if watermark else START
    with source.session() as session:
        plan = plan_table(
            source,
            session,
            table,
            run.table_settings(table),
            settings,
            position=position,
            known=known_of(run.store.log, table, watermark),
            default_start=start[0],
            limit=limit,
        )
        outside = rows_outside(session, plan, watermark, start[1], run.run.clock())
        problem = _problem(run, source, session, watermark, plan)
        slots = syncing.engine.known_slots
        sizes = repeat(windows_per_chunk(settings.windows_per_chunk, syncing.strategy, slots))
        chunks = list(
            chunks_of(
                session,
                plan,
                settings,
                windows_per_chunk=sizes,
                limit=limit,
                walk=walk_over(source, syncing.strategy, slots),
                window_size=window_sizes(
                    plan,
                    settings,
                    source,
                    syncing.engine,
                    syncing.strategy,
                    limit=limit,
                    watermark=lambda: watermark,
                ),
            )
        )
    remarks = remarks_on(outside, plan.source, plan.choice, synced=not position.is_start)
    return ReadPlan(
        cursor=tuple(plan.choice.cursor.columns),
        route=plan.route.why,
        start=plan.start,
        end=chunks[-1].end if chunks else plan.start,
        rows=sum(chunk.rows for chunk in chunks),
        counted=all(chunk.counted for chunk in chunks),
        windows=sum(len(chunk.windows) for chunk in chunks),
        chunks=len(chunks),
        held_by=plan.bound.held_by if plan.bound else None,
        held_back=plan.held_back is not None,
        error=problem.message if problem else None,
        hint=problem.hint if problem else None,
        before_start=outside.before,
        begins=outside.begins,
        future_rows=outside.future,
        warnings=(*plan.warnings, *map(str, remarks)),
    )


def _problem(
    run: RunContext,
    source: Source,
    session: MysqlSession,
    watermark: Watermark | None,
    plan: ExtractionPlan,
) -> FloodmarkError | None:
    """Return the error with which the sync would fail, if any."""
    try:
        check_against_source(session, run.run.clock)
        reserved = run.reserved(plan.source.name, (column.name for column in plan.columns))
        refuse_names(plan.source, plan.choice.cursor, reserved)
        check_clock_change(source, run.config.settings.extraction, watermark, plan)
        check_server_change(run.store, source, session, watermark, plan, run.report)
    except FloodmarkError as error:
        return error
    return None


def _summary(chunks: list[Chunk]) -> LoadPlan:
    return LoadPlan(
        manifests=len(chunks),
        files=sum(len(chunk.loaded_files) for chunk in chunks),
        rows=sum(chunk.rows for chunk in chunks),
    )
