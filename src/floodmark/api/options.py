"""The options of a sync, checked before any work starts."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal

from msgspec import Struct

from floodmark.api.adoption import adoption_of
from floodmark.api.arguments import Names, as_list, as_stages, expect, expect_flags
from floodmark.api.backfilling import BackfillOptions
from floodmark.api.callbacks import OnProgress
from floodmark.api.context import RunContext
from floodmark.api.reconciling import ReconcileOptions
from floodmark.api.recording import Recording
from floodmark.api.syncing import Syncing
from floodmark.api.takeover import TakeoverOptions
from floodmark.config.models import SparkSettings
from floodmark.errors import UsageError
from floodmark.model.run import Stage, Strategy, WorkStage
from floodmark.sync.spark_engine import SparkEngine

Verify = Literal["new", "all"]

_STRATEGIES = ("sequential", "inter-table", "intra-table")


class SyncOptions(Struct, frozen=True, kw_only=True):
    """The arguments of a sync; without a stage it only compares or reconciles."""

    tables: Names = None
    pipelines: Names = None
    stages: Stage | Sequence[Stage] = ()
    strategy: Strategy = "intra-table"
    limit: int | None = None
    verify: Verify | None = None
    repair: bool = False
    reconcile: ReconcileOptions | None = None
    backfill: BackfillOptions | None = None
    takeover: TakeoverOptions | None = None
    adopt: bool = False
    adopt_from: str | None = None
    every: timedelta | None = None

    @property
    def first_stage(self) -> WorkStage:
        """The stage that a table begins with."""
        if self.stages:
            return "extract" if "extract" in self.stages else "load"
        if self.backfill:
            return "extract"
        return "verify" if self.verify else "reconcile"

    @property
    def given(self) -> dict[str, Any]:
        """The options that are not defaults, as values for JSON."""
        stages = as_stages(self.stages)
        values = {
            "tables": as_list("tables", self.tables),
            "pipelines": as_list("pipelines", self.pipelines),
            "stages": list(stages) if len(stages) == 1 else None,
            "strategy": self.strategy if self.strategy != "intra-table" else None,
            "limit": self.limit,
            "verify": self.verify,
            "reconcile": True if self.reconcile and stages else None,
            **(self.reconcile.given if self.reconcile else {}),
            "repair": self.repair or None,
            **(self.backfill.given if self.backfill else {}),
            **(self.takeover.given if self.takeover else {}),
            "adopt": self.adopt or None,
            "adopt_from": self.adopt_from,
        }
        return {name: value for name, value in values.items() if value not in (None, [])}

    def check(self) -> None:
        """Raise UsageError for arguments of a wrong type, or that contradict each other."""
        stages = as_stages(self.stages)
        expect("strategy", self.strategy, str)
        expect("limit", self.limit, int, optional=True)
        expect("verify", self.verify, str, optional=True)
        expect_flags(adopt=self.adopt, repair=self.repair)
        expect("adopt_from", self.adopt_from, str, optional=True)
        expect("every", self.every, timedelta, optional=True)
        if self.backfill is not None:
            self.backfill.check()
        elif self.takeover is not None:
            self.takeover.check()
        elif not stages and not self.verify and self.reconcile is None:
            raise UsageError("no stage given", hint="pass 'extract', 'load' or both")
        if self.strategy not in _STRATEGIES:
            raise UsageError(
                f"unknown strategy {self.strategy!r}",
                hint=f"known strategies: {', '.join(_STRATEGIES)}",
            )
        if self.limit is not None and (self.limit < 1 or "extract" not in stages):
            raise UsageError(
                f"limit {self.limit} is not a positive number of rows for the extract stage"
            )
        if self.verify not in (None, "new", "all"):
            raise UsageError(f"verify must be 'new' or 'all', not {self.verify!r}")
        if self.repair and not self.verify:
            raise UsageError("repair needs verify: it repairs the rows that are found to differ")
        if self.verify and stages == ("extract",):
            raise UsageError("verify compares loaded rows, and the extract stage loads nothing")
        if self.reconcile is not None:
            self.reconcile.check()
            if stages and set(stages) != {"extract", "load"}:
                raise UsageError("reconcile follows both stages, or none")
        if (self.adopt or self.adopt_from) and stages != ("load",):
            raise UsageError("adopt applies to the load stage only", hint="pass stages=['load']")


def compose(
    options: SyncOptions,
    run: RunContext,
    engine: SparkEngine,
    spark: SparkSettings,
    progress: OnProgress,
    recording: Recording | None = None,
) -> Syncing:
    """Build a sync from its options and the configuration; UsageError if they do not fit."""
    options.check()
    tables = run.selected(options.tables, options.pipelines)
    adopt = options.adopt or options.adopt_from is not None
    if options.adopt_from and len(tables) > 1:
        raise UsageError("adopt_from takes exactly one table", hint="name one table")
    stages, verify = as_stages(options.stages), options.verify
    extract, load = "extract" in stages, "load" in stages
    others = (options.reconcile, options.backfill, options.takeover)
    compares = verify or any(other is not None for other in others)
    return Syncing(
        run=run,
        engine=engine,
        spark=spark,
        tables=tables,
        # An unusable connection raises here, before any work starts.
        sources={t: run.mysql(t.scope) for t in tables} if extract or compares else {},
        targets={t: run.target(t) for t in tables} if load or compares else {},
        strategy=options.strategy,
        limit=options.limit,
        extract=extract,
        load=load,
        verify=verify,
        repair=options.repair,
        reconcile=options.reconcile,
        backfill=options.backfill,
        takeover=options.takeover,
        adoption=adoption_of(run, options.adopt_from) if adopt else None,
        owners={t: run.mysql(t.scope) for t in tables} if adopt else {},
        every_seconds=options.every.total_seconds() if options.every else None,
        progress=progress,
        recording=recording,
    )
