"""What a COPY reads from S3: its manifest, and the files that it names."""

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import obstore
import pyarrow.parquet as pq
from obstore.exceptions import BaseError, NotFoundError
from obstore.store import S3Store

from servers import REGION, S3Server
from servers.redshift.copy_command import CopyCommand
from servers.redshift.faults import ELSEWHERE
from servers.redshift.refusals import CopyRefused, Refused

_CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP")
_PAGE_V2 = b"\x15\x06"


@dataclass(frozen=True)
class File:
    """One Parquet file."""

    url: str
    parquet: pq.ParquetFile


def read_files(
    command: CopyCommand, server: S3Server, role: str, elsewhere: Collection[str]
) -> Iterator[File]:
    """Read the files one after another; Refused if the manifest or a file is not as it must be."""
    if command.role not in (None, role):
        raise Refused(f"User is not authorized to assume IAM Role {command.role}", "XX000")
    keys = command.keys or (server.access_key, server.secret_key)
    if _bucket(command.manifest) in elsewhere:
        raise Refused(ELSEWHERE.message, ELSEWHERE.code)
    manifest = _get(server, keys, command.manifest)
    if manifest is None:
        raise Refused("Problem reading manifest file - S3ServiceException:NoSuchKey", "XX000")
    for entry in _entries(manifest):
        url, size = entry["url"], _size(entry)
        data = _get(server, keys, url)
        if data is None:
            if entry.get("mandatory") is True:
                raise CopyRefused("The specified key does not exist", file=url)
            continue
        if len(data) != size:
            raise CopyRefused(
                f"the manifest says {size} bytes, but there are {len(data)}", file=url
            )
        file = File(url, pq.ParquetFile(BytesIO(data)))
        _check_pages(file, data)
        yield file


def _check_pages(file: File, data: bytes) -> None:
    """CopyRefused for a codec that no page of Redshift's documentation names, and data pages v2."""
    metadata = file.parquet.metadata
    for group in range(metadata.num_row_groups):
        for place in range(metadata.num_columns):
            column = metadata.row_group(group).column(place)
            if column.compression not in _CODECS:
                raise CopyRefused(f"Unsupported compression {column.compression}", file=file.url)
            # A page's header begins with its type: field 1, a number in zigzag.
            if data[column.data_page_offset : column.data_page_offset + 2] == _PAGE_V2:
                raise CopyRefused("Unsupported data page version", file=file.url)


def store_of(server: S3Server, keys: tuple[str, str], url: str) -> S3Store:
    """The bucket of an address."""
    return S3Store(
        _bucket(url),
        endpoint=server.endpoint,
        region=REGION,
        access_key_id=keys[0],
        secret_access_key=keys[1],
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )


def key_of(url: str) -> str:
    """What follows the bucket."""
    return url.removeprefix("s3://").partition("/")[2]


def _bucket(url: str) -> str:
    return url.removeprefix("s3://").partition("/")[0]


def _entries(manifest: bytes) -> list[dict[str, Any]]:
    try:
        entries = json.loads(manifest)["entries"]
    except (ValueError, KeyError, TypeError):
        entries = None
    if not entries or not all(isinstance(e, dict) and "url" in e for e in entries):
        raise Refused("The manifest is not valid JSON with 'entries'", "XX000")
    return list(entries)


def _size(entry: dict[str, Any]) -> int:
    size = entry.get("meta", {}).get("content_length")
    if not isinstance(size, int):
        raise Refused(
            "File entry does not have 'meta' key with 'content_length'", "XX000", entry["url"]
        )
    return size


def _get(server: S3Server, keys: tuple[str, str], url: str) -> bytes | None:
    try:
        return bytes(obstore.get(store_of(server, keys, url), key_of(url)).bytes())
    except (FileNotFoundError, NotFoundError):
        return None
    except BaseError as error:
        raise Refused("S3ServiceException: Access Denied, Status 403", "XX000") from error
