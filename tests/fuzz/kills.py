"""A sync in a process of its own that is killed at some step of its way."""

import signal
from unittest.mock import patch

import processes
from floodmark.api import runner
from floodmark.config.models import LakeSettings, RetrySettings
from floodmark.storage.objects import ObjectStore
from floodmark.storage.opening import open_lake
from floodmark.warehouse.sql_target import SqlTarget
from pipelines import DirectEngine, Pipeline
from processes import Doom, DoomedWrites

TARGET_STEPS = ("prepare", "load", "_load_once")


def killed_sync(pipeline: Pipeline, step: int, moment: str) -> bool:
    """Run a sync that dies before or after a step; whether it came that far."""
    process = processes.start(_sync_and_die, pipeline, step, moment)
    process.join(60)
    assert process.exitcode in (0, -signal.SIGKILL), process.exitcode
    return process.exitcode != 0


def _sync_and_die(pipeline: Pipeline, step: int, moment: str) -> None:
    doom = Doom(step, moment)

    def doomed_lake(lake: LakeSettings, retries: RetrySettings) -> ObjectStore:
        return DoomedWrites(open_lake(lake, retries), doom)

    class DoomedEngine(DirectEngine):
        extract = doom.around(DirectEngine.extract)

    for name in TARGET_STEPS:
        setattr(SqlTarget, name, doom.around(getattr(SqlTarget, name)))
    with patch.object(runner, "open_lake", doomed_lake):
        pipeline.call("sync", "-p", "main", engine=DoomedEngine)
