"""`floodmark watermark`: inspect and change watermarks."""

import click

from floodmark.cli.lazy import LazyGroup

_INSPECT = "floodmark.cli.watermark_inspect"
_CHANGE = "floodmark.cli.watermark_change"
_MAINTAIN = "floodmark.cli.watermark_maintain"
_MOVE = "floodmark.cli.watermark_move"


@click.group(
    cls=LazyGroup,
    lazy={
        "get": (f"{_INSPECT}:get", "Show a table's watermark, or the system watermark."),
        "list": (f"{_INSPECT}:list_all", "List all tables, one per line."),
        "history": (f"{_INSPECT}:history", "Show a table's earlier states."),
        "backups": (f"{_INSPECT}:backups", "Show backup copies and past recoveries."),
        "set": (f"{_CHANGE}:set_position", "Set a table's position, or the system watermark."),
        "reset": (f"{_CHANGE}:reset", "Reset a table to the start, or the system watermark."),
        "restore": (f"{_CHANGE}:restore", "Restore an earlier state of a table."),
        "move": (f"{_MOVE}:move", "Rename a table or a source."),
        "prune": (f"{_MAINTAIN}:prune", "Remove old backup copies."),
        "validate": (
            f"{_MAINTAIN}:validate",
            "Check the tracking against the lake and the warehouse.",
        ),
    },
)
def watermark() -> None:
    """Inspect and change watermarks."""
