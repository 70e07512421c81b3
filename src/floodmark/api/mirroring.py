"""Mirror the state of a project."""

from floodmark.config.loading import LoadedConfig
from floodmark.config.models import MirrorSettings
from floodmark.model.timestamps import utc_now
from floodmark.state.mirror import Mirror
from floodmark.state.mirrored_store import MirroredObjectStore
from floodmark.storage.objects import ObjectStore
from floodmark.storage.opening import open_mirror


def mirrored(
    config: LoadedConfig, settings: MirrorSettings, lake: ObjectStore
) -> tuple[MirroredObjectStore, Mirror]:
    """Return the lake with its mirror, and the mirror, which is not connected yet."""

    def opened() -> ObjectStore:
        config.check_mirror()
        return open_mirror(settings, config.settings.retries)

    mirror = Mirror(
        lake,
        opened,
        address=settings.url,
        clock=utc_now,
        wait_seconds=settings.wait_seconds,
    )
    return MirroredObjectStore(lake, mirror), mirror
