"""Decide how large windows are: so that files have a good size, and no slot is idle.

A slice has as many rows as a worker may hold in memory, which makes a small file. A window of a
large load therefore has several slices, which one task reads into one file. Windows are large only
while enough is left for all slots, and become smaller towards the end: all slots end together.
"""

from fractions import Fraction

from msgspec import Struct

from floodmark.planning.parallelism import fewest_windows

_FILLED = Fraction(7, 8)  # a file that is full a little before its window ends leaves a small one
_COMPRESSED = Fraction(1, 3)  # of MySQL's estimate, while no file is known
_FEWEST_KNOWN = 10_000  # rows
_SHARE = Fraction(2, 3)  # of what is left; the rest evens out slots of different speed
_FEWEST_SLOTS = 4  # with fewer, loading while reading would wait for few large chunks
_HIDDEN = 8  # estimates are often too low: one row may be left for so many that are planned
_LONGEST_SECONDS = 60


class WindowSize(Struct, frozen=True, kw_only=True):
    """The size of the next `at_once` windows: slices of so many `rows` in all, or one slice.

    A window has no more than `most_slices`, if there is a limit; then a chunk has no more than were
    asked for either. Otherwise it has at least `per_chunk` windows.
    """

    rows: int = 0
    at_once: int = 1
    per_chunk: int = 1
    most_slices: int | None = None


def file_rows(
    file_bytes: int, *, average_row_bytes: int, rows: int = 0, size: int = 0, rate: float | None
) -> int:
    """Return how many rows make a file of good size.

    `rows` of the table are in files of this `size` in bytes. With a limited `rate` of rows per
    second, no more than a task reads in a minute.
    """
    known = rows >= _FEWEST_KNOWN and size > 0
    row_bytes = Fraction(size, rows) if known else max(1, average_row_bytes) * _COMPRESSED
    fitting = int(file_bytes * _FILLED / row_bytes)
    return fitting if rate is None else min(fitting, int(rate * _LONGEST_SECONDS))


def window_size(
    planned: int,
    *,
    expected: int,
    file_rows: int,
    at_once: int,
    slices_per_chunk: int | None,
) -> WindowSize:
    """Return the size of the next windows, after `planned` of about `expected` rows.

    `at_once` windows are read at once. A configured limit of slices is shared by them.
    """
    left = max(expected - planned, planned // _HIDDEN)
    return WindowSize(
        rows=min(file_rows, int(left * _SHARE) // max(at_once, _FEWEST_SLOTS)),
        at_once=at_once,
        per_chunk=1 if slices_per_chunk else fewest_windows(at_once),
        most_slices=max(1, slices_per_chunk // at_once) if slices_per_chunk else None,
    )
