"""Open the configured object stores."""

import time
from random import Random

from floodmark.config.models import LakeSettings, MirrorSettings, RetrySettings
from floodmark.storage.objects import ObjectStore
from floodmark.storage.retrying import Backoff, RetryingObjectStore


def open_lake(lake: LakeSettings, retries: RetrySettings) -> ObjectStore:
    """Open the lake; import only the kind of store that is configured."""
    store: ObjectStore
    if lake.is_s3:
        from floodmark.storage.s3 import S3ObjectStore

        bucket, _, prefix = lake.url.removeprefix("s3://").partition("/")
        store = S3ObjectStore(bucket, prefix, endpoint=lake.endpoint, region=lake.region)
    else:
        from floodmark.storage.local import LocalObjectStore

        store = LocalObjectStore(lake.url)
    return _retrying(store, retries)


def open_mirror(mirror: MirrorSettings, retries: RetrySettings) -> ObjectStore:
    """Open the mirror, with its own credentials."""
    store: ObjectStore
    if mirror.is_s3:
        from floodmark.storage.s3 import S3ObjectStore

        bucket, _, prefix = mirror.url.removeprefix("s3://").partition("/")
        names = ("access_key_id", "secret_access_key", "session_token")
        secrets = {name: getattr(mirror, name) for name in names}
        store = S3ObjectStore(
            bucket,
            prefix,
            endpoint=mirror.endpoint,
            region=mirror.region,
            profile=mirror.profile,
            keys={name: secret.reveal() for name, secret in secrets.items() if secret},
            setting="mirror",
        )
    else:
        from floodmark.storage.local import LocalObjectStore

        store = LocalObjectStore(mirror.url)
    return _retrying(store, retries)


def _retrying(store: ObjectStore, retries: RetrySettings) -> ObjectStore:
    backoff = Backoff(retries.tries, retries.first_seconds, retries.most_seconds)
    return RetryingObjectStore(store, backoff, sleep=time.sleep, random=Random())  # noqa: S311
