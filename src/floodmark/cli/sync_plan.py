"""`floodmark sync --dry-run`: what would be done."""

from collections.abc import Mapping

from floodmark.cli.app import App
from floodmark.cli.terminal import fold
from floodmark.cli.words import counted, since
from floodmark.config.models import MysqlConnection
from floodmark.errors import AnotherCursor, FloodmarkError
from floodmark.model.history import StartedBy
from floodmark.model.manifest import Chunk
from floodmark.model.position import START, Position
from floodmark.model.table import TableName
from floodmark.model.watermark import Watermark
from floodmark.planning.columns import refuse_names
from floodmark.planning.cursor import NO_INDEX
from floodmark.sources.connection import MysqlSession
from floodmark.sync.adoption import Adoption, find_files
from floodmark.sync.clock_change import check_clock_change
from floodmark.sync.history import remarks_on, rows_outside
from floodmark.sync.known import known_of
from floodmark.sync.loading import Loading, foresee
from floodmark.sync.machine_clock import check_against_source
from floodmark.sync.plan import TablePlan, chunks_of, plan_table
from floodmark.sync.server_change import check_server_change
from floodmark.sync.source import Source, Sources


def show_plans(
    app: App,
    tables: list[TableName],
    sources: Mapping[TableName, MysqlConnection],
    loadings: Mapping[TableName, Loading],
    adoption: Adoption | None,
    read_from: Sources,
    start: tuple[Position, StartedBy],
    limit: int | None,
    windows_at_once: int,
) -> None:
    """Print what would be read and loaded of each table; nothing is changed."""
    texts, values = [], []
    for table in tables:
        watermark = app.store.get(table, mend=False)
        lines = [f"{table}:"]
        value: dict[str, object] = {"table_name": str(table)}
        if table in sources:
            try:
                with read_from.of(sources[table]) as source:
                    line, reading = _reading(
                        app, table, source, watermark, start, limit, windows_at_once
                    )
            except AnotherCursor as error:
                line = _line(f"fail: {error.message}")
                reading = {"error": error.message, "hint": error.hint}
            lines.append(line)
            value |= {"read": reading}
        if adoption is not None:
            files = find_files(adoption, table, watermark)
            value |= {"adopt": {"files": len(files.chosen), "left_out": len(files.left_out)}}
            lines.append(
                f"    adopt {len(files.chosen):,} files of an older system,"
                f" leave out {len(files.left_out):,}"
            )
        if table in loadings:
            chosen, left_out = foresee(loadings[table], table, watermark) if watermark else ([], [])
            loading, left = _summary(chosen), _summary(left_out)
            if loading["manifests"]:
                lines.append(_line(f"load {_show(loading)} in the lake already"))
            else:
                nothing = (
                    "what is read" if table in sources else "nothing: all that there is is loaded"
                )
                lines.append(_line(f"load {nothing}"))
            if left["manifests"]:
                lines.append(
                    _line(f"leave out {_show(left)}, which the manual watermark does not cover")
                )
            value |= {"load": loading, "left_out": left}
        texts.append("\n".join(lines))
        values.append(value)
    app.print("\n".join(texts), values)


def _reading(
    app: App,
    table: TableName,
    source: Source,
    watermark: Watermark | None,
    start: tuple[Position, StartedBy],
    limit: int | None,
    windows_at_once: int,
) -> tuple[str, dict[str, object]]:
    settings = app.config.settings.extraction
    position = watermark.position if watermark else START
    with source.session() as session:
        plan = plan_table(
            source,
            session,
            table,
            app.table_settings(table),
            settings,
            position=position,
            known=known_of(app.store.log, table, watermark),
            default_start=start[0],
            limit=limit,
        )
        outside = rows_outside(session, plan, watermark, start[1], app.run.clock())
        problem = _problem(app, source, session, watermark, plan)
        chunks = list(
            chunks_of(
                session,
                plan,
                settings,
                windows_per_chunk=windows_at_once,
                limit=limit,
            )
        )
    rows = sum(chunk.rows for chunk in chunks)
    exact = all(chunk.counted for chunk in chunks)
    windows = sum(len(chunk.windows) for chunk in chunks)
    end = chunks[-1].end if chunks else plan.start
    held_by = plan.bound.held_by if plan.bound else None
    size = f"{counted(windows, 'window')} of {counted(len(chunks), 'chunk')}"
    how = f"{plan.route.why}, cursor {plan.choice.cursor}"
    begin = since(plan.start)
    if problem:
        lines = [f"fail: {problem.message}"]
    elif plan.held_back:
        lines = [f"read nothing: held back, {how}"]
    elif chunks:
        about = "" if exact else "about "
        lines = [f"read {about}{counted(rows, 'row')} in {size}, {how}", f"from {begin} to {end}"]
    else:
        new = "to read" if outside.begins else "new"
        lines = [f"read nothing: there is nothing {new} since {begin}, {how}"]
    if held_by:
        lines.append(f"held back: {held_by}")
    remarks = remarks_on(outside, plan.source, plan.choice, synced=not position.is_start)
    warnings = (*plan.warnings, *map(str, remarks))
    # That no index serves the cursor is said above.
    notes = [warning for warning in warnings if not warning.startswith(NO_INDEX)]
    lines += [f"note: {warning.removeprefix(f'{table}: ')}" for warning in notes]
    value: dict[str, object] = {
        "cursor": plan.choice.cursor.columns,
        "route": plan.route.why,
        "start": plan.start,
        "end": end,
        "rows": rows,
        "counted": exact,
        "windows": windows,
        "chunks": len(chunks),
        "held_by": held_by,
        "error": problem.message if problem else None,
        "hint": problem.hint if problem else None,
        "before_start": outside.before,
        "future_rows": outside.future,
        "warnings": warnings,
    }
    return "\n".join(map(_line, lines)), value


def _problem(
    app: App,
    source: Source,
    session: MysqlSession,
    watermark: Watermark | None,
    plan: TablePlan,
) -> FloodmarkError | None:
    """Why the sync would refuse to go on from the table's position, if it would."""
    try:
        check_against_source(session, app.run.clock)
        reserved = app.reserved(plan.source.name, (column.name for column in plan.columns))
        refuse_names(plan.source, plan.choice.cursor, reserved)
        check_clock_change(source, app.config.settings.extraction, watermark, plan)
        check_server_change(app.store, source, session, watermark, plan, app.report)
    except FloodmarkError as error:
        return error
    return None


def _summary(chunks: list[Chunk]) -> dict[str, int]:
    return {
        "manifests": len(chunks),
        "files": sum(len(chunk.files) for chunk in chunks),
        "rows": sum(chunk.rows for chunk in chunks),
    }


def _show(counts: dict[str, int]) -> str:
    rows, files = counted(counts["rows"], "row"), counted(counts["files"], "file")
    return f"{rows} in {files} of {counted(counts['manifests'], 'manifest')}"


def _line(text: str) -> str:
    return fold(text, indent=6, first=4)
