"""The UNLOAD command: what may be said in it for Parquet, and the files that it writes."""

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from servers import S3Server
from servers.redshift.copy_command import credentials_keys, text_of, value_of
from servers.redshift.lake_files import key_of, store_of
from servers.redshift.refusals import Refused, syntax_error
from servers.redshift.tokens import Tokens, bracketed, has, tokenize
from servers.redshift.wire import DATA_ROW, ROW_DESCRIPTION, Message, row

_SLICES = 2
_VARBYTE, _NUMERIC = 6551, 1700
_KINDS = {
    16: pa.bool_(), 20: pa.int64(), 21: pa.int16(), 23: pa.int32(), 25: pa.string(),
    700: pa.float32(), 701: pa.float64(), 1043: pa.string(), 1082: pa.date32(),
    1114: pa.timestamp("us"), 3802: pa.string(),
}  # fmt: skip


@dataclass(frozen=True)
class UnloadCommand:
    """An UNLOAD of a query's rows as Parquet, with a manifest."""

    query: str
    place: str
    role: str | None = None
    keys: tuple[str, str] | None = None
    overwrites: bool = False


def parse_unload(tokens: Tokens) -> UnloadCommand:
    """Read an UNLOAD; Refused for what Redshift does not support with Parquet."""
    inside, rest = bracketed(tokens[1:])
    if len(inside) != 1 or not inside[0].startswith("'"):
        raise syntax_error(inside[0] if inside else ")")
    query = text_of(inside[0])
    words = tokenize(query)
    if words[:1] != ("SELECT",):
        raise Refused("UNLOAD takes a SELECT only", "42601")
    if words[-2:-1] == ("LIMIT",):
        raise Refused("Limit clause is not supported")
    if rest[:1] != ("TO",) or not rest[1].startswith("'s3://"):
        raise syntax_error(rest[0] if rest else "end of input")
    options = _options(rest[2:])
    if "PARQUET" not in options or "MANIFEST" not in options:
        raise Refused("the stand-in writes PARQUET with a MANIFEST only")
    role, credentials = options.get("IAM_ROLE"), options.get("CREDENTIALS")
    if (role is None) == (credentials is None):
        raise Refused("CREDENTIALS argument is required but not found or given twice", "42601")
    keys = credentials_keys(credentials) if credentials else None
    return UnloadCommand(query, text_of(rest[1]), role, keys, "ALLOWOVERWRITE" in options)


def _options(tokens: Tokens) -> dict[str, str]:
    options: dict[str, str] = {}
    while tokens:
        word, tokens = tokens[0], tokens[1:]
        if word == "FORMAT":
            tokens = tokens[tokens[:1] == ("AS",) :]
            word, tokens = (tokens[0], tokens[1:]) if tokens else ("end of input", ())
        if word in ("IAM_ROLE", "CREDENTIALS"):
            options[word], tokens = value_of(word, tokens[:1]), tokens[1:]
        elif word == "MAXFILESIZE":
            if not has(tokens[1:2], "MB") or not 5 <= float(tokens[0]) <= 6200:
                raise Refused("MAXFILESIZE is between 5 MB and 6.2 GB", "22023")
            tokens = tokens[2:]
        elif word in ("PARQUET", "MANIFEST", "ALLOWOVERWRITE"):
            options[word] = ""
        else:
            raise Refused(f"{word} is not supported for UNLOAD to PARQUET")
    return options


def rows_of(answer: Sequence[Message]) -> pa.Table:
    """A query's rows; Refused for a type that Parquet does not take."""
    (described,) = [message.body for message in answer if message.kind == ROW_DESCRIPTION]
    rows = [row(message.body) for message in answer if message.kind == DATA_ROW]
    arrays = []
    names = []
    for place, (name, kind, size) in enumerate(_columns(described)):
        texts = [values[place] for values in rows]
        names.append(name)
        arrays.append(_array(kind, size, texts))
    if len(set(names)) < len(names):
        raise Refused("UNLOAD to PARQUET needs unique names of columns")
    return pa.table(arrays, names=names)


def write_files(
    command: UnloadCommand, rows: pa.Table, server: S3Server, role: str, *, permitted: bool
) -> None:
    """Write a file for each slice, and the manifest."""
    if command.role not in (None, role):
        raise Refused(f"User is not authorized to assume IAM Role {command.role}", "XX000")
    store = store_of(server, command.keys or (server.access_key, server.secret_key), command.place)
    if not permitted:
        raise Refused("S3ServiceException:Access Denied,Status 403,Error AccessDenied", "XX000")
    prefix = key_of(command.place)
    if not command.overwrites and any(obstore.list(store, prefix)):
        raise Refused("Specified unload destination on S3 is not empty.", "XX000")
    if not rows.num_rows:
        return
    entries = []
    size = -(-rows.num_rows // _SLICES)
    for number in range(_SLICES):
        buffer = BytesIO()
        # How timestamps are written is not documented: the form that is harder to read.
        pq.write_table(
            rows.slice(number * size, size),
            buffer,
            version="1.0",
            compression="snappy",
            use_deprecated_int96_timestamps=True,
            store_schema=False,
        )
        name = f"{number:04d}_part_00.parquet"
        obstore.put(store, f"{prefix}{name}", buffer.getvalue())
        meta = {"content_length": len(buffer.getvalue())}
        entries.append({"url": f"{command.place}{name}", "meta": meta})
    obstore.put(store, f"{prefix}manifest", json.dumps({"entries": entries}).encode())


def _columns(body: bytes) -> list[tuple[str, int, int]]:
    """Name, type and modifier of each column."""
    found, place = [], 2
    for _ in range(struct.unpack_from("!h", body)[0]):
        end = body.index(b"\0", place)
        name = body[place:end].decode()
        kind, _, size, _ = struct.unpack_from("!Ihih", body, end + 7)
        found.append((name, kind, size))
        place = end + 19
    return found


def _array(kind: int, size: int, texts: list[str | None]) -> pa.Array:
    if kind == _VARBYTE:
        raise Refused("UNLOAD to PARQUET does not support columns of type VARBYTE")
    if kind == _NUMERIC:
        digits, scale = ((size - 4) >> 16, (size - 4) & 0xFFFF) if size > 0 else (38, 0)
        return pa.array(texts, pa.string()).cast(pa.decimal128(digits, scale))
    if kind not in _KINDS:
        raise Refused(f"the stand-in unloads no type {kind}")
    wanted = _KINDS[kind]
    read: dict[pa.DataType, Callable[[str], Any]] = {
        pa.bool_(): lambda text: text == "t",
        pa.timestamp("us"): datetime.fromisoformat,
    }
    if wanted in read:
        return pa.array([None if t is None else read[wanted](t) for t in texts], wanted)
    array = pa.array(texts, pa.string())
    if pa.types.is_floating(wanted):
        return pa.array([None if t is None else float(t) for t in texts], wanted)
    return pc.cast(array, wanted)
