"""Select the Parquet files of older systems, which no manifest contains, for adoption.

A file with a name of our own tasks is never one of them: a run that did not finish left it, and its
rows were read again.
"""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from msgspec import Struct

from floodmark.model.lake_layout import sequence_of_data_file
from floodmark.model.timestamps import moved, plain
from floodmark.model.watermark import Watermark
from floodmark.storage.objects import ObjectInfo

_HIDDEN = ("_", ".")  # temporary and marker files of Spark and Hadoop


class AdoptionWindow(Struct, frozen=True, kw_only=True):
    """Select files by creation time: after `after`, up to and including `until`."""

    after: datetime
    until: datetime | None = None

    def contains(self, file: ObjectInfo) -> bool:
        """Return whether a file is in the window."""
        return self.after < file.modified and (self.until is None or file.modified <= self.until)

    def describe(self, warehouse: str) -> str:
        """Describe what is selected for a warehouse."""
        if self.until is None:
            return (
                f"Using manual watermark-based incremental {warehouse} loading:"
                f" files after {plain(self.after)}"
            )
        return (
            f"Using session-based incremental {warehouse} loading:"
            f" files from {plain(self.after)} to {plain(self.until)}"
        )


class LegacyFiles(Struct, frozen=True, kw_only=True):
    """An older system's files: to adopt, outside the window, and already adopted."""

    chosen: tuple[ObjectInfo, ...] = ()
    left_out: tuple[ObjectInfo, ...] = ()
    known: tuple[ObjectInfo, ...] = ()


def adoption_window(watermark: Watermark, hours: float) -> AdoptionWindow | None:
    """Return the window of files to adopt: after a manual watermark, or around the last extraction.

    None if there is neither.
    """
    if watermark.manual_start is not None:
        return AdoptionWindow(after=watermark.manual_start)
    last, around = watermark.mysql_state.last_extraction_time, timedelta(hours=hours)
    return AdoptionWindow(after=moved(last, -around), until=moved(last, around)) if last else None


def sort_files(
    found: Iterable[ObjectInfo], known: Collection[str], window: AdoptionWindow
) -> LegacyFiles:
    """Classify an older system's files, oldest first; `known` are already adopted."""
    chosen: list[ObjectInfo] = []
    left_out: list[ObjectInfo] = []
    adopted: list[ObjectInfo] = []
    for file in sorted(found, key=lambda file: (file.modified, file.key)):
        if file.key in known:
            adopted.append(file)
        else:
            (chosen if window.contains(file) else left_out).append(file)
    return LegacyFiles(chosen=tuple(chosen), left_out=tuple(left_out), known=tuple(adopted))


def is_legacy_file(key: str) -> bool:
    """Return whether this is a complete, visible Parquet file of another system."""
    *_, name = parts = key.split("/")
    hidden = any(part.startswith(_HIDDEN) for part in parts)
    return name.endswith(".parquet") and not hidden and sequence_of_data_file(name) is None
