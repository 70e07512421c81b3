"""Open the configured object store."""

import time
from random import Random

from floodmark.config.models import LakeSettings, RetrySettings
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
    backoff = Backoff(retries.tries, retries.first_seconds, retries.most_seconds)
    return RetryingObjectStore(store, backoff, sleep=time.sleep, random=Random())  # noqa: S311
