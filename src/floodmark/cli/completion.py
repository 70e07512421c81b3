"""Shell completion: the script, and the names to complete."""

import os
from collections import Counter

import click
from click.shell_completion import CompletionItem, get_completion_class

from floodmark.config.loading import LoadedConfig, load_config
from floodmark.errors import FloodmarkError
from floodmark.model.presets import BUILT_IN

_PROGRAM = "floodmark"
_VARIABLE = "_FLOODMARK_COMPLETE"
_RECENT = ("1day", "1week", "1month")


# \b keeps click from running the lines together.
_USE = """\b
bash:  eval "$(floodmark completion bash)"     in ~/.bashrc
zsh:   eval "$(floodmark completion zsh)"      in ~/.zshrc
fish:  floodmark completion fish | source      in ~/.config/fish/config.fish
"""


@click.command(epilog=_USE)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a shell script that completes commands, tables, pipelines and presets."""
    from floodmark.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(cli, {}, _PROGRAM, _VARIABLE).source())


def tables(ctx: click.Context, _: click.Parameter, typed: str) -> list[CompletionItem]:
    """Complete tables of the configuration, without scope where that is unambiguous."""
    config = _config(ctx)
    if config is None:
        return []
    short = Counter(table.unscoped for table in config.tables)
    names = [
        table.unscoped if short[table.unscoped] == 1 and ":" not in typed else str(table)
        for table in config.tables
    ]
    return _starting(typed, names)


def pipelines(ctx: click.Context, _: click.Parameter, typed: str) -> list[CompletionItem]:
    """Complete pipelines of the configuration."""
    config = _config(ctx)
    return _starting(typed, list(config.settings.pipelines)) if config else []


def presets(ctx: click.Context, _: click.Parameter, typed: str) -> list[CompletionItem]:
    """Complete presets: built-in ones, and those of the configuration."""
    config = _config(ctx)
    own = list(config.settings.presets) if config else []
    return _starting(typed, [*own, *BUILT_IN, *_RECENT])


def _config(ctx: click.Context) -> LoadedConfig | None:
    try:
        return load_config(ctx.params.get("config_path"), os.environ)
    except FloodmarkError:
        return None  # the command itself will report it


def _starting(typed: str, names: list[str]) -> list[CompletionItem]:
    return [CompletionItem(name) for name in dict.fromkeys(names) if name.startswith(typed)]
