"""`floodmark sync --dry-run`: what would be done."""

from collections.abc import Mapping

from floodmark.cli.app import App
from floodmark.config.models import MysqlConnection
from floodmark.model.manifest import Chunk
from floodmark.model.position import START, Position
from floodmark.model.table import TableName
from floodmark.model.watermark import Watermark
from floodmark.sources.connection import connect
from floodmark.sources.tunnel import Tunnels
from floodmark.sync.loading import Loading, manifests_behind
from floodmark.sync.plan import chunks_of, plan_table


def show_plans(
    app: App,
    tables: list[TableName],
    sources: Mapping[TableName, MysqlConnection],
    loadings: Mapping[TableName, Loading],
    tunnels: Tunnels,
    start: Position,
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
            with tunnels.through(sources[table]) as connection:
                line, reading = _reading(
                    app, table, connection, watermark, start, limit, windows_at_once
                )
            lines.append(line)
            value |= {"read": reading}
        if table in loadings:
            loading = _loading(app, table, watermark)
            lines.append(
                f"    load {loading['rows']:,} rows in {loading['files']:,} files"
                f" of {loading['manifests']:,} manifests that are in the lake already"
            )
            value |= {"load": loading}
        texts.append("\n".join(lines))
        values.append(value)
    app.print("\n".join(texts), values)


def _reading(
    app: App,
    table: TableName,
    connection: MysqlConnection,
    watermark: Watermark | None,
    start: Position,
    limit: int | None,
    windows_at_once: int,
) -> tuple[str, dict[str, object]]:
    settings = app.config.settings.extraction
    with connect(connection) as session:
        plan = plan_table(
            session,
            table,
            app.cursor_columns(table),
            settings,
            position=watermark.position if watermark else START,
            default_start=start,
            limit=limit,
        )
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
    windows = sum(len(chunk.windows) for chunk in chunks)
    end = chunks[-1].end if chunks else plan.start
    held_by = plan.bound.held_by if plan.bound else None
    held = f"\n    held back by {held_by}" if held_by else ""
    text = (
        f"    read {rows:,} rows in {windows:,} windows of {len(chunks):,} chunks,"
        f" {plan.route.why}, cursor {plan.choice.cursor}\n"
        f"    from {plan.start} to {end}{held}"
    )
    value: dict[str, object] = {
        "cursor": plan.choice.cursor.columns,
        "route": plan.route.why,
        "start": plan.start,
        "end": end,
        "rows": rows,
        "windows": windows,
        "chunks": len(chunks),
        "held_by": held_by,
        "warnings": plan.warnings,
    }
    return text, value


def _loading(app: App, table: TableName, watermark: Watermark | None) -> dict[str, int]:
    behind = manifests_behind(app.store, table, watermark) if watermark else []
    chunks = [manifest.change for manifest in behind if isinstance(manifest.change, Chunk)]
    return {
        "manifests": len(chunks),
        "files": sum(len(chunk.files) for chunk in chunks),
        "rows": sum(chunk.rows for chunk in chunks),
    }
