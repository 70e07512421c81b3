"""What a terminal can show: its width, its characters and colours. A pipe gets none of it."""

import os
import shutil
import sys
from typing import TextIO
from unicodedata import category, east_asian_width

import click
from msgspec import Struct

_MARKS = {"ok": ("✓", "+", "green"), "note": ("•", "-", "yellow"), "failed": ("✗", "x", "red")}
_GAP = 2
_LEAST_TEXT = 30
_AFTER_SHORTENING = 2


class Column(Struct, frozen=True, kw_only=True):
    """A column of a table, and what becomes of it where it is narrow.

    least   how far the column may be shortened; None if not at all
    spare   0 stays; 1 and 2 are left out when shortening is not enough, 3 and more before; the
            greatest goes first
    """

    title: str
    right: bool = False
    least: int | None = None
    spare: int = 0


def say(text: str) -> None:
    """Print a result. If nobody reads any more, the rest of the work is done all the same."""
    try:
        click.echo(text)
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def style(text: str, colour: str, *, bold: bool = False) -> str:
    """Colour a text, unless NO_COLOR asks for none; in a pipe it is taken off again."""
    return text if os.environ.get("NO_COLOR") else click.style(text, fg=colour, bold=bold or None)


def width(stream: TextIO | None = None) -> int | None:
    """How many columns the terminal has; None if the output goes elsewhere."""
    stream = stream or sys.stdout
    return shutil.get_terminal_size().columns if stream is not None and stream.isatty() else None


def mark(state: str) -> str:
    """A coloured sign for how something is: ok, note or failed."""
    sign, plain, colour = _MARKS[state]
    return style(sign if _can_show(sign) else plain, colour)


def labelled(label: str, colour: str, text: str, *, bold: bool = False) -> str:
    """A line on stderr that begins with a coloured word, folded where the terminal ends."""
    line = fold(f"{label} {text}", indent=4, stream=sys.stderr)
    return style(label, colour, bold=bold) + line.removeprefix(label)


def entry(state: str, text: str) -> str:
    """A line with a mark, folded where the terminal ends."""
    return f"{mark(state)} {fold(text, indent=4, first=2)[2:]}"


def fold(text: str, *, indent: int, first: int = 0, stream: TextIO | None = None) -> str:
    """Break a line where the terminal ends, and indent what follows; in a pipe leave it whole."""
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
    """How many cells of a terminal a text takes: some characters take two, some none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if category(char) in ("Mn", "Me", "Cf") else 2 if east_asian_width(char) in "WF" else 1
        for char in text
    )


def shorten(text: str, most: int) -> str:
    """Leave out the middle of what is too long."""
    plain = click.unstyle(text)
    if cells(plain) <= most:
        return text
    head, tail = plain[: (most - 1) // 2 + 1], plain[-((most - 1) // 2) :] if most > 2 else ""
    while head and cells(head) + cells(tail) > most - 1:
        head, tail = (head[:-1], tail) if cells(head) >= cells(tail) else (head, tail[1:])
    return text.replace(plain, f"{head}…{tail}")


def table(columns: list[Column], rows: list[list[str]]) -> str:
    """Rows under a header, aligned, and no wider than the terminal."""
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


def _fit(columns: list[Column], widths: list[int], most: int) -> tuple[list[int], list[int]]:
    """Which columns stay, and how wide each is."""
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
