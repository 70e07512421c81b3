"""Import commands only when they are called, to keep start-up fast."""

from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

from floodmark.errors import UsageError


class LazyGroup(click.Group):
    """A group of commands given as `(module:attribute, help)`."""

    def __init__(self, *args: Any, lazy: dict[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """List the commands without importing them."""
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command."""
        if cmd_name not in self._lazy:
            return None
        module, _, attribute = self._lazy[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; UsageError suggests the nearest name."""
        nearest = get_close_matches(args[0], self._lazy, n=1)
        if args[0] not in self._lazy and nearest:
            raise UsageError(f"no such command {args[0]!r}", hint=f"did you mean {nearest[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the help of the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._lazy.items()])
