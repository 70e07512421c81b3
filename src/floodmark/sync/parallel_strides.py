"""Scan a large range of an index over several connections, and yield its strides in order.

The range is divided into pieces (`mysql.index_pieces`) while the first of them are scanned, and a
piece's strides are yielded as they are found: what cannot be divided takes as long as with one
connection. The connections are opened before anything is read and closed when all strides are
found, so the readers of the meantime leave room for them. Whatever fails ends the scan, and with it
the sync; leaving it closes all connections.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import repeat
from queue import SimpleQueue
from threading import Event

from msgspec import Struct, structs

from floodmark.model.run import Strategy
from floodmark.mysql.connection import MysqlSession
from floodmark.mysql.index_pieces import pieces
from floodmark.mysql.index_scan import Found, Scan, Walk, strides
from floodmark.mysql.predicates import Values, up_to
from floodmark.planning.parallelism import walkers
from floodmark.sync.source import Source

_STRIDES = 32  # in a piece: each ends with one that may be short, and is read twice


_Strides = SimpleQueue[tuple[Found, int] | BaseException | None]


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
    if limit is not None:
        yield from strides(session, scan, start, size=size, limit=limit)
        return
    parts = _pieces(session, scan, start, _sizes(size, many))
    with source.more_sessions(many) as opened, _walking(opened, size) as walk:
        yield from _joined(_in_order(parts, walk, at_once=2 * many), size)


@contextmanager
def _walking(sessions: list[MysqlSession], size: int) -> Iterator[Callable[[_Piece], _Strides]]:
    """Return a function that begins to scan a piece in one of the sessions."""
    over, free = Event(), SimpleQueue[MysqlSession]()
    for one in sessions:
        free.put(one)

    def scan(piece: _Piece, found: _Strides) -> None:
        session = free.get()
        try:
            for stride in strides(session, piece.scan, piece.start, size=size, limit=None):
                found.put(stride)
                if over.is_set():
                    return
            found.put(None)
        except BaseException as error:  # noqa: BLE001 - raised for the caller
            found.put(error)
        finally:
            free.put(session)

    def walk(piece: _Piece) -> _Strides:
        found: _Strides = SimpleQueue()
        pool.submit(scan, piece, found)
        return found

    with ThreadPoolExecutor(len(sessions)) as pool:
        try:
            yield walk
        finally:
            over.set()
            pool.shutdown(cancel_futures=True)


def _in_order(
    parts: Iterator[_Piece], walk: Callable[[_Piece], _Strides], *, at_once: int
) -> Iterator[tuple[Found, int]]:
    """Yield the strides of all pieces; look for further pieces while none is ready."""
    coming: deque[_Strides] = deque()
    part = next(parts, None)
    while part or coming:
        if part and len(coming) < at_once and (not coming or coming[0].empty()):
            coming.append(walk(part))
            part = next(parts, None)
            continue
        found = coming[0].get()
        if isinstance(found, BaseException):
            raise found
        if found is None:
            coming.popleft()
        else:
            yield found


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
    yield 2 * size
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
