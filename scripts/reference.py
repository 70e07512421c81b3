"""Writes what the code itself knows: commands, keys, formats, exit codes, and the JSON schema.

A page holds blocks between `<!-- generated: WHAT ARGUMENT -->` and `<!-- end -->`; everything
between the two is written here, and everything else by hand. `--check` changes nothing, names the
pages that are not up to date, and fails if there are any.
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
    """A Markdown table."""
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)


def fields_of(name: str) -> str:
    """The fields of a struct, `module:Class`, each with what stands below it in the source."""
    module, _, attribute = name.partition(":")
    struct = getattr(import_module(f"floodmark.{module}"), attribute)
    meanings = attribute_docstrings(struct)
    missing = [key for key in struct.__struct_fields__ if key not in meanings]
    if missing:
        raise SystemExit(f"{name}: say below each field what it means: {', '.join(missing)}")
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
    """The limits of a number that has an upper one, as a remark behind its meaning."""
    for meta in getattr(kind, "__metadata__", ()):
        if isinstance(meta, msgspec.Meta) and meta.le is not None:
            least = f"more than {meta.gt:,}" if meta.gt is not None else f"{meta.ge:,}"
            join = ", at most" if meta.gt is not None else " to"
            return f" ({least}{join} {meta.le:,})"
    return next(filter(None, map(show_limits, getattr(kind, "__args__", ()))), "")


def show_default(field: Any) -> str:
    """A field's default for people: nothing, if there is none worth the name."""
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
    """Every command with its help text, as the program prints it."""
    return "\n".join(
        f"## `{' '.join(path)}`\n```\n{help_text}\n```\n" for path, help_text in walk(cli)
    )


def walk(group: click.Command) -> Iterator[tuple[tuple[str, ...], str]]:
    """The commands below a group, each with its words and its help text."""

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
    """The exit codes and what they mean."""
    rows = ((str(int(code)), code.meaning) for code in ExitCode)
    return table(("exit code", "meaning"), rows)


WRITERS: dict[str, Callable[[Any], str]] = {
    "fields": fields_of,
    "commands": commands,
    "exit-codes": exit_codes,
}


def written(page: str) -> str:
    """A page with its blocks filled in."""
    return BLOCK.sub(lambda m: m[1] + WRITERS[m[2]](m[3]) + m[4], page)


def main() -> None:
    """Write every file that is not up to date, or only name them."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    texts = {page: written(page.read_text()) for page in pages}
    texts[SCHEMA] = json.dumps(config_schema(), indent=2) + "\n"
    stale = [file for file, text in texts.items() if not file.exists() or file.read_text() != text]
    names = ", ".join(str(file.relative_to(ROOT)) for file in stale)
    if "--check" in sys.argv[1:]:
        if stale:
            raise SystemExit(f"not up to date, 'make docs' writes them: {names}")
        return
    for file in stale:
        file.write_text(texts[file])
    sys.stdout.write(f"written: {names or 'nothing, all are up to date'}\n")


if __name__ == "__main__":
    main()
