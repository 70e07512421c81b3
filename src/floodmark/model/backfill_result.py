"""The result of a backfill."""

from msgspec import Struct

from floodmark.model.formatting import counted
from floodmark.model.position import START, Position


class BackfillResult(Struct, frozen=True, kw_only=True):
    """The rows in `(start, end]` that were read again, or would be with `dry_run`.

    `continued` is where it went on from, if an earlier backfill of this range was interrupted; that
    one read `earlier_rows`, which are not read again. In a dry run, `rows` is an estimate.
    """

    start: Position = START
    end: Position = START
    rows: int = 0
    chunks: int = 0
    continued: Position | None = None
    earlier_rows: int = 0
    dry_run: bool = False
    seconds: float = 0.0

    def __str__(self) -> str:
        before = counted(self.earlier_rows, "row")
        again = (
            f", continued after {self.continued}: {before} before it, read by an interrupted run,"
            " were not read again; '--restart' reads all of them"
            if self.continued
            else ""
        )
        if self.dry_run:
            return f"about {counted(self.rows, 'row')} to read again{again}"
        parts = f" in {counted(self.chunks, 'chunk')}" if self.chunks > 1 else ""
        return f"{counted(self.rows, 'row')} read again{parts} in {self.seconds:.1f} s{again}"
