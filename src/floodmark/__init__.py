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
    from floodmark.api.planning import TablePlan
    from floodmark.api.project import Project, open_project
    from floodmark.api.results import SyncResult, TableResult
    from floodmark.api.validation import TableValidation, ValidationResult
    from floodmark.api.watermarks import TableStatus, Watermarks
    from floodmark.checks.check import Check
    from floodmark.model.notice import Notice
    from floodmark.model.position import Position
    from floodmark.model.table import TableName
    from floodmark.model.watermark import Watermark
    from floodmark.sync.extract import Progress

__version__ = "0.1.0"

# Imported when they are first used, so that importing the package takes no time.
_LAZY = {
    "Check": "floodmark.checks.check",
    "Notice": "floodmark.model.notice",
    "Position": "floodmark.model.position",
    "Progress": "floodmark.sync.extract",
    "Project": "floodmark.api.project",
    "SyncResult": "floodmark.api.results",
    "TableName": "floodmark.model.table",
    "TablePlan": "floodmark.api.planning",
    "TableResult": "floodmark.api.results",
    "TableStatus": "floodmark.api.watermarks",
    "TableValidation": "floodmark.api.validation",
    "ValidationResult": "floodmark.api.validation",
    "Watermark": "floodmark.model.watermark",
    "Watermarks": "floodmark.api.watermarks",
    "open_project": "floodmark.api.project",
}

__all__ = [
    "AccessDenied",
    "BusyError",
    "Check",
    "ConfigError",
    "DifferenceFound",
    "ExitCode",
    "FloodmarkError",
    "LeaseHeld",
    "Notice",
    "PartialFailure",
    "Position",
    "Progress",
    "Project",
    "StateError",
    "StorageError",
    "SyncResult",
    "TableName",
    "TablePlan",
    "TableResult",
    "TableStatus",
    "TableValidation",
    "UsageError",
    "ValidationResult",
    "Watermark",
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
