"""Compare the tasks' receipts with the plan of their chunk."""

from collections.abc import Sequence

from floodmark.errors import FloodmarkError
from floodmark.model.extraction import ChunkPlan, Receipt, Window


def check_receipts(plan: ChunkPlan, receipts: Sequence[Receipt]) -> None:
    """Raise FloodmarkError unless each window has one receipt, with rows of this window only."""
    if [receipt.part for receipt in receipts] != [window.part for window in plan.windows]:
        raise FloodmarkError("the receipts do not match the windows of the chunk")
    paths = [file.path for receipt in receipts for file in receipt.files]
    if len(set(paths)) != len(paths):
        raise FloodmarkError("two tasks reported the same file")
    for window, receipt in zip(plan.windows, receipts, strict=True):
        _check_range(window, receipt)


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
