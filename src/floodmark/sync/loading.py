"""How tables are loaded in a run."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from msgspec import Struct

from floodmark.model.notice import Report
from floodmark.state.watermark_store import WatermarkStore
from floodmark.warehouse.target import Target


class Loading(Struct, frozen=True, kw_only=True):
    """How to load tables in this run.

    With `load_only`, a manual watermark limits the files to load, and the ledger is read even if
    nothing seems new. `place` identifies the target table: if the watermark has another one, the
    ledger is read as well. `target_missing` returns whether the target is gone, if that can be
    known without opening it. `check` raises once the run was stopped. Messages call the target
    `warehouse`. Some files may have a copy in the folder `copies`.
    """

    store: WatermarkStore
    open_target: Callable[[], AbstractContextManager[Target]]
    target_name: str
    session_id: str
    batch_bytes: int
    warehouse: str = "warehouse"
    place: str | None = None
    load_only: bool = False
    target_missing: Callable[[], bool] = lambda: False
    report: Report = lambda _notice: None
    quarantine_limit: int = 0
    check: Callable[[], None] = lambda: None
    copies: str | None = None
