"""From the configuration to the comparison of a table, and how what it finds looks to people."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from floodmark.cli.app import App
from floodmark.cli.terminal import fold
from floodmark.cli.words import counted
from floodmark.model.notice import Notice
from floodmark.model.position import START
from floodmark.model.table import TableName
from floodmark.model.verification import VerificationResult
from floodmark.sync.extraction import Engine, Extraction
from floodmark.sync.source import Source
from floodmark.sync.verification import Verification
from floodmark.tunnels.tunnel import Tunnels
from floodmark.warehouse.opening import open_reader


@contextmanager
def verification_of(
    app: App, table: TableName, engine: Engine, tunnels: Tunnels, *, everything: bool
) -> Iterator[Verification]:
    """How a table of the configuration is compared."""
    _, target_name = app.config.target_of(table)
    with (
        tunnels.through(app.mysql(table.scope)) as connection,
        tunnels.through(app.target(table)) as target,
        Source(connection) as source,
    ):
        yield Verification(
            extraction=Extraction(
                store=app.store,
                source=source,
                settings=app.config.settings.extraction,
                lake=app.config.lake,
                engine=engine,
                strategy="intra-table",
                session_id=app.run.session_id,
                default_start=START,
            ),
            open_target=partial(open_reader, target, app.config.lake),
            target_name=target_name,
            everything=everything,
        )


def show_agreement(verified: VerificationResult) -> str:
    """What was compared and is equal, in a few words."""
    left = show_not_compared(verified)
    if not verified.windows:
        return f"nothing compared; {left}" if left else "nothing new to compare"
    equal = (
        f"{counted(verified.rows, 'row')} compared in {verified.seconds:.1f} s:"
        " source and target are equal"
    )
    return f"{equal}; {left}" if left else equal


def show_not_compared(verified: VerificationResult) -> str:
    """What was left out of a comparison; nothing if it was complete."""
    left = ", ".join(map(str, verified.not_compared))
    return f"not compared: {left}" if left else ""


def show_differences(verified: VerificationResult) -> list[str]:
    """The rows that differ, each with its key, and the values that do."""
    lines = []
    for row in verified.shown:
        key = ", ".join(f"{name} = {_value(value)}" for name, value in row.key.items())
        lines.append(fold(f"{row.kind}: {key}", first=4, indent=8))
        lines += [
            fold(
                f"{value.column}: {_value(value.source)} in the source,"
                f" {_value(value.target)} in the target",
                first=8,
                indent=12,
            )
            for value in row.values
        ]
    total = sum(verified.differences.values())
    if total > len(verified.shown):
        lines.append(f"    … the first {len(verified.shown):,} of {total:,} rows")
    return lines


def remarks_on(table_name: str, verified: VerificationResult) -> Iterator[Notice]:
    """What else there is to know about a comparison."""
    if verified.differences and (left := show_not_compared(verified)):
        yield Notice("info", f"{table_name}: {left}", table=table_name)
    for remark in verified.remarks:
        yield Notice("warning", f"{table_name}: {remark}", table=table_name)
    if verified.quarantined:
        aside = f"{counted(verified.quarantined, 'row')} cannot be in the target: see quarantine"
        yield Notice("info", f"{table_name}: {aside}", table=table_name)
    if verified.moved:
        moved = f"{counted(verified.moved, 'row')} changed in the source since the load"
        yield Notice(
            "info",
            f"{table_name}: {moved}; the next sync has them, or quarantine",
            table=table_name,
        )


def _value(value: str | None) -> str:
    return "NULL" if value is None else repr(value)
