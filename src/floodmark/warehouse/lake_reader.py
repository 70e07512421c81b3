"""Read rows from the lake's data files."""

import os
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from floodmark.errors import FloodmarkError, ObjectNotFound
from floodmark.storage.folders import path_of
from floodmark.storage.objects import ObjectStore

_BATCH_ROWS = 32_768


class LakeFiles:
    """Data files in a local folder, if there is a `local_root`, or else in an object store."""

    def __init__(self, objects: ObjectStore, local_root: str | None) -> None:
        self._objects = objects
        self._local_root = local_root

    def local_path(self, path: str) -> str | None:
        """Return a file's path on this machine, None if it is remote; FloodmarkError if missing."""
        if self._local_root is None:
            return None
        local = path_of(self._local_root, path)
        if not os.path.exists(local):
            raise _gone(path)
        return local

    def batches(self, path: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read a file's rows in batches, so that memory does not grow with the row count.

        From an object store, the whole file is fetched first.
        """
        local = self.local_path(path)
        try:
            source = local or pa.BufferReader(self._objects.get(path).data)
            with pq.ParquetFile(source) as file:
                # One row group at a time: otherwise all of them stay in memory to the end.
                for group in range(file.num_row_groups):
                    for batch in file.iter_batches(_BATCH_ROWS, row_groups=[group]):
                        yield batch.select(columns)
        except ObjectNotFound as error:
            raise _gone(path) from error
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
