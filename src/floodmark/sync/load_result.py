"""The result of loading a table."""

from datetime import datetime

from msgspec import Struct, structs

from floodmark.sync.result import TableResult


class LoadResult(Struct, frozen=True, kw_only=True):
    """Result of loading one table; `left_out` counts what a manual watermark excluded.

    If it is `complete`, everything in the lake is loaded: all that was in the source at `fresh`.
    """

    rows: int = 0
    quarantined_rows: int = 0
    deleted_rows: int = 0
    manifests: int = 0
    seconds: float = 0.0
    changes: tuple[str, ...] = ()
    left_out_manifests: int = 0
    left_out_rows: int = 0
    began: datetime | None = None
    complete: bool = False
    fresh: datetime | None = None

    def plus(self, later: "LoadResult") -> "LoadResult":
        """Add the result of a later load in the same run."""
        return LoadResult(
            rows=self.rows + later.rows,
            quarantined_rows=self.quarantined_rows + later.quarantined_rows,
            deleted_rows=self.deleted_rows + later.deleted_rows,
            manifests=self.manifests + later.manifests,
            seconds=self.seconds + later.seconds,
            changes=(*self.changes, *later.changes),
            left_out_manifests=later.left_out_manifests,
            left_out_rows=later.left_out_rows,
            began=self.began or later.began,
            complete=later.complete,
            fresh=later.fresh,
        )

    def added_to(self, result: TableResult) -> TableResult:
        """Add these figures to the result of a table."""
        if self.began is not None and "load" not in result.began_at:
            result = result.beginning("load", self.began)
        return structs.replace(
            result,
            loaded_fresh=(result.fresh or self.fresh) if self.complete else result.loaded_fresh,
            loaded_rows=result.loaded_rows + self.rows,
            quarantined_rows=result.quarantined_rows + self.quarantined_rows,
            deleted_rows=result.deleted_rows + self.deleted_rows,
            loaded_manifests=result.loaded_manifests + self.manifests,
            load_seconds=result.load_seconds + self.seconds,
            target_changes=(*result.target_changes, *self.changes),
            left_out_manifests=self.left_out_manifests,
            left_out_rows=self.left_out_rows,
        )
