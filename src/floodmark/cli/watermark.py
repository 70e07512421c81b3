"""`floodmark watermark …`: see and steer every position."""

import click

from floodmark.cli.lazy import LazyGroup

_INSPECT = "floodmark.cli.watermark_inspect"
_STEER = "floodmark.cli.watermark_steer"
_MAINTAIN = "floodmark.cli.watermark_maintain"
_MOVE = "floodmark.cli.watermark_move"


@click.group(
    cls=LazyGroup,
    lazy={
        "get": (f"{_INSPECT}:get", "Show a table's watermark, or the system watermark."),
        "list": (f"{_INSPECT}:list_all", "Show every table, one line each."),
        "history": (f"{_INSPECT}:history", "Show a table's earlier states."),
        "backups": (f"{_INSPECT}:backups", "Show the redundant copies, and past recoveries."),
        "set": (f"{_STEER}:set_position", "Set a position by hand, or the system watermark."),
        "reset": (f"{_STEER}:reset", "Send a table back to the start."),
        "restore": (f"{_STEER}:restore", "Go back to an earlier state."),
        "move": (f"{_MOVE}:move", "Give a table another name."),
        "prune": (f"{_MAINTAIN}:prune", "Remove old copies."),
        "validate": (f"{_MAINTAIN}:validate", "Compare what is tracked with what is there."),
    },
)
def watermark() -> None:
    """See and steer every position."""
