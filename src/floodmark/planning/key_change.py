"""Detect that manifests have incompatible primary keys."""

from collections.abc import Sequence

from floodmark.model.manifest import Chunk, Column, Manifest
from floodmark.planning.value_change import value_change


def key_change(manifests: Sequence[Manifest]) -> tuple[str, str] | None:
    """Return an earlier key and that of the last chunk, if their columns or values differ.

    A type that became narrower was already refused or accepted before the next rows were read;
    unless a reset, which begins an epoch, read all rows again.
    """
    in_order = sorted(manifests, key=lambda manifest: manifest.head)
    chunks = [(m.epoch, m.change) for m in in_order if isinstance(m.change, Chunk)]
    found = [(epoch, chunk) for epoch, chunk in chunks if not chunk.only_columns]
    if not found:
        return None
    last_epoch, last = found[-1]
    now = _key_columns(last)
    reloads = [place for place, (_, chunk) in enumerate(found) if chunk.reload]
    for place, (epoch, chunk) in enumerate(found):
        before = _key_columns(chunk)
        if set(before) != set(now):
            return _names(chunk), _names(last)
        if reloads and place < reloads[-1]:
            continue  # its rows are replaced
        for name, column in now.items():
            old = before[name]
            if old is None or column is None:
                continue  # a manifest without columns
            change = value_change(old, column)
            if change == "unknown" or (change == "perhaps cut" and epoch != last_epoch):
                return f"{_names(chunk)} with {old.type}", f"{_names(last)} with {column.type}"
    return None


def _key_columns(chunk: Chunk) -> dict[str, Column | None]:
    columns = {column.name.lower(): column for column in chunk.columns}
    return {name.lower(): columns.get(name.lower()) for name in chunk.primary_key}


def _names(chunk: Chunk) -> str:
    return f"({', '.join(chunk.primary_key)})" if chunk.primary_key else "nothing"
