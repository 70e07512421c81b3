"""Where the lake and its mirror are, and how often requests are tried again."""

import re
from typing import Literal
from urllib.parse import urlsplit

from msgspec import Struct

from floodmark.config.secret import Secret
from floodmark.config.value_types import Seconds, Text, Tries
from floodmark.errors import ConfigError


class LakeSettings(Struct, frozen=True, kw_only=True):
    """Location of the lake."""

    url: Text
    """`s3://bucket/prefix`, or a folder."""
    endpoint: str | None = None
    """Address of an object store other than AWS."""
    region: str | None = None
    """Region of the bucket."""
    codec: Literal["snappy", "zstd", "gzip"] | None = None
    """Compression of Parquet files. By default `snappy` if a connection is Redshift, whose
    documentation does not list `zstd` in Parquet; else `zstd`."""

    @property
    def is_s3(self) -> bool:
        """Whether the lake is in S3 rather than in a folder."""
        return self.url.startswith("s3://")

    @property
    def outside_aws(self) -> str | None:
        """The endpoint, if it is not one of AWS; Redshift can only read S3 on AWS."""
        host = urlsplit(self.endpoint).hostname if self.endpoint else None
        inside = host is None or re.search(r"(^|\.)amazonaws\.(com|com\.cn|eu)$", host)
        return None if inside else self.endpoint

    def require_s3(self) -> None:
        """Raise ConfigError unless Redshift can read the lake."""
        if not self.is_s3:
            raise ConfigError(
                f"Redshift cannot read the lake in {self.url!r}",
                hint="Redshift needs a lake in S3: lake: s3://bucket/prefix",
            )


class MirrorSettings(Struct, frozen=True, kw_only=True):
    """A second place for the state of all tables: manifests, watermarks and run records."""

    url: Text
    """`s3://bucket/prefix`, or a folder; not in the lake, nor around it."""
    endpoint: str | None = None
    """Address of an object store other than AWS."""
    region: str | None = None
    """Region of the bucket."""
    profile: Text | None = None
    """AWS profile to use, such as one that assumes a role in another account."""
    access_key_id: Secret | None = None
    """Access key, instead of a profile; preferably `${NAME}`."""
    secret_access_key: Secret | None = None
    """Secret of the access key."""
    session_token: Secret | None = None
    """Session token of a temporary access key."""
    wait_seconds: Seconds = 10.0
    """How long a run waits at its end for the last copies. The next run copies the rest."""

    @property
    def is_s3(self) -> bool:
        """Whether the mirror is in S3 rather than in a folder."""
        return self.url.startswith("s3://")


class RetrySettings(Struct, frozen=True, kw_only=True):
    """Retries of requests to the lake."""

    tries: Tries = 3
    """Number of attempts."""
    first_seconds: Seconds = 0.1
    """First delay between attempts, with jitter; it doubles each time."""
    most_seconds: Seconds = 5.0
    """Longest delay."""
