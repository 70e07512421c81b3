"""Objects in S3, or in any compatible store that supports conditional writes."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from os import environ
from typing import Any

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    GenericError,
    JoinError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import S3Store

from floodmark.errors import (
    AccessDenied,
    ObjectNotFound,
    StorageError,
    StorageUnavailable,
    WriteConflict,
)
from floodmark.storage.objects import ObjectInfo, ObjectStore, StoredObject, check_key, check_prefix

# obstore has the HTTP status and the S3 error code only in its error message.
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>|\(code: (\w+)\)")
_REDIRECT = "Received redirect without LOCATION"
_PASSING = {408, 409, 412, 429}
_PASSING_CODES = {"RequestTimeout", "InternalError", "ServiceUnavailable", "SlowDown"}
_DENIED = {401, 403}
_DENIED_CODES = {"AccessDenied", "ExpiredToken", "InvalidToken", "TokenRefreshRequired"}
_OTHER_REGION_CODES = {"AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
# Domains of regions outside amazonaws.com, by region prefix; obstore does not know them.
_SUFFIXES = {
    "cn-": "amazonaws.com.cn",
    "eu-isoe-": "cloud.adc-e.uk",
    "eusc-": "amazonaws.eu",
    "us-iso-": "c2s.ic.gov",
    "us-isob-": "sc2s.sgov.gov",
    "us-isof-": "csp.hci.ic.gov",
}
_LONGEST_KEY = 1024  # bytes
_NOT_FOUND = (FileNotFoundError, NotFoundError)


class S3ObjectStore(ObjectStore):
    """A bucket, or a prefix of one.

    Credentials are `keys` (access_key_id, secret_access_key, session_token), or those of a
    `profile`; by default those of the AWS credential chain. `setting` is its name in messages.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint: str | None = None,
        region: str | None = None,
        timeout_seconds: float = 30.0,
        profile: str | None = None,
        keys: Mapping[str, str] | None = None,
        setting: str = "lake",
    ) -> None:
        self._bucket = bucket
        self._setting = setting
        self._prefix = prefix.strip("/")
        endpoint = endpoint or _variable("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
        region = region or _variable("AWS_REGION", "AWS_DEFAULT_REGION")
        self._endpoint = endpoint
        settings: dict[str, Any] = {"virtual_hosted_style_request": endpoint is None}
        if endpoint:
            settings["endpoint"] = endpoint
        if keys:
            settings |= keys
        elif profile or "AWS_ACCESS_KEY_ID" not in environ:
            settings["credential_provider"] = provider = _profile_credentials(profile)
            region = region or provider.config.get("region")
        self._region = region or "us-east-1"
        suffix = next((s for start, s in _SUFFIXES.items() if self._region.startswith(start)), None)
        if suffix and not endpoint:
            settings["endpoint"] = f"https://{bucket}.s3.{self._region}.{suffix}"
        try:
            self._store = S3Store(
                bucket,
                prefix=self._prefix or None,
                region=self._region,
                client_options={
                    "allow_http": bool(endpoint and endpoint.startswith("http://")),
                    "timeout": timedelta(seconds=timeout_seconds),
                    "connect_timeout": timedelta(seconds=min(10.0, timeout_seconds)),
                },
                # `storage.retrying` is the only place that retries.
                retry_config={
                    "max_retries": 0,
                    "retry_timeout": timedelta(seconds=timeout_seconds),
                },
                **settings,
            )
        except (BaseError, ValueError) as error:
            raise StorageError(f"{self} cannot be opened: {_first_line(str(error))}") from error

    def get(self, key: str) -> StoredObject:
        """Read an object."""
        with self._translated(key):
            result = obstore.get(self._store, self._checked(key))
            return StoredObject(bytes(result.bytes()), _tag(result.meta["e_tag"]))

    def _checked(self, key: str) -> str:
        length = len(f"{self._prefix}/{check_key(key)}".strip("/").encode())
        if length > _LONGEST_KEY:
            raise StorageError(
                f"the key {self}/{key} has {length:,} bytes; S3 allows at most {_LONGEST_KEY:,}",
                hint="shorten the prefix in the lake's URL, or keep the lake in a local folder",
            )
        return key

    def put(self, key: str, data: bytes) -> str:
        """Write an object, overwriting any other."""
        with self._translated(key):
            return _tag(obstore.put(self._store, self._checked(key), data)["e_tag"])

    def put_if_absent(self, key: str, data: bytes) -> str:
        """Write an object unless the key is taken."""
        with self._translated(key, conditional=True):
            result = obstore.put(self._store, self._checked(key), data, mode="create")
            return _tag(result["e_tag"])

    def put_if_match(self, key: str, data: bytes, etag: str) -> str:
        """Replace the object with this etag."""
        with self._translated(key, conditional=True):
            result = obstore.put(self._store, self._checked(key), data, mode={"e_tag": etag})
            return _tag(result["e_tag"])

    def list_objects(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        """List the objects under a prefix, in key order."""
        with self._translated(prefix):
            check_prefix(prefix)
            for page in obstore.list(self._store, prefix, offset=after or None, chunk_size=1000):
                for meta in page:
                    yield ObjectInfo(meta["path"], meta["size"], meta["last_modified"])

    def list_folders(self, prefix: str) -> list[str]:
        """List the folders directly below a prefix."""
        with self._translated(prefix):
            check_prefix(prefix)
            found = obstore.list_with_delimiter(self._store, prefix)["common_prefixes"]
        return sorted(folder.rstrip("/").rpartition("/")[2] for folder in found)

    def delete(self, key: str) -> None:
        """Remove an object."""
        try:
            with self._translated(key):
                obstore.delete(self._store, self._checked(key))
        except ObjectNotFound:
            pass

    def remove_unfinished(
        self, prefix: str, before: datetime, *, dry_run: bool = False
    ) -> list[str]:
        """Abort old multipart uploads that were never completed; obstore cannot list them."""
        import boto3  # type: ignore[import-untyped]
        from botocore.exceptions import (  # type: ignore[import-untyped]
            BotoCoreError,
            ClientError,
        )

        bucket, endpoint = self._bucket, self._endpoint
        removed = []
        try:
            client = boto3.client("s3", endpoint_url=endpoint, region_name=self._region)
            pages = client.get_paginator("list_multipart_uploads").paginate(
                Bucket=bucket, Prefix="/".join(filter(None, (self._prefix, check_prefix(prefix))))
            )
            for upload in (upload for page in pages for upload in page.get("Uploads", ())):
                if upload["Initiated"] < before:
                    removed.append(upload["Key"])
                    if not dry_run:
                        client.abort_multipart_upload(
                            Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"]
                        )
        except (BotoCoreError, ClientError) as error:
            raise StorageError(f"{self}: unfinished uploads cannot be removed: {error}") from error
        return removed

    def __str__(self) -> str:
        return "s3://" + "/".join(filter(None, (self._bucket, self._prefix)))

    @contextmanager
    def _translated(self, key: str, *, conditional: bool = False) -> Iterator[None]:
        """Translate obstore's errors into ours, by class, status and code."""
        try:
            yield
        except (BaseError, *_NOT_FOUND) as error:
            raise self._our_error(error, f"{self}/{key}", conditional) from error

    def _our_error(self, error: Exception, place: str, conditional: bool) -> StorageError:
        text = str(error)
        found = _STATUS.search(text)
        status = int(found[1]) if found else None
        found = _CODE.search(text)
        code = (found[1] or found[2]) if found else None
        if code == "NoSuchBucket":
            return StorageError(
                f"bucket {self._bucket!r} does not exist",
                hint=f"create it, or correct '{self._setting}:'",
            )
        if conditional and isinstance(error, (AlreadyExistsError, PreconditionError, *_NOT_FOUND)):
            return WriteConflict(f"{place} has changed")
        if isinstance(error, _NOT_FOUND):
            return ObjectNotFound(f"{place} does not exist")
        if code in _OTHER_REGION_CODES or _REDIRECT in text:
            return StorageError(
                f"bucket {self._bucket!r} is in another region",
                hint=f"set 'region' of the {self._setting}",
            )
        refused = isinstance(error, (PermissionDeniedError, UnauthenticatedError))
        if refused or status in _DENIED or code in _DENIED_CODES:
            return AccessDenied(
                f"{place}: access denied",
                hint="check the AWS credentials and the permissions on the bucket",
            )
        if status is None and code is None:
            if isinstance(error, (GenericError, JoinError)):
                return StorageUnavailable(
                    f"{place}: no response",
                    hint=f"check 'endpoint' of the {self._setting}, and the network",
                )
            return StorageError(f"{place}: {_first_line(text)}")
        reason = ", ".join(filter(None, (f"status {status}" if status else None, code)))
        passing = status is not None and (status >= 500 or status in _PASSING)
        if passing or code in _PASSING_CODES:
            return StorageUnavailable(f"{place}: {reason}")
        return StorageError(f"{place}: {reason}")


def _variable(*names: str) -> str | None:
    return next((environ[name] for name in names if environ.get(name)), None)


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def _tag(etag: str | None) -> str:
    if etag is None:
        raise StorageError(
            "the object store returns no ETag",
            hint="conditional writes need one; use another store",
        )
    return etag


def _profile_credentials(profile: str | None) -> Any:
    """Let boto3 find the credentials: profiles, SSO, assumed roles, instance metadata."""
    from botocore.exceptions import BotoCoreError
    from obstore.auth.boto3 import Boto3CredentialProvider

    try:
        if profile is None:
            return Boto3CredentialProvider()
        import boto3

        return Boto3CredentialProvider(boto3.Session(profile_name=profile))
    except (BotoCoreError, ValueError) as error:
        reason = f": {error}" if isinstance(error, BotoCoreError) else ""
        raise AccessDenied(
            f"no AWS credentials found{reason}",
            hint="set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        ) from error
