"""Check the places of the lake and of its mirror: folders, buckets and prefixes."""

import os
import re

from msgspec import structs

from floodmark.config.models import LakeSettings, MirrorSettings
from floodmark.errors import ConfigError

_ENDPOINT = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]+/?")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{2,}")
_ONLY_S3 = ("endpoint", "region", "profile", "access_key_id", "secret_access_key", "session_token")


def located_mirror(
    given: MirrorSettings | str | None, lake: LakeSettings, folder: str
) -> MirrorSettings | None:
    """Return the settings of the mirror; ConfigError if it is invalid, or overlaps the lake."""
    if given is None:
        return None
    mirror = MirrorSettings(url=given) if isinstance(given, str) else given
    if mirror.is_s3:
        check_s3("mirror", mirror.url, mirror.endpoint)
        _check_keys(mirror)
    else:
        mirror = structs.replace(mirror, url=folder_path("mirror", mirror.url, folder))
        if names := [name for name in _ONLY_S3 if getattr(mirror, name) is not None]:
            raise ConfigError(f"mirror: {names[0]!r} is not allowed for a folder")
    if _overlap(mirror, lake):
        raise ConfigError(
            f"mirror: {mirror.url!r} is in the lake {lake.url!r}, or around it",
            hint="a mirror must survive the loss of the lake: use another bucket or folder",
        )
    return mirror


def folder_path(key: str, url: str, folder: str) -> str:
    """Return the absolute path of a folder; ConfigError if there cannot be one."""
    # Messages show only the scheme: the rest may contain a password.
    scheme, colon, _ = url.partition(":")
    if "://" in url or (colon and scheme.lower() == "s3"):
        raise ConfigError(
            f"{key}: {scheme + colon!r} is not supported", hint="use s3://bucket/prefix or a folder"
        )
    if not url:
        raise ConfigError(f"{key}: '' is not a folder", hint="use s3://bucket/prefix or a folder")
    path = os.path.normpath(os.path.join(folder, os.path.expanduser(url)))
    above = path
    while not os.path.lexists(above) and above != os.path.dirname(above):
        above = os.path.dirname(above)
    if not os.path.isdir(above):
        raise ConfigError(
            f"{key}: {above} is not a folder",
            hint=f"set '{key}:' to a folder, or to a path where one can be created",
        )
    return path


def check_s3(key: str, url: str, endpoint: str | None) -> None:
    """Raise ConfigError for an invalid bucket, prefix or endpoint; never show credentials."""
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise ConfigError(
            f"{key}: not a valid bucket name",
            hint="write s3://bucket/prefix; credentials come from the AWS profile or environment",
        )
    parts = prefix.strip("/").split("/")
    if prefix and any(not part.isprintable() or part in ("", ".", "..") for part in parts):
        raise ConfigError(f"{key}: {prefix!r} is not a valid prefix")
    if endpoint is not None and not _ENDPOINT.fullmatch(endpoint):
        raise ConfigError(
            f"{key}.endpoint: not a valid address",
            hint="write it as http://host:port, without credentials",
        )


def _check_keys(mirror: MirrorSettings) -> None:
    if (mirror.access_key_id is None) != (mirror.secret_access_key is None):
        raise ConfigError("mirror: 'access_key_id' and 'secret_access_key' belong together")
    if mirror.session_token is not None and mirror.access_key_id is None:
        raise ConfigError("mirror: 'session_token' needs 'access_key_id'")
    if mirror.profile is not None and mirror.access_key_id is not None:
        raise ConfigError("mirror: use either 'profile' or 'access_key_id'")


def _overlap(mirror: MirrorSettings, lake: LakeSettings) -> bool:
    """Return whether one place is in the other."""
    if mirror.is_s3 != lake.is_s3 or mirror.endpoint != lake.endpoint:
        return False
    pair = []
    for url in (mirror.url, lake.url):
        path = url.removeprefix("s3://") if mirror.is_s3 else os.path.realpath(url)
        pair.append(f"{path.rstrip('/')}/")
    return pair[0].startswith(pair[1]) or pair[1].startswith(pair[0])
