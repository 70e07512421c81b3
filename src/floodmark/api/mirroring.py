"""Mirror the state of a project."""

from functools import partial

from floodmark.config.loading import LoadedConfig
from floodmark.model.timestamps import utc_now
from floodmark.state.mirror import Mirror
from floodmark.storage.objects import ObjectStore
from floodmark.storage.opening import open_mirror


def open_mirror_of(config: LoadedConfig, lake: ObjectStore) -> Mirror | None:
    """Return the mirror of a configuration, not connected yet; None if there is none."""
    settings = config.mirror
    if settings is None:
        return None
    return Mirror(
        lake,
        partial(open_mirror, settings, config.settings.retries),
        address=settings.url,
        clock=utc_now,
        wait_seconds=settings.wait_seconds,
    )
