"""Values of MySQL and MariaDB that PostgreSQL cannot hold."""

import json
import re
from collections.abc import Sequence
from decimal import Decimal, DecimalException

from floodmark.model.load import TargetTable
from floodmark.warehouse.postgres.types import postgres_type
from floodmark.warehouse.unsupported_values import (
    UnsupportedValue,
    of_any_length,
    read_json,
    too_long_together,
    unfit,
    zero_characters,
)

# An index row has up to 2,704 bytes, including some overhead.
_LONGEST_KEY = 2600
# An escaped zero character, not an escaped backslash followed by digits.
_ZERO = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_MOST_DIGITS = 131_072  # of a NUMERIC, before the point
_MOST_DECIMALS = 16_383  # and after it


def postgres_unsupported_values(table: TargetTable) -> list[UnsupportedValue]:
    """Return every kind of value that PostgreSQL refuses."""
    documents = [c.name for c in table.columns if postgres_type(c) == "jsonb"]
    return [
        *zero_characters(table, "PostgreSQL"),
        *(unfit(name, "is not JSON that JSONB can hold", refused_by_jsonb) for name in documents),
        *_long_keys(table),
    ]


def refused_by_jsonb(text: str) -> bool:
    """Whether JSONB refuses a text; MariaDB accepts text that is not valid JSON."""
    try:
        written = json.dumps(read_json(text, _number), ensure_ascii=False)
        written.encode()  # half of a surrogate pair is not a character
    except (ValueError, DecimalException, RecursionError):
        return True
    return _ZERO.search(written) is not None


def _number(text: str) -> str:
    number = Decimal(text)
    _, _, exponent = number.as_tuple()
    if number.adjusted() >= _MOST_DIGITS or int(exponent) < -_MOST_DECIMALS:
        raise ValueError(text)
    return text


def _long_keys(table: TargetTable) -> Sequence[UnsupportedValue]:
    return too_long_together(
        of_any_length(table, table.primary_key),
        _LONGEST_KEY,
        f"a key of more than {_LONGEST_KEY:,} bytes is too long for PostgreSQL's index",
    )
