"""Turn what a verification found into differences that a reconciliation repairs."""

from datetime import datetime

from floodmark.model.cursor import is_time, key_kind
from floodmark.model.reconciliation import FoundKey, IntervalDifferences, Key, Version
from floodmark.model.schema import SourceTable
from floodmark.model.verification import VerificationResult


def to_repair(
    verified: VerificationResult, source: SourceTable, version: str | None
) -> IntervalDifferences:
    """Return the rows to read again, and the rows that only the target has.

    Changed rows are read again like stale ones; `version` is the column of their versions. Rows of
    the target without a key cannot be repaired.
    """
    keys: dict[str, list[Key]] = {"missing": [], "stale": [], "duplicate": []}
    deleted: list[FoundKey] = []
    unkeyed = 0
    for one in verified.keys:
        values = [_value(source, name, text) for name, text in one.key.items() if text is not None]
        if len(values) < len(one.key):
            unkeyed += 1
            continue
        key = tuple(values)
        if one.kind == "extra":
            deleted.append(FoundKey(key, _version(source, version, one.version)))
        else:
            keys["stale" if one.kind == "changed" else one.kind].append(key)
    return IntervalDifferences(
        through=None,
        source_rows=verified.rows,
        deleted=deleted,
        missing=keys["missing"],
        stale=keys["stale"],
        duplicate=keys["duplicate"],
        unkeyed=unkeyed,
    )


def _value(source: SourceTable, name: str, text: str) -> int | str:
    column = source.column(name)
    if key_kind(column) == "integer" or column.data_type == "bit":
        return int(text == "True") if text in ("True", "False") else int(text)
    return text


def _version(source: SourceTable, name: str | None, text: str | None) -> Version:
    if name is None or text is None:
        return None
    column = source.column(name)
    if is_time(column):
        return datetime.fromisoformat(text)
    return int(text) if key_kind(column) == "integer" else text
