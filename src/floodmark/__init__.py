"""Floodmark keeps an analytics warehouse in step with MySQL, driven by watermarks.

with floodmark.open_project("floodmark.yml") as project:
result = project.sync()
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from floodmark.api.changes import PreparedChange, PreparedSystemChange
    from floodmark.api.drill import DrillResult
    from floodmark.api.lake import CleanResult, Lake, LakeFile
    from floodmark.api.planning import TablePlan
    from floodmark.api.project import Project, open_project
    from floodmark.api.recovery import RecoveryResult, TableRecovery
    from floodmark.api.results import SyncResult, TableResult
    from floodmark.api.runs import TableHistory
    from floodmark.api.status import TableStatus
    from floodmark.api.tracked_files import TrackedFile
    from floodmark.api.validation import TableValidation, ValidationResult
    from floodmark.api.watermarks import (
        NextStart,
        PruneResult,
        Recovery,
        SystemWatermark,
        WatermarkCopy,
        Watermarks,
    )
    from floodmark.checks.check import Check
    from floodmark.model.manifest import Manifest
    from floodmark.model.notice import Notice
    from floodmark.model.position import Position
    from floodmark.model.reconcile_result import ReconcileResult
    from floodmark.model.run_record import RunRecord
    from floodmark.model.table import TableName
    from floodmark.model.watermark import Watermark
    from floodmark.state.last_drill import LastDrill
    from floodmark.sync.progress import Progress

__version__ = "0.1.0"

# Imported when they are first used, so that importing the package takes no time.
_LAZY = {
    "Check": "floodmark.checks.check",
    "CleanResult": "floodmark.api.lake",
    "DrillResult": "floodmark.api.drill",
    "Lake": "floodmark.api.lake",
    "LakeFile": "floodmark.api.lake",
    "LastDrill": "floodmark.state.last_drill",
    "Manifest": "floodmark.model.manifest",
    "NextStart": "floodmark.api.watermarks",
    "Notice": "floodmark.model.notice",
    "Position": "floodmark.model.position",
    "PreparedChange": "floodmark.api.changes",
    "PreparedSystemChange": "floodmark.api.changes",
    "Progress": "floodmark.sync.extract",
    "Project": "floodmark.api.project",
    "PruneResult": "floodmark.api.watermarks",
    "ReconcileResult": "floodmark.model.reconcile_result",
    "Recovery": "floodmark.api.watermarks",
    "RecoveryResult": "floodmark.api.recovery",
    "RunRecord": "floodmark.model.run_record",
    "SyncResult": "floodmark.api.results",
    "SystemWatermark": "floodmark.api.watermarks",
    "TableHistory": "floodmark.api.runs",
    "TableName": "floodmark.model.table",
    "TablePlan": "floodmark.api.planning",
    "TableRecovery": "floodmark.api.recovery",
    "TableResult": "floodmark.api.results",
    "TableStatus": "floodmark.api.status",
    "TableValidation": "floodmark.api.validation",
    "TrackedFile": "floodmark.api.tracked_files",
    "ValidationResult": "floodmark.api.validation",
    "Watermark": "floodmark.model.watermark",
    "WatermarkCopy": "floodmark.api.watermarks",
    "Watermarks": "floodmark.api.watermarks",
    "open_project": "floodmark.api.project",
}

__all__ = [
    "AccessDenied",
    "BusyError",
    "Check",
    "CleanResult",
    "ConfigError",
    "DifferenceFound",
    "DrillResult",
    "ExitCode",
    "FloodmarkError",
    "Lake",
    "LakeFile",
    "LastDrill",
    "LeaseHeld",
    "Manifest",
    "NextStart",
    "Notice",
    "PartialFailure",
    "Position",
    "PreparedChange",
    "PreparedSystemChange",
    "Progress",
    "Project",
    "PruneResult",
    "ReconcileResult",
    "Recovery",
    "RecoveryResult",
    "RunRecord",
    "StateError",
    "StorageError",
    "SyncResult",
    "SystemWatermark",
    "TableHistory",
    "TableName",
    "TablePlan",
    "TableRecovery",
    "TableResult",
    "TableStatus",
    "TableValidation",
    "TrackedFile",
    "UsageError",
    "ValidationResult",
    "Watermark",
    "WatermarkCopy",
    "Watermarks",
    "__version__",
    "errors",
    "open_project",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'floodmark' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
