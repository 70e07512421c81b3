"""Work on a target that is spread over many workers."""

from collections.abc import Callable, Sequence

from msgspec import Struct


class ParallelRun(Struct, frozen=True, kw_only=True):
    """Whoever can do parts of a load elsewhere.

    `run` is given a name for people to read, a function that can be sent to another machine, and
    how many parts there are; it calls the function once for each part, or more than once, also at
    the same time, and returns one answer a part in their order. It is worth its effort from
    `least_bytes` of Parquet on.
    """

    run: Callable[[str, Callable[[int], bytes], int], Sequence[bytes | str]]
    least_bytes: int
