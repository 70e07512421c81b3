"""Parquet files that no manifest names, from older systems: which are theirs, and which are wanted.

A file under a name such as our own tasks give is never one of them, named or not: it was left by a
run that did not finish, and its rows were read again.
"""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from msgspec import Struct

from floodmark.model.timestamps import moved, plain
from floodmark.model.watermark import Watermark
from floodmark.state.data_files import is_our_name
from floodmark.storage.objects import ObjectInfo

_HIDDEN = ("_", ".")  # what Spark and Hadoop write on the way


class AdoptionWindow(Struct, frozen=True, kw_only=True):
    """When a file must have been created to be wanted: after `after`, and not after `until`."""

    after: datetime
    until: datetime | None = None

    def holds(self, file: ObjectInfo) -> bool:
        """Whether a file is wanted."""
        return self.after < file.modified and (self.until is None or file.modified <= self.until)

    def __str__(self) -> str:
        if self.until is None:
            return (
                "Using manual watermark-based incremental Redshift loading:"
                f" files after {plain(self.after)}"
            )
        return (
            "Using session-based incremental Redshift loading:"
            f" files from {plain(self.after)} to {plain(self.until)}"
        )


class ForeignFiles(Struct, frozen=True, kw_only=True):
    """An older system's files: to adopt, outside of the window, and adopted before."""

    chosen: tuple[ObjectInfo, ...] = ()
    left_out: tuple[ObjectInfo, ...] = ()
    known: tuple[ObjectInfo, ...] = ()


def adoption_window(watermark: Watermark, hours: float) -> AdoptionWindow | None:
    """Which files are wanted: after a manual watermark, or else around the last extraction."""
    if watermark.manual_start is not None:
        return AdoptionWindow(after=watermark.manual_start)
    last, around = watermark.mysql_state.last_extraction_time, timedelta(hours=hours)
    return AdoptionWindow(after=moved(last, -around), until=moved(last, around)) if last else None


def sort_files(
    found: Iterable[ObjectInfo], known: Collection[str], window: AdoptionWindow
) -> ForeignFiles:
    """Sort an older system's files, oldest first; `known` were adopted before."""
    chosen: list[ObjectInfo] = []
    left_out: list[ObjectInfo] = []
    adopted: list[ObjectInfo] = []
    for file in sorted(found, key=lambda file: (file.modified, file.key)):
        if file.key in known:
            adopted.append(file)
        else:
            (chosen if window.holds(file) else left_out).append(file)
    return ForeignFiles(chosen=tuple(chosen), left_out=tuple(left_out), known=tuple(adopted))


def is_foreign(key: str) -> bool:
    """Whether this is a Parquet file of another system, whole and meant to be read."""
    *_, name = parts = key.split("/")
    hidden = any(part.startswith(_HIDDEN) for part in parts)
    return name.endswith(".parquet") and not hidden and not is_our_name(name)
