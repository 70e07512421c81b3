"""Write files to S3 by multipart upload."""

from datetime import timedelta
from typing import TYPE_CHECKING, Self

import obstore
from obstore.store import S3Store

from floodmark.config.models import LakeSettings
from floodmark.errors import StorageError
from floodmark.storage.copies import GrowingCopy
from floodmark.storage.s3 import S3ObjectStore
from floodmark.worker.lake_writer import LakeFile

if TYPE_CHECKING:
    from obstore import WritableFile

_PART_BYTES = 8 * 1024 * 1024
_PARTS_AT_ONCE = 3


class S3Uploads(S3ObjectStore):
    """A bucket with multipart uploads. An object is visible only when its upload is complete."""

    @classmethod
    def to(cls, lake: LakeSettings) -> Self:
        """Open the lake for uploads."""
        bucket, _, prefix = lake.url.removeprefix("s3://").partition("/")
        uploads = cls(bucket, prefix, endpoint=lake.endpoint, region=lake.region)
        uploads._try_parts_again()
        return uploads

    def start(self, key: str) -> "WritableFile":
        """Start an upload."""
        with self._translated(key):
            return obstore.open_writer(
                self._store,
                self._checked(key),
                buffer_size=_PART_BYTES,
                max_concurrency=_PARTS_AT_ONCE,
            )

    def append(self, key: str, upload: "WritableFile", data: bytes) -> None:
        """Append to an upload."""
        with self._translated(key):
            upload.write(data)

    def finish(self, key: str, upload: "WritableFile", size: int) -> str:
        """Complete an upload, check the object's size, and return its etag."""
        with self._translated(key):
            upload.close()
            facts = obstore.head(self._store, key)
        if facts["size"] != size or facts["e_tag"] is None:
            raise StorageError(f"{self}/{key} has {facts['size']} bytes, not {size}")
        return facts["e_tag"]

    def _try_parts_again(self) -> None:
        """Retry single parts, so that the window is not read again."""
        self._store = S3Store(
            config=self._store.config,  # with the bucket
            prefix=self._prefix or None,
            client_options=self._store.client_options,
            credential_provider=self._store.credential_provider,
            retry_config={"max_retries": 5, "retry_timeout": timedelta(minutes=3)},
        )


class UploadedFile(LakeFile):
    """A file in S3, and its copy in a folder on this machine, if there is one."""

    def __init__(self, uploads: S3Uploads, key: str, copies: str | None = None) -> None:
        super().__init__()
        self._uploads = uploads
        self._key = key
        self._copy = GrowingCopy(copies, key) if copies else None
        self._upload: WritableFile | None = uploads.start(key)

    def finish(self) -> str:
        """Complete the upload."""
        assert self._upload is not None
        etag = self._uploads.finish(self._key, self._upload, self.size)
        if self._copy:
            self._copy.finish()
        return etag

    def abandon(self) -> None:
        """Leave the upload incomplete; 'watermark prune' removes its parts."""
        self._upload = None
        if self._copy:
            self._copy.abandon()

    def _append(self, data: bytes) -> None:
        assert self._upload is not None
        self._uploads.append(self._key, self._upload, data)
        if self._copy:
            self._copy.append(data)
