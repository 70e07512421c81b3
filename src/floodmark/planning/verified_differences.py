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

    Changed rows are read again like stale ones; `version` is the column of their versions.
    """
    keys: dict[str, list[Key]] = {"missing": [], "stale": [], "duplicate": []}
    deleted: list[FoundKey] = []
    for one in verified.keys:
        key = tuple(_value(source, name, text) for name, text in one.key.items())
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
    )


def _value(source: SourceTable, name: str, text: str | None) -> int | str:
    assert text is not None  # a key is never NULL
    return int(text) if key_kind(source.column(name)) == "integer" else text


def _version(source: SourceTable, name: str | None, text: str | None) -> Version:
    if name is None or text is None:
        return None
    column = source.column(name)
    if is_time(column):
        return datetime.fromisoformat(text)
    return int(text) if key_kind(column) == "integer" else text
