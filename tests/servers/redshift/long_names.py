"""Names of up to 127 bytes, where PostgreSQL keeps 63: by a shorter one, and back.

A short name ends in a hash of the long one, so that no other name and no value is like it.
"""

from hashlib import md5

_MOST, _POSTGRES = 127, 63
_KNOWN: dict[str, str] = {}


def shortened(name: str) -> str:
    """The name under which PostgreSQL keeps one, without quotes; Redshift cuts it at 127 bytes."""
    data = name.encode()[:_MOST]
    if len(data) <= _POSTGRES:
        return name
    start = data[:30].decode(errors="ignore")
    short = f"{start}~{md5(data, usedforsecurity=False).hexdigest()[:30]}"
    _KNOWN[short] = data.decode(errors="ignore")
    return short


def shortened_if_known(text: str) -> str:
    """A text that names something, as it is kept; any other text as it is."""
    return shortened(text) if text in _KNOWN.values() else text


def restored(data: bytes) -> bytes:
    """An answer's value, with the long name if it is a short one."""
    long = _KNOWN.get(data.decode(errors="replace")) if b"~" in data else None
    return data if long is None else long.encode()


def restored_in(text: bytes) -> bytes:
    """An error's text, with long names in place of short ones."""
    for short, long in _KNOWN.items():
        text = text.replace(short.encode(), long.encode())
    return text
