"""Distribute parts of a load over workers."""

from collections.abc import Callable, Sequence

from msgspec import Struct


class ParallelRun(Struct, frozen=True, kw_only=True):
    """Runs parts of a load on workers.

    `run` takes a title, a picklable function, the number of parts, and how many of them may run at
    once, of all tables together. It calls the function for each part at least once, possibly
    several times in parallel, and returns one answer a part, in order. It pays from `least_bytes`
    of Parquet on.
    """

    run: Callable[[str, Callable[[int], bytes], int, int], Sequence[bytes | str]]
    least_bytes: int
