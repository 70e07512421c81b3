"""Read rows from the lake's data files."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import zip_longest
from typing import TYPE_CHECKING

from floodmark.errors import FloodmarkError, ObjectNotFound
from floodmark.storage.copies import copy_of, remove_copy
from floodmark.storage.folders import path_of
from floodmark.storage.objects import ObjectStore

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ROWS = 8192  # few enough to stay in the processor's cache, and to follow each other soon
_MOST_AHEAD_BYTES = 32 * 1024 * 1024


class LakeFiles:
    """Data files in a local folder, if there is a `local_root`, or else in an object store.

    Some of those in an object store may also be in the folder `copies`.
    """

    def __init__(
        self, objects: ObjectStore, local_root: str | None, copies: str | None = None
    ) -> None:
        self._objects = objects
        self._local_root = local_root
        self._copies = copies

    def local_path(self, path: str) -> str | None:
        """Return a file's path on this machine, None if it is remote; FloodmarkError if missing."""
        if self._local_root is None:
            return copy_of(self._copies, path)
        local = path_of(self._local_root, path)
        if not os.path.exists(local):
            raise _gone(path)
        return local

    def remove_copies(self, paths: Sequence[str]) -> None:
        """Remove copies of files that were read; to read them once more, they are fetched."""
        for path in paths:
            remove_copy(self._copies, path)

    def batches(self, path: str, columns: Sequence[str]) -> "Iterator[pa.RecordBatch]":
        """Read a file's rows in batches, so that memory does not grow with the row count.

        From an object store, the whole file is fetched first.
        """
        yield from _batches(path, self._find(path), columns)

    def batches_of(
        self, paths: Sequence[str], columns: Sequence[str]
    ) -> "Iterator[pa.RecordBatch]":
        """Read the rows of files in their order.

        From an object store, the next file is fetched while one is read, unless they are large.
        """
        if self._local_root is not None:
            for path in paths:
                yield from self.batches(path, columns)
            return
        with ThreadPoolExecutor(1, "fetch") as pool:
            ahead: Future[str | pa.Buffer] | None = None
            for path, following in zip_longest(paths, paths[1:]):
                data = ahead.result() if ahead else self._find(path)
                is_small = isinstance(data, str) or data.size <= _MOST_AHEAD_BYTES
                ahead = pool.submit(self._find, following) if following and is_small else None
                yield from _batches(path, data, columns)

    def _find(self, path: str) -> "str | pa.Buffer":
        return self.local_path(path) or self._fetch(path)

    def _fetch(self, path: str) -> "pa.Buffer":
        import pyarrow as pa

        try:
            return pa.py_buffer(self._objects.get(path).data)
        except ObjectNotFound as error:
            raise _gone(path) from error


def _batches(
    path: str, source: "str | pa.Buffer", columns: Sequence[str]
) -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(source if isinstance(source, str) else pa.BufferReader(source)) as file:
            # One row group at a time: otherwise all of them stay in memory to the end.
            for group in range(file.num_row_groups):
                batches = file.iter_batches(_BATCH_ROWS, row_groups=[group], use_threads=False)
                yield from (batch.select(columns) for batch in batches)
    except (OSError, KeyError, pa.ArrowException) as error:
        raise FloodmarkError(
            f"{path}: {error}",
            hint="'floodmark watermark validate' compares manifests and files",
        ) from error


def _gone(path: str) -> FloodmarkError:
    return FloodmarkError(
        f"data file {path} is missing",
        hint="'floodmark watermark validate' shows how to read its rows again",
    )
