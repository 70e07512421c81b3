"""JSON documents that carry their own checksum.

The checksum covers the content, not the formatting: key order and indentation do not matter. It is
stored under `checksum` in the document itself.
"""

from datetime import datetime
from hashlib import sha256
from threading import Lock
from typing import Any, TypeVar

import msgspec

from floodmark.errors import CorruptDocument
from floodmark.model.timestamps import as_utc

D = TypeVar("D")

# msgspec crashes if several threads convert to a type that it does not know yet.
_CONVERTING = Lock()


def seal(document: msgspec.Struct) -> bytes:
    """Encode a document with its checksum, indented for readability."""
    content = msgspec.to_builtins(document)
    content["checksum"] = _digest(content)
    return msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"


def unseal(data: bytes, kind: type[D] | Any, *, name: str) -> D:
    """Decode the output of `seal`; CorruptDocument if anything is wrong with it."""
    content = read_object(data, name=name)
    try:
        if content.get("checksum") != _digest(content):
            raise CorruptDocument(f"{name} fails its checksum")
        with _CONVERTING:
            document: D = msgspec.convert(content, kind)
    except RecursionError as error:
        raise CorruptDocument(f"{name} is nested too deeply") from error
    except msgspec.ValidationError as error:
        raise CorruptDocument(f"{name} does not match its schema: {error}") from error
    _check_moments(document, name)
    return document


def read_object(data: bytes, *, name: str) -> dict[str, Any]:
    """Read a JSON object from an untrusted source; CorruptDocument if it is not one."""
    try:
        content = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptDocument(f"{name} is not JSON: {error}") from error
    except RecursionError as error:
        raise CorruptDocument(f"{name} is nested too deeply") from error
    if not isinstance(content, dict):
        raise CorruptDocument(f"{name} is not a JSON object")
    return content


def _check_moments(value: object, name: str) -> None:
    """Refuse times without a time zone, and times out of range in UTC."""
    if isinstance(value, datetime):
        try:
            as_utc(value)
        except OverflowError as error:
            raise CorruptDocument(f"{name}: {value.isoformat()} is out of range") from error
        if value.tzinfo is None:
            raise CorruptDocument(f"{name}: {value.isoformat()} has no time zone")
    elif isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            _check_moments(getattr(value, field), name)
    elif isinstance(value, tuple):
        for item in value:
            _check_moments(item, name)


def _digest(content: dict[str, Any]) -> str:
    bare = {key: value for key, value in content.items() if key != "checksum"}
    return sha256(msgspec.json.encode(bare, order="sorted")).hexdigest()
