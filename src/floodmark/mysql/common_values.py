"""Find whether all rows of a range have the same value in a column."""

from floodmark.model.extraction import ColumnPlan
from floodmark.model.schema import SourceColumn, SourceTable
from floodmark.mysql.connection import MysqlSession, query
from floodmark.mysql.predicates import relation
from floodmark.mysql.types import quote_name

_INTEGER_BYTES = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}


class Different(Exception):
    """Rows have different values."""


class NoRows(Exception):
    """There are no rows."""


def common_value(
    session: MysqlSession, table: SourceTable, column: ColumnPlan, where: str
) -> str | None:
    """Return the value that all rows have, byte for byte, as text; bytes as hexadecimal digits.

    Raise Different if they have more than one, NoRows if there are none. Values are compared as a
    chunk would have them, so for a hashed column the hashes.
    """
    text = f"CONVERT(CONCAT({column.expression}) USING utf8mb4)"
    digits = f"HEX({column.expression if column.arrow == 'binary' else text})"
    found = query(session, f"SELECT {digits} FROM {relation(table)} WHERE {where} LIMIT 1")  # noqa: S608
    if not found:
        raise NoRows
    first = found[0][0]
    literal = "NULL" if first is None else f"'{first}'"
    other = f"({where}) AND NOT ({digits} <=> {literal})"
    if query(session, f"SELECT 1 FROM {relation(table)} WHERE {other} LIMIT 1"):  # noqa: S608
        raise Different
    if first is None:
        return None
    return first.lower() if column.arrow == "binary" else bytes.fromhex(first).decode()


def may_be_cut(session: MysqlSession, table: SourceTable, column: SourceColumn, where: str) -> bool:
    """Whether a row has a value that may have been truncated by a narrower type."""
    name = quote_name(column.name)
    if size := _INTEGER_BYTES.get(column.data_type):
        least, most = (
            (0, 2 ** (8 * size))
            if column.unsigned
            else (-(2 ** (8 * size - 1)), 2 ** (8 * size - 1))
        )
        limit = f"{name} IN ({least}, {most - 1})"
    elif column.length and column.data_type.endswith("text"):
        limit = f"LENGTH({name}) >= {column.length - 3}"  # a character is not split
    elif column.length:
        limit = f"LENGTH({name}) >= {column.length} OR CHAR_LENGTH({name}) >= {column.length}"
    else:
        return True
    where = f"({where}) AND ({limit})"
    return bool(query(session, f"SELECT 1 FROM {relation(table)} WHERE {where} LIMIT 1"))  # noqa: S608
