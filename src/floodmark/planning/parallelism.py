"""Decide how much is read at once: connections, windows, chunks and tables."""

from collections.abc import Sequence
from math import ceil

from floodmark.model.run import Strategy

_WINDOWS = 8
MOST_CHUNKS = 8
_FEWEST_TABLES, _MOST_TABLES = 4, 64
_SHARED = 6  # connections: two look ahead, two see what is in flight, one reads, one to spare
_PART_OF_SERVER = 5  # the other connections are for everyone else
_ALONE = 50_000  # rows per second that one connection reads at least
_FED = 8  # readers, for which one connection finds edges: it reads the index so much faster
_MOST_WALKERS = 16


def windows_per_chunk(configured: int | None, strategy: Strategy, slots: int | None) -> int:
    """Return how many windows are committed together: more than one only with `intra-table`.

    By default at least one for each slot, as commits follow each other; `slots` is how many tasks
    Spark runs at once, None if that is not known yet.
    """
    if strategy != "intra-table":
        return 1
    return configured or max(_WINDOWS, slots or 0)


def chunks_at_once(in_flight: Sequence[int], strategy: Strategy, slots: int | None) -> int:
    """Return how many chunks of a table may be in flight: more than one only with `intra-table`.

    One more than are needed to use all slots, so that none is idle at the end of a chunk.
    `in_flight` are the numbers of windows of those that are in flight already, the oldest first.
    """
    if strategy != "intra-table":
        return 1
    enough = sum(in_flight[1:]) >= (slots or 1)
    return min(MOST_CHUNKS, max(1, len(in_flight) + (not enough)))


def fewest_windows(slots: int) -> int:
    """Return how many windows a chunk must have, so that all chunks in flight use all slots."""
    return ceil(slots / (MOST_CHUNKS - 1))


def tables_at_once(
    configured: int | None, strategy: Strategy, slots: int | None, connections: int | None
) -> int:
    """Return how many tables are in work at once: more than one only with `inter-table`.

    By default as many as tasks run at once, but a table needs a connection to plan and one to read,
    of those that a run may have (`connections`), and some are shared by all.
    """
    if strategy != "inter-table":
        return 1
    if configured:
        return configured
    tables = min(_MOST_TABLES, max(_FEWEST_TABLES, slots or _MOST_TABLES))
    if connections is not None:
        tables = min(tables, connections // 2, connections - _SHARED)
    return max(1, tables)


def walkers(readers: int, strategy: Strategy) -> int:
    """Return how many connections find the edges of a table's windows: enough for its readers.

    Only with `intra-table` do many readers wait for the edges of one table.
    """
    return min(_MOST_WALKERS, ceil(readers / _FED)) if strategy == "intra-table" else 1


def connection_limit(configured: int | None, server: int | None, account: int) -> int:
    """Return how many connections a run may have to a server in all.

    `server` is the server's limit, if known; `account` is that of our user, 0 if there is none.
    """
    limit = configured or (max(2, server // _PART_OF_SERVER) if server else _WINDOWS)
    return min(limit, account) if account else limit


def readers(slots: int | None, limit: int, planning: int, rows_per_second: int | None) -> int:
    """Return how many windows of a source are read at once, by all its tables.

    No more than Spark runs, unless that may change (`slots` is None). `planning` connections are
    open already. For a limited rate, no more than are needed to reach it.
    """
    most = limit - planning if slots is None else min(slots, limit - planning)
    if rows_per_second is not None:
        most = min(most, ceil(rows_per_second / _ALONE))
    return max(1, most)
