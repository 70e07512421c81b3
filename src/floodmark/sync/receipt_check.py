"""Compare the tasks' receipts with the plan of their chunk, and with the files in the lake."""

from collections.abc import Iterator, Sequence
from os.path import dirname

from floodmark.errors import FloodmarkError
from floodmark.model.extraction import ChunkPlan, Receipt, Window
from floodmark.storage.objects import ObjectStore


def check_receipts(plan: ChunkPlan, receipts: Sequence[Receipt]) -> None:
    """Raise FloodmarkError unless each window has one receipt, with rows of this window only."""
    if [receipt.part for receipt in receipts] != [window.part for window in plan.windows]:
        raise FloodmarkError("the receipts do not match the windows of the chunk")
    paths = [file.path for receipt in receipts for file in receipt.files]
    if len(set(paths)) != len(paths):
        raise FloodmarkError("two tasks reported the same file")
    for window, receipt in zip(plan.windows, receipts, strict=True):
        if receipt.slices != len(window.statements):
            raise FloodmarkError(
                f"window {window.part} has {len(window.statements)} slices,"
                f" of which {receipt.slices} were read"
            )
        _check_range(window, receipt)


def check_files(objects: ObjectStore, receipts: Sequence[Receipt]) -> None:
    """Raise FloodmarkError unless we see each file that a task on another machine has written."""
    written = [file for receipt in receipts for file in (*receipt.files, *receipt.quarantine)]
    sizes = dict(_sizes(objects, [file.path for file in written]))
    for file in written:
        if (size := sizes.get(file.path)) == file.bytes:
            continue
        seen = "does not exist" if size is None else f"has {size:,} bytes"
        raise FloodmarkError(
            f"a worker wrote {file.path} with {file.bytes:,} bytes,"
            f" but here it {seen} in {objects}",
            hint="the lake must be the same place for all workers and this machine: S3, or a folder"
            " that they share",
        )


def _sizes(objects: ObjectStore, paths: Sequence[str]) -> Iterator[tuple[str, int]]:
    """List the folders of these files, from the first to the last of them."""
    for folder in sorted({dirname(path) for path in paths}):
        inside = [path for path in paths if dirname(path) == folder]
        first, last = min(inside), max(inside)
        for found in objects.list_objects(f"{folder}/", after=first[:-1]):
            if found.key > last:
                break
            yield found.key, found.size


def _check_range(window: Window, receipt: Receipt) -> None:
    if window.start.walk or window.end.walk:
        return  # a key scan's rows are in ranges of the key, not of positions
    for file in receipt.files:
        # None: only the database can compare them.
        after_start = file.first.is_start or file.first.compare(window.start) in (1, None)
        before_end = file.last.is_start or file.last.compare(window.end) in (-1, 0, None)
        if not (after_start and before_end):
            raise FloodmarkError(
                f"{file.path} has rows from {file.first} to {file.last}, outside its window"
                f" from {window.start} to {window.end}"
            )
