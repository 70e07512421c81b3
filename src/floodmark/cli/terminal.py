"""Format text for the terminal: width, symbols and colors; a pipe gets plain text."""

import os
import re
import shutil
import sys
from collections.abc import Sequence
from typing import TextIO
from unicodedata import category, east_asian_width

import click
from msgspec import Struct

from floodmark.model.formatting import counted

_MARKS = {"ok": ("✓", "+", "green"), "note": ("•", "-", "yellow"), "failed": ("✗", "x", "red")}
_CONTROL = re.compile(r"\x1b(?!\[[\d;]*m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]")
_GAP = 2
_LEAST_TEXT = 30
_AFTER_SHORTENING = 2
_NAMED = 3


class Column(Struct, frozen=True, kw_only=True):
    """A column of a table, and how it adapts to a narrow terminal.

    least   width down to which the column may be shortened; None for never
    spare   0 always stays; 1 and 2 are dropped if shortening is not enough, 3 and more before
            shortening; the greatest is dropped first
    """

    title: str
    right: bool = False
    least: int | None = None
    spare: int = 0


def harmless(text: str) -> str:
    """Replace control characters, except colors: errors may quote untrusted data."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def print_text(text: str, *, exact: bool = False) -> None:
    """Print to stdout; if the reader is gone, discard the text and continue."""
    try:
        click.echo(text if exact else harmless(text))
    except BrokenPipeError:
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
        os.close(devnull)


def style(text: str, color: str, *, bold: bool = False) -> str:
    """Color a text unless NO_COLOR is set; click strips colors in a pipe."""
    return text if os.environ.get("NO_COLOR") else click.style(text, fg=color, bold=bold or None)


def width(stream: TextIO | None = None) -> int | None:
    """Return the columns of the terminal; None if the stream is not a terminal."""
    stream = stream or sys.stdout
    return shutil.get_terminal_size().columns if stream is not None and stream.isatty() else None


def mark(state: str) -> str:
    """Return a colored symbol for a state: ok, note or failed."""
    sign, plain, color = _MARKS[state]
    return style(sign if _can_show(sign) else plain, color)


def labelled(label: str, color: str, text: str, *, bold: bool = False) -> str:
    """Return a line for stderr with a colored label, wrapped to the terminal."""
    line = fold(f"{label} {harmless(text)}", indent=4, stream=sys.stderr)
    return style(label, color, bold=bold) + line.removeprefix(label)


def entry(state: str, text: str) -> str:
    """Return a line with a symbol, wrapped to the terminal."""
    return f"{mark(state)} {fold(text, indent=4, first=2)[2:]}"


def fold(text: str, *, indent: int, first: int = 0, stream: TextIO | None = None) -> str:
    """Wrap a line to the terminal with a hanging indent; in a pipe leave it whole."""
    columns = width(stream)
    lines = [" " * first]
    if columns is None:
        return lines[0] + text
    for word in text.split():
        line = f"{lines[-1]} {word}" if lines[-1].strip() else lines[-1] + word
        if cells(line) <= max(_LEAST_TEXT, columns) or not lines[-1].strip():
            lines[-1] = line
        else:
            lines.append(" " * indent + word)
    return "\n".join(lines)


def cells(text: str) -> int:
    """Return the width of a text in terminal cells: some characters take two, some none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if category(char) in ("Mn", "Me", "Cf") else 2 if east_asian_width(char) in "WF" else 1
        for char in text
    )


def shorten(text: str, most: int) -> str:
    """Cut the middle out of a text that is too long."""
    plain = click.unstyle(text)
    if cells(plain) <= most:
        return text
    head, tail = plain[: (most - 1) // 2 + 1], plain[-((most - 1) // 2) :] if most > 2 else ""
    while head and cells(head) + cells(tail) > most - 1:
        head, tail = (head[:-1], tail) if cells(head) >= cells(tail) else (head, tail[1:])
    return text.replace(plain, f"{head}…{tail}")


def name_some(names: Sequence[str]) -> str:
    """Return the first names, and how many others there are."""
    more = len(names) - _NAMED
    shown = ", ".join(names[:_NAMED])
    return f"{shown} and {counted(more, 'other table')}" if more > 0 else shown


def without_name(text: str, name: str) -> str:
    """Return a text about a table in one line, without its name, which stands beside it."""
    return " ".join(text.replace(f"{name}: ", "").replace(f"{name} ", "").split())


def table(columns: list[Column], rows: list[list[str]]) -> str:
    """Format rows under a header, aligned, and no wider than the terminal."""
    most = width()
    everything = [[column.title for column in columns], *rows]
    kept = list(range(len(columns)))
    widths = [max(cells(click.unstyle(row[at])) for row in everything) for at in kept]
    if most is not None:
        kept, widths = _fit(columns, widths, most)
    return "\n".join(
        (" " * _GAP)
        .join(_padded(row[at], widths[at], right=columns[at].right) for at in kept)
        .rstrip()
        for row in everything
    )


def used_columns(
    columns: list[Column], rows: list[list[str]], *, always: int
) -> tuple[list[Column], list[list[str]]]:
    """Leave out the columns that no row has a value in, except the first ones."""
    used = [
        at
        for at in range(len(columns))
        if at < always or any(row[at] not in ("", "-") for row in rows)
    ]
    return [columns[at] for at in used], [[row[at] for at in used] for row in rows]


def _fit(columns: list[Column], widths: list[int], most: int) -> tuple[list[int], list[int]]:
    """Choose the columns that stay, and their widths."""
    kept, slack = list(range(len(columns))), [0] * len(columns)
    for at, column in enumerate(columns):
        slack[at] = max(0, widths[at] - (column.least or widths[at]))
    while True:
        excess = sum(widths[at] for at in kept) + _GAP * (len(kept) - 1) - most
        first = max(kept, key=lambda at: columns[at].spare)
        enough = sum(slack[at] for at in kept) if columns[first].spare <= _AFTER_SHORTENING else 0
        if excess <= enough or columns[first].spare == 0:
            break
        kept.remove(first)
    widths = list(widths)
    for at in sorted(kept, key=lambda at: slack[at], reverse=True):
        cut = min(slack[at], max(0, excess))
        widths[at] -= cut
        excess -= cut
    return kept, widths


def _padded(text: str, size: int, *, right: bool) -> str:
    text = shorten(text, size)
    space = " " * (size - cells(click.unstyle(text)))
    return space + text if right else text + space


def _can_show(sign: str) -> bool:
    try:
        sign.encode(sys.stdout.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
