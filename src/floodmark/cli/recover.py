"""`floodmark recover`: restore the state of a lost lake."""

import click
import msgspec

from floodmark.api.recovery import RecoveryResult, TableRecovery
from floodmark.cli.app import App, command_options, complete, confirm, table_option
from floodmark.cli.terminal import entry, fold
from floodmark.errors import UsageError
from floodmark.model.formatting import counted


@click.command()
@click.option("--from-mirror", is_flag=True, help="Restore lost state from the mirror.")
@table_option(required=False)
@click.option(
    "-p",
    "--pipeline",
    "pipelines",
    multiple=True,
    metavar="PIPELINE",
    shell_complete=complete("pipelines"),
    help="All tables of a pipeline; may be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be recovered; change nothing.")
@click.option("--force", is_flag=True, help="Do not ask for confirmation.")
@command_options
def recover(
    app: App,
    names: tuple[str, ...],
    pipelines: tuple[str, ...],
    *,
    from_mirror: bool,
    dry_run: bool,
    force: bool,
) -> None:
    """Bring lost manifests, watermarks and records back from the mirror; by default of all tables.

    Existing objects are kept. Where rows are neither in the warehouse nor in the lake, the position
    goes back, so that the next sync reads them again.
    """
    if not from_mirror:
        raise UsageError(
            "recover needs --from-mirror",
            hint="a damaged or lost watermark is recovered by every command, if the lake has a copy"
            " or a manifest",
        )
    found = app.project.recover(names or None, pipelines or None, dry_run=True)
    if not dry_run:
        changed = [table for table in found.tables if table.changed]
        if changed and not force:
            for table in changed:
                click.echo(_show(table), err=True)
            names_text = counted(len(changed), "table")
            confirm(
                f"recover {names_text}?", force=force, refusal=f"this would recover {names_text}"
            )
        found = app.project.recover(names or None, pipelines or None, plan=found)
    app.print(_show_all(found), _value(found))
    found.raise_for_failures()


def _show_all(found: RecoveryResult) -> str:
    lines = [_show(table) for table in found.tables]
    if found.records:
        lines.append(entry("ok", f"restored {counted(found.records, 'record')}"))
    return "\n".join(lines) or "the mirror has no tables"


def _show(table: TableRecovery) -> str:
    if table.error:
        return entry("failed", f"{table.table_name}: {table.error.message}")
    what = []
    if table.manifests:
        what.append(counted(table.manifests, "manifest"))
    if table.watermark:
        what.append("the watermark")
    nothing = "nothing lost" if table.restart is None else "no state lost"
    text = f"lost: {' and '.join(what)}" if what else nothing
    lines = [entry("ok", f"{table.table_name}: {text}; at {table.position}")]
    if (restart := table.restart) is not None:
        reasons = []
        if restart.lost:
            reasons.append(f"files of {counted(len(restart.lost), 'chunk')} not loaded are gone")
        if restart.unknown:
            loads = counted(len(restart.unknown), "load")
            reasons.append(f"the ledger has {loads} that the log does not know")
        how = f"the next sync reads rows after {table.position} again"
        if restart.adopted:
            how = "the next sync reads the whole table again; rows that were adopted from files of"
            how += " an older system, and are no longer in the source, are lost"
        elif restart.kind == "read again":
            how = "without a primary key, the next sync reads the whole table again into an emptied"
            how += " target"
        lines.append(fold(f"{' and '.join(reasons)}: {how}", first=4, indent=6))
        if restart.repairs:
            number = counted(len(restart.repairs), "manifest")
            text = f"{number} of backfills or reconciliations not loaded: the position is before"
            text += " their first row"
            lines.append(fold(text, first=4, indent=6))
        if restart.deleted:
            number = counted(restart.deleted, "deleted row")
            text = f"{number} stay in the target: '{_reconcile(table)}' finds them again"
            lines.append(fold(text, first=4, indent=6))
    if not table.ledger_read and table.changed:
        lines.append(fold("in no pipeline, so the ledger was not read", first=4, indent=6))
    return "\n".join(lines)


def _reconcile(table: TableRecovery) -> str:
    return f"floodmark reconcile -t {table.table_name} --deletes hard"


def _value(found: RecoveryResult) -> object:
    tables = [
        {
            "table": table.table_name,
            "manifests": table.manifests,
            "watermark": table.watermark,
            "position": table.position,
            "restart": table.restart
            and {
                "kind": table.restart.kind,
                "lost": [str(head) for head in table.restart.lost],
                "unknown": [str(head) for head in table.restart.unknown],
                "adopted": [str(head) for head in table.restart.adopted],
                "repairs": [str(head) for head in table.restart.repairs],
                "deleted": table.restart.deleted,
            },
            "error": table.error.message if table.error else None,
        }
        for table in found.tables
    ]
    return msgspec.to_builtins(
        {"dry_run": found.dry_run, "records": found.records, "tables": tables}
    )
