"""Find out with few requests that a table has nothing new.

    lease document → watermark and log → definition → what is in flight → one statement → record

Nothing is decided here but that there is nothing to do, so nothing is locked: see `state/lease.py`
for why the record proves that the state was current. Whatever is not plain (rows after the
position, a failed stage, a moved table, another server or cursor, a clock that was set back, an
error) is left to the extraction and the load, which take the lease and look again.

What is in flight was read before the rows. All rows stamped up to its settled time were committed
by then, so if there is none after the position, everything up to that time is in the lake.
"""

import time

from msgspec import structs

from floodmark.config.models import TableSettings
from floodmark.errors import FloodmarkError
from floodmark.model.cursor import CursorChoice
from floodmark.model.extraction import ColumnPlan, Route
from floodmark.model.log_state import ManifestId
from floodmark.model.position import Position
from floodmark.model.schema import SourceTable
from floodmark.model.table import TableName
from floodmark.model.transitions import nothing_new
from floodmark.model.watermark import CLOCK_SKEW, Watermark, same_content
from floodmark.mysql.probe import Probe, probe
from floodmark.planning.bounds import held_back, settled_before, timestamp_bound, why_held
from floodmark.planning.columns import refuse_names
from floodmark.planning.cursor_change import refuse_another_cursor
from floodmark.planning.null_cursors import judge_unusable
from floodmark.state.unchanged import look_at, record_unchanged
from floodmark.sync.bound import configured_lag, configured_zone, cursor_clock
from floodmark.sync.clock_change import check_clock_change
from floodmark.sync.extraction import Extraction
from floodmark.sync.loading import Loading
from floodmark.sync.log_facts import known_of
from floodmark.sync.pending_loads import surely_loaded
from floodmark.sync.plan import TablePlan, left_out, read_shape
from floodmark.sync.result import TableResult
from floodmark.sync.round_catalog import RoundCatalog


def find_unchanged(
    extraction: Extraction,
    loading: Loading | None,
    table: TableName,
    settings: TableSettings,
    catalog: RoundCatalog,
) -> TableResult | None:
    """Record that a table has nothing new, and return the result; None if it may have something.

    Without `loading`, only stage 1 is asked for.
    """
    try:
        return _find(extraction, loading, table, settings, catalog)
    except FloodmarkError:
        return None  # the extraction finds the same, and reports it


def _find(
    extraction: Extraction,
    loading: Loading | None,
    table: TableName,
    settings: TableSettings,
    catalog: RoundCatalog,
) -> TableResult | None:
    began = time.monotonic()
    store = extraction.store
    if extraction.limit is not None:
        return None
    look = look_at(store, table)
    if look is None or not _is_settled(look.watermark, loading):
        return None
    found = _look_at_source(extraction, look.watermark, table, settings, catalog)
    if found is None:
        return None
    recorded = record_unchanged(
        store,
        table,
        look,
        fresh=found.fresh,
        loaded=loading is not None,
        warnings=found.known_warnings,
        every_seconds=extraction.every_seconds,
    )
    if not recorded:
        return None
    return structs.replace(
        found,
        known_warnings=look.lease.warnings,
        seconds=time.monotonic() - began,
        loaded_fresh=found.fresh if loading else None,
    )


def _is_settled(watermark: Watermark, loading: Loading | None) -> bool:
    """Whether both stages ended well, and everything in the lake is surely loaded."""
    state = watermark.mysql_state
    if watermark.moved_to or watermark.moving_from or state.last_manifest is None:
        return False
    if state.status != "success" or state.walk is not None:
        return False
    if loading is None:
        return True
    first = ManifestId(watermark.redshift_state.eligible_from_epoch, 0)
    behind = ManifestId.parse(state.last_manifest) > max(first, watermark.loaded_head)
    return not behind and surely_loaded(loading, watermark)


def _look_at_source(
    extraction: Extraction,
    watermark: Watermark,
    table: TableName,
    table_settings: TableSettings,
    catalog: RoundCatalog,
) -> TableResult | None:
    """Return the result if no row is after the position; `known_warnings` are the new ones."""
    store, server, position = extraction.store, extraction.source, watermark.position
    identity = server.server.identity
    if not same_content(nothing_new(watermark, identity), watermark):
        return None
    if not position.is_start and watermark.mysql_state.cursor is None:
        return None
    with catalog.gate, server.session() as session:
        definition = catalog.definition(session, table)
        if definition is None:
            return None
        known = known_of(store.log, table, watermark)
        source, choice, columns = read_shape(session, table, table_settings, known, definition)
        cursor = choice.cursor
        begun = position.timestamp if cursor.kind == "timestamp" else position.id
        if cursor.kind == "none" or (begun is None and not source.primary_key):
            return None
        refuse_another_cursor(known.cursor, source, cursor, position)
        refuse_names(source, cursor, extraction.reserved(column.name for column in columns))
        plan = _plan_of_nothing(extraction, source, choice, columns, position)
        if plan.held_by or plan.held_back:
            return None
        check_clock_change(server, extraction.settings, watermark, plan)
        found = probe(session, source, cursor, position, index=choice.index)
    if found is None or not _finds_nothing(found, watermark, position):
        return None
    if abs(store.now() - found.now) > CLOCK_SKEW:
        return None
    unusable = judge_unusable(table, cursor, found.unusable, extraction.settings.null_cursors)
    remarks = filter(None, (unusable, left_out(source, columns, table_settings)))
    return TableResult(
        table_name=str(table),
        start=position,
        end=position,
        warnings=(*choice.warnings, *remarks),
        known_warnings=choice.warnings,
        fresh=plan.fresh,
    )


def _plan_of_nothing(
    extraction: Extraction,
    source: SourceTable,
    choice: CursorChoice,
    columns: tuple[ColumnPlan, ...],
    position: Position,
) -> TablePlan:
    """Return the plan of a table without rows after its position, from facts of the server."""
    settings, cursor = extraction.settings, choice.cursor
    activity = extraction.source.activity()
    lag, zone = configured_lag(settings), configured_zone(settings.cursor_time_zone)
    bound = held_back(activity, lag) if why_held(activity, lag) else None
    if cursor.timestamp is not None:
        bound = timestamp_bound(activity, source.column(cursor.timestamp), zone=zone, lag=lag)
    return TablePlan(
        source=source,
        choice=choice,
        columns=columns,
        route=Route(by="cursor", index=choice.index, chunked=True, why="nothing to read"),
        start=position,
        bound=bound,
        expected_rows=0,
        warnings=(),
        now=activity.now,
        clock=cursor_clock(source, cursor, activity, zone),
        fresh=settled_before(activity, lag),
    )


def _finds_nothing(found: Probe, watermark: Watermark, position: Position) -> bool:
    if found.above or not found.at:
        return False
    return not position.is_start or watermark.mysql_state.before_start is None
