"""Values that Redshift cannot hold, according to its documentation."""

from floodmark.model.load import TargetTable
from floodmark.warehouse.redshift.types import LONGEST_VARCHAR, SUPER, redshift_type
from floodmark.warehouse.unsupported_values import (
    UnsupportedValue,
    of_any_length,
    read_json,
    too_long,
    too_long_together,
    unfit,
    zero_characters,
)

_LONGEST_ROW = 4 * 1024 * 1024


def redshift_unsupported_values(table: TargetTable, *, json: str) -> list[UnsupportedValue]:
    """Return every kind of value that Redshift refuses; `json` is the type for JSON."""
    lengths = of_any_length(table, [column.name for column in table.columns])
    kinds = {name: redshift_type(table.column(name)) for name in lengths}  # as it is staged
    documents = [c.name for c in table.columns if redshift_type(c, json=json) == SUPER]
    return [
        *zero_characters(table, "Redshift"),
        *(too_long(name, _size(kind), kind) for name, kind in kinds.items()),
        *(unfit(name, "is not JSON that SUPER can hold", refused_by_super) for name in documents),
        *too_long_together(lengths, _LONGEST_ROW, "a row of more than 4 MB is too long for COPY"),
    ]


def refused_by_super(text: str) -> bool:
    """Whether SUPER refuses a text; MariaDB accepts text that is not valid JSON.

    SUPER allows no duplicate attributes, and no string longer than the longest VARCHAR.
    """
    try:
        return _too_long(read_json(text, attributes=_attributes))
    except (ValueError, RecursionError):
        return True


def _attributes(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("duplicate attribute")
    return found


def _too_long(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_too_long, value.values()))
    if isinstance(value, list):
        return any(map(_too_long, value))
    return isinstance(value, str) and len(value.encode(errors="replace")) > LONGEST_VARCHAR


def _size(kind: str) -> int:
    return int(kind.partition("(")[2].removesuffix(")"))
