"""Floodmark keeps an analytics warehouse in step with MySQL, driven by watermarks.

    with floodmark.open_project("floodmark.yml") as project:
        result = project.sync()

Every operation is a method of Project, of its `watermarks` or of its `lake`.
"""

from importlib import import_module

from floodmark import errors
from floodmark.errors import (
    AccessDenied,
    BusyError,
    ConfigError,
    DifferenceFound,
    ExitCode,
    FloodmarkError,
    LeaseHeld,
    PartialFailure,
    StateError,
    StorageError,
    UsageError,
)

TYPE_CHECKING = False  # typing takes longer to import than all that a forked command needs
if TYPE_CHECKING:
    from typing import Any

    from floodmark.api.changes import PreparedChange, PreparedSystemChange
    from floodmark.api.drill import DrillResult
    from floodmark.api.lake import CleanResult, Lake, LakeFile
    from floodmark.api.opening import open_project
    from floodmark.api.planning import AdoptPlan, LoadPlan, ReadPlan, TablePlan
    from floodmark.api.project import Project
    from floodmark.api.recovery import RecoveryResult, TableRecovery
    from floodmark.api.results import SyncResult, TableResult
    from floodmark.api.runs import DayOfTable, FoundInRun, RunOfTable, TableHistory
    from floodmark.api.status import TableStatus
    from floodmark.api.tracked_files import TrackedFile
    from floodmark.api.validation import TableValidation, ValidationResult
    from floodmark.api.watermarks import (
        NextStart,
        PruneResult,
        Recovery,
        SystemWatermark,
        WatermarkCopy,
        WatermarkOverview,
        Watermarks,
    )
    from floodmark.checks.check import Check
    from floodmark.model.backfill_result import BackfillResult
    from floodmark.model.failure import Failure
    from floodmark.model.history import RowCount, RowsBefore
    from floodmark.model.manifest import Manifest
    from floodmark.model.notice import Notice
    from floodmark.model.position import KeyScan, Position
    from floodmark.model.reconcile_result import ReconcileResult
    from floodmark.model.reconciliation import FoundKey
    from floodmark.model.run_record import RunNotice, RunRecord, TableRun
    from floodmark.model.schema_change import SchemaDifference
    from floodmark.model.table import TableName
    from floodmark.model.takeover_result import TakeoverResult
    from floodmark.model.verification import (
        DifferingKey,
        NotCompared,
        RowDifference,
        ValueDifference,
        VerificationResult,
    )
    from floodmark.model.watermark import Watermark
    from floodmark.planning.restart import Restart
    from floodmark.state.lake_validation import Findings
    from floodmark.state.last_drill import DrilledTable, LastDrill
    from floodmark.state.lease import LeaseDocument
    from floodmark.state.mirror import MirrorState
    from floodmark.state.mirror_lag import TableLag
    from floodmark.sync.drill import Rehearsal, TableDrill
    from floodmark.sync.progress import Progress

__version__ = "0.1.0"

