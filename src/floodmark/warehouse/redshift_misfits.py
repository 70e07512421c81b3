"""What Redshift cannot hold, by its documentation."""

from floodmark.model.load import TargetTable
from floodmark.warehouse.misfits import (
    Misfit,
    of_any_length,
    read_json,
    too_long,
    too_long_together,
    unfit,
    zero_characters,
)
from floodmark.warehouse.redshift_types import SUPER, redshift_type

_LONGEST_ROW = 4 * 1024 * 1024


def redshift_misfits(table: TargetTable, *, json: str) -> list[Misfit]:
    """Every kind of value that Redshift refuses; `json` is what JSON becomes there."""
    lengths = of_any_length(table, [column.name for column in table.columns])
    kinds = {name: redshift_type(table.column(name)) for name in lengths}  # as it is staged
    documents = [c.name for c in table.columns if redshift_type(c, json=json) == SUPER]
    return [
        *zero_characters(table, "Redshift"),
        *(too_long(name, _size(kind), kind) for name, kind in kinds.items()),
        *(unfit(name, "is no JSON that SUPER can hold", refused_by_super) for name in documents),
        *too_long_together(lengths, _LONGEST_ROW, "a row of more than 4 MB is too long for COPY"),
    ]


def refused_by_super(text: str) -> bool:
    """Whether a text is no JSON: what MariaDB lets through is not always JSON."""
    try:
        read_json(text)
    except (ValueError, RecursionError):
        return True
    return False


def _size(kind: str) -> int:
    return int(kind.partition("(")[2].removesuffix(")"))
