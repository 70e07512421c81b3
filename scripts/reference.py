"""Generate reference documentation: commands, keys, formats, exit codes, and the JSON schema.

This script writes the blocks of a page between `<!-- generated: WHAT ARGUMENT -->` and
`<!-- end -->`; everything else is written by hand. `--check` changes nothing, and fails with the
names of outdated pages.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import msgspec

from fields import attribute_docstrings
from floodmark.cli.main import cli
from floodmark.errors import ExitCode
from schema import config_schema

ROOT = Path(__file__).parents[1]
SCHEMA = ROOT / "src" / "floodmark" / "config" / "floodmark.schema.json"
BLOCK = re.compile(r"(<!-- generated: (\S+)(?: (\S+))? -->\n)(?s:.*?)(<!-- end -->)")


def table(heads: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)


def fields_of(name: str) -> str:
    """Return a table of a struct's fields, `module:Class`, with their docstrings."""
    module, _, attribute = name.partition(":")
    struct = getattr(import_module(f"floodmark.{module}"), attribute)
    meanings = attribute_docstrings(struct)
    missing = [key for key in struct.__struct_fields__ if key not in meanings]
    if missing:
        raise SystemExit(f"{name}: write a docstring below each field: {', '.join(missing)}")
    return table(
        ("key", "meaning", "default"),
        (
            (
                f"`{field.encode_name}`",
                meanings[field.name] + show_limits(field.type),
                show_default(field),
            )
            for field in msgspec.structs.fields(struct)
        ),
    )


def show_limits(kind: Any) -> str:
    """Return the limits of a number that has an upper one."""
    for meta in getattr(kind, "__metadata__", ()):
        if isinstance(meta, msgspec.Meta) and meta.le is not None:
            least = f"more than {meta.gt:,}" if meta.gt is not None else f"{meta.ge:,}"
            join = ", at most" if meta.gt is not None else " to"
            return f" ({least}{join} {meta.le:,})"
    return next(filter(None, map(show_limits, getattr(kind, "__args__", ()))), "")


def show_default(field: Any) -> str:
    """Format a field's default; empty if there is none worth showing."""
    if field.required:
        return "required"
    value = field.default
    if value is msgspec.NODEFAULT:
        value = field.default_factory()
    if value is None or value == "" or isinstance(value, msgspec.Struct | dict | tuple | list):
        return ""
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    if isinstance(value, int | float):
        return f"`{value:.10g}`"
    return f"`{value}`"


def commands(_: str | None) -> str:
    """Return every command with its help text."""
    return "\n".join(
        f"## `{' '.join(path)}`\n```\n{help_text}\n```\n" for path, help_text in walk(cli)
    )


def walk(group: click.Command) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the commands below a group, each with its path and its help text."""

    def visit(
        command: click.Command, parent: click.Context | None, path: tuple[str, ...]
    ) -> Iterator[tuple[tuple[str, ...], str]]:
        settings = {**command.context_settings, "terminal_width": 100}
        context = click.Context(command, parent=parent, info_name=path[-1], **settings)
        yield path, command.get_help(context).rstrip()
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                below = command.get_command(context, name)
                assert below is not None
                yield from visit(below, context, (*path, name))

    yield from visit(group, None, ("floodmark",))


def exit_codes(_: str | None) -> str:
    """Return a table of the exit codes."""
    rows = ((str(int(code)), code.meaning) for code in ExitCode)
    return table(("exit code", "meaning"), rows)


WRITERS: dict[str, Callable[[Any], str]] = {
    "fields": fields_of,
    "commands": commands,
    "exit-codes": exit_codes,
}


def written(page: str) -> str:
    """Return a page with its generated blocks."""
    return BLOCK.sub(lambda m: m[1] + WRITERS[m[2]](m[3]) + m[4], page)


def main() -> None:
    """Write every outdated file, or only list them."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    texts = {page: written(page.read_text()) for page in pages}
    texts[SCHEMA] = json.dumps(config_schema(), indent=2) + "\n"
    stale = [file for file, text in texts.items() if not file.exists() or file.read_text() != text]
    names = ", ".join(str(file.relative_to(ROOT)) for file in stale)
    if "--check" in sys.argv[1:]:
        if stale:
            raise SystemExit(f"outdated, run 'make docs': {names}")
        return
    for file in stale:
        file.write_text(texts[file])
    sys.stdout.write(f"written: {names or 'nothing, all files are up to date'}\n")


if __name__ == "__main__":
    main()
