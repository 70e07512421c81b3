"""JSON documents that carry their own checksum.

The checksum covers the document's content, not its spelling: keys may be in any order, and a
document may be indented or not. It stands under `checksum` in the document itself.
"""

from hashlib import sha256
from typing import Any, TypeVar

import msgspec

from floodmark.errors import CorruptDocument

D = TypeVar("D")


def seal(document: msgspec.Struct) -> bytes:
    """Encode a document with its checksum, indented for people."""
    content = msgspec.to_builtins(document)
    content["checksum"] = _digest(content)
    return msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"


def unseal(data: bytes, kind: type[D] | Any, *, name: str) -> D:
    """Decode what `seal` made; CorruptDocument says what is wrong with anything else."""
    try:
        content = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptDocument(f"{name} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise CorruptDocument(f"{name} is not a JSON object")
    if content.get("checksum") != _digest(content):
        raise CorruptDocument(f"{name} fails its checksum")
    try:
        document: D = msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise CorruptDocument(f"{name} does not fit its schema: {error}") from error
    return document


def _digest(content: dict[str, Any]) -> str:
    bare = {key: value for key, value in content.items() if key != "checksum"}
    return sha256(msgspec.json.encode(bare, order="sorted")).hexdigest()
