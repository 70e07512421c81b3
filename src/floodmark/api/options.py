"""What a sync was asked to do, checked before anything is touched."""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from floodmark.api.adoption import adoption_of
from floodmark.api.callbacks import OnProgress
from floodmark.api.context import Names, RunContext
from floodmark.api.syncing import Syncing
from floodmark.config.models import SparkSettings
from floodmark.errors import UsageError
from floodmark.model.run import Stage, Strategy
from floodmark.sync.spark_engine import SparkEngine

Verify = Literal["new", "all"]

_STRATEGIES = ("sequential", "inter-table", "intra-table")


class SyncOptions(Struct, frozen=True, kw_only=True):
    """The arguments of a sync. Without a stage it only compares."""

    tables: Names = None
    pipelines: Names = None
    stages: Sequence[Stage] = ()
    strategy: Strategy = "intra-table"
    limit: int | None = None
    verify: Verify | None = None
    adopt: bool = False
    adopt_from: str | None = None

    def check(self) -> None:
        """Raise UsageError for arguments that contradict each other."""
        stages = [self.stages] if isinstance(self.stages, str) else list(self.stages)
        if not set(stages) <= {"extract", "load"}:
            raise UsageError(f"stages {stages} are not among 'extract' and 'load'")
        if not stages and not self.verify:
            raise UsageError("no stage was chosen", hint="choose 'extract', 'load' or both")
        if self.strategy not in _STRATEGIES:
            raise UsageError(
                f"unknown strategy {self.strategy!r}", hint=f"there are {', '.join(_STRATEGIES)}"
            )
        if self.limit is not None and (self.limit < 1 or "extract" not in stages):
            raise UsageError(f"limit {self.limit} is not a number of rows for the extract stage")
        if self.verify not in (None, "new", "all"):
            raise UsageError(f"verify is 'new' or 'all', not {self.verify!r}")
        if self.verify and stages == ["extract"]:
            raise UsageError("verify compares what was loaded, and the extract stage loads nothing")
        if (self.adopt or self.adopt_from) and stages != ["load"]:
            raise UsageError("files are adopted by the load stage alone", hint="stages=['load']")


def compose(
    options: SyncOptions,
    run: RunContext,
    engine: SparkEngine,
    spark: SparkSettings,
    progress: OnProgress,
) -> Syncing:
    """From the arguments and the configuration to a sync; UsageError if it cannot be done."""
    options.check()
    tables = run.selected(options.tables, options.pipelines)
    adopt = options.adopt or options.adopt_from is not None
    if options.adopt_from and len(tables) > 1:
        raise UsageError("adopt_from is the folder of one table", hint="name one table")
    extract, load, verify = "extract" in options.stages, "load" in options.stages, options.verify
    return Syncing(
        run=run,
        engine=engine,
        spark=spark,
        tables=tables,
        # A connection that cannot be used is reported before anything is touched.
        sources={t: run.mysql(t.scope) for t in tables} if extract or verify else {},
        targets={t: run.target(t) for t in tables} if load or verify else {},
        strategy=options.strategy,
        limit=options.limit,
        extract=extract,
        load=load,
        verify=verify,
        adoption=adoption_of(run, options.adopt_from) if adopt else None,
        owners={t: run.mysql(t.scope) for t in tables} if adopt else {},
        progress=progress,
    )
