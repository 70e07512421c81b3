"""Scan a large range of an index over several connections, and yield its strides in order.

The first stride is found as by one connection, as early. The rest is divided into pieces
(`mysql.index_pieces`) while the first of them are scanned. The connections are opened before
anything is read and closed when all strides are found, so the readers of the meantime leave room
for them. Whatever fails ends the scan, and with it the sync; leaving it closes all connections.
"""

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import chain, repeat
from queue import SimpleQueue
from threading import Event

from msgspec import Struct, structs

from floodmark.model.run import Strategy
from floodmark.mysql.connection import MysqlSession
from floodmark.mysql.index_pieces import pieces
from floodmark.mysql.index_scan import Found, Scan, Walk, strides
from floodmark.mysql.predicates import Values, up_to
from floodmark.planning.parallelism import walkers
from floodmark.sync.read_ahead import read_ahead
from floodmark.sync.source import Source

_STRIDES = 16  # in a piece: each ends with a stride that may be short


class _Piece(Struct, frozen=True):
    """A part of a scan: its rows after `start`."""

    scan: Scan
    start: Values


def walk_over(source: Source, strategy: Strategy, slots: int | None) -> Walk:
    """Return how to scan in strides: over as many connections as keep up with the readers."""
    many = walkers(source.readers_at_once(slots), strategy)
    return strides if many == 1 else partial(parallel_strides, source, many)


def parallel_strides(
    source: Source,
    many: int,
    session: MysqlSession,
    scan: Scan,
    start: Values,
    *,
    size: int,
    limit: int | None,
) -> Iterator[tuple[Found, int]]:
    """Scan in strides like `strides`, over `many` connections; a limit needs one alone.

    More strides than the last one may be shorter than `size`, but two that follow each other have
    more rows than that together.
    """
    alone = strides(session, scan, start, size=size, limit=limit)
    if limit is not None:
        yield from alone
        return
    if (first := next(alone, None)) is None:
        return
    yield first
    start, over, free = first[0], Event(), SimpleQueue[MysqlSession]()

    def walk(piece: _Piece) -> list[tuple[Found, int]]:
        found, own = [], free.get()
        try:
            for stride in strides(own, piece.scan, piece.start, size=size, limit=None):
                found.append(stride)
                if over.is_set():
                    break
        finally:
            free.put(own)
        return found

    with source.more_sessions(many) as opened:
        for one in opened:
            free.put(one)
        parts = _pieces(session, scan, start, _sizes(size, many))
        with closing(read_ahead(parts, walk, at_once=many, cancel=over.set)) as found:
            yield from _joined(chain.from_iterable(found), size)


def _pieces(
    session: MysqlSession, scan: Scan, start: Values, sizes: Iterator[int]
) -> Iterator[_Piece]:
    for end in pieces(session, scan, start, sizes):
        where = f"({scan.where}) AND {up_to(scan.columns, end)}"
        yield _Piece(structs.replace(scan, where=where), start)
        start = end
    yield _Piece(scan, start)


def _sizes(size: int, many: int) -> Iterator[int]:
    """Yield the rows of each piece: few in the first ones, which the first chunk waits for."""
    yield from repeat(4 * size, 2 * many)
    yield from repeat(_STRIDES * size)


def _joined(found: Iterator[tuple[Found, int]], size: int) -> Iterator[tuple[Found, int]]:
    """Join strides that follow each other and have at most `size` rows together."""
    joined: tuple[Found, int] | None = None
    for end, rows in found:
        if joined is not None and joined[1] + rows > size:
            yield joined
            joined = None
        joined = (end, rows + (joined[1] if joined else 0))
        if joined[1] >= size:  # no need to wait for the next
            yield joined
            joined = None
    if joined is not None:
        yield joined