# Imported when they are first used, so that importing the package takes no time.
_LAZY = {
    "AdoptPlan": "floodmark.api.planning",
    "BackfillResult": "floodmark.model.backfill_result",
    "Check": "floodmark.checks.check",
    "CleanResult": "floodmark.api.lake",
    "DayOfTable": "floodmark.api.runs",
    "DifferingKey": "floodmark.model.verification",
    "DrillResult": "floodmark.api.drill",
    "Failure": "floodmark.model.failure",
    "FoundInRun": "floodmark.api.runs",
    "Findings": "floodmark.state.lake_validation",
    "FoundKey": "floodmark.model.reconciliation",
    "KeyScan": "floodmark.model.position",
    "Lake": "floodmark.api.lake",
    "LakeFile": "floodmark.api.lake",
    "DrilledTable": "floodmark.state.last_drill",
    "LastDrill": "floodmark.state.last_drill",
    "LeaseDocument": "floodmark.state.lease",
    "LoadPlan": "floodmark.api.planning",
    "Manifest": "floodmark.model.manifest",
    "MirrorState": "floodmark.state.mirror",
    "NextStart": "floodmark.api.watermarks",
    "NotCompared": "floodmark.model.verification",
    "Notice": "floodmark.model.notice",
    "Position": "floodmark.model.position",
    "PreparedChange": "floodmark.api.changes",
    "PreparedSystemChange": "floodmark.api.changes",
    "Progress": "floodmark.sync.progress",
    "Project": "floodmark.api.project",
    "PruneResult": "floodmark.api.watermarks",
    "ReadPlan": "floodmark.api.planning",
    "ReconcileResult": "floodmark.model.reconcile_result",
    "Recovery": "floodmark.api.watermarks",
    "RecoveryResult": "floodmark.api.recovery",
    "Rehearsal": "floodmark.sync.drill",
    "Restart": "floodmark.planning.restart",
    "RowCount": "floodmark.model.history",
    "RowDifference": "floodmark.model.verification",
    "RowsBefore": "floodmark.model.history",
    "RunNotice": "floodmark.model.run_record",
    "RunOfTable": "floodmark.api.runs",
    "RunRecord": "floodmark.model.run_record",
    "SchemaDifference": "floodmark.model.schema_change",
    "SyncResult": "floodmark.api.results",
    "SystemWatermark": "floodmark.api.watermarks",
    "TableDrill": "floodmark.sync.drill",
    "TableHistory": "floodmark.api.runs",
    "TableLag": "floodmark.state.mirror_lag",
    "TableName": "floodmark.model.table",
    "TablePlan": "floodmark.api.planning",
    "TableRecovery": "floodmark.api.recovery",
    "TableResult": "floodmark.api.results",
    "TableRun": "floodmark.model.run_record",
    "TableStatus": "floodmark.api.status",
    "TableValidation": "floodmark.api.validation",
    "TakeoverResult": "floodmark.model.takeover_result",
    "TrackedFile": "floodmark.api.tracked_files",
    "ValidationResult": "floodmark.api.validation",
    "ValueDifference": "floodmark.model.verification",
    "VerificationResult": "floodmark.model.verification",
    "Watermark": "floodmark.model.watermark",
    "WatermarkCopy": "floodmark.api.watermarks",
    "WatermarkOverview": "floodmark.api.watermarks",
    "Watermarks": "floodmark.api.watermarks",
    "open_project": "floodmark.api.opening",
}

__all__ = [
    "AccessDenied",
    "AdoptPlan",
    "BackfillResult",
    "BusyError",
    "Check",
    "CleanResult",
    "ConfigError",
    "DayOfTable",
    "DifferenceFound",
    "DifferingKey",
    "DrillResult",
    "DrilledTable",
    "ExitCode",
    "Failure",
    "Findings",
    "FloodmarkError",
    "FoundInRun",
    "FoundKey",
    "KeyScan",
    "Lake",
    "LakeFile",
    "LastDrill",
    "LeaseDocument",
    "LeaseHeld",
    "LoadPlan",
    "Manifest",
    "MirrorState",
    "NextStart",
    "NotCompared",
    "Notice",
    "PartialFailure",
    "Position",
    "PreparedChange",
    "PreparedSystemChange",
    "Progress",
    "Project",
    "PruneResult",
    "ReadPlan",
    "ReconcileResult",
    "Recovery",
    "RecoveryResult",
    "Rehearsal",
    "Restart",
    "RowCount",
    "RowDifference",
    "RowsBefore",
    "RunNotice",
    "RunOfTable",
    "RunRecord",
    "SchemaDifference",
    "StateError",
    "StorageError",
    "SyncResult",
    "SystemWatermark",
    "TableDrill",
    "TableHistory",
    "TableLag",
    "TableName",
    "TablePlan",
    "TableRecovery",
    "TableResult",
    "TableRun",
    "TableStatus",
    "TableValidation",
    "TakeoverResult",
    "TrackedFile",
    "UsageError",
    "ValidationResult",
    "ValueDifference",
    "VerificationResult",
    "Watermark",
    "WatermarkCopy",
    "WatermarkOverview",
    "Watermarks",
    "__version__",
    "errors",
    "open_project",
]


def __getattr__(name: str) -> "Any":
    if name not in _LAZY:
        raise AttributeError(f"module 'floodmark' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
