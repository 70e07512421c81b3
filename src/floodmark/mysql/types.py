"""Build the SELECT list that reads every MySQL type without loss.

The server converts to text where the client would lose something: decimals (connectorx cuts them to
ten digits), dates (it fails on a zero date) and times. `CONCAT` does so: it measured faster than
`CAST(… AS CHAR)`, and for decimals faster than the native value. A FLOAT is converted to DOUBLE, as
its text has only six digits.
"""

from floodmark.errors import UsageError
from floodmark.model.extraction import ColumnChoices, ColumnPlan
from floodmark.model.schema import SourceColumn, SourceTable

_INTEGERS = {
    ("tinyint", False): "int16",
    ("tinyint", True): "int16",
    ("smallint", False): "int16",
    ("smallint", True): "int32",
    ("mediumint", False): "int32",
    ("mediumint", True): "int32",
    ("int", False): "int32",
    ("int", True): "int64",
    ("bigint", False): "int64",
    ("bigint", True): "decimal128(20, 0)",
}
_TEXTS = ("char", "varchar", "enum", "set", "tinytext", "text", "mediumtext", "longtext")
_UNCHANGED = {
    "year": "int16",
    "double": "float64",
    **dict.fromkeys(_TEXTS, "string"),
    **dict.fromkeys(
        ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), "binary"
    ),
}
_MOMENTS = {"date": "date32", "datetime": "timestamp[us]", "timestamp": "timestamp[us, UTC]"}
_GEOMETRIES = {
    "geometry",
    "point",
    "linestring",
    "polygon",
    "multipoint",
    "multilinestring",
    "multipolygon",
    "geometrycollection",
    "geomcollection",
}
_SHOWN = {"time", "uuid", "inet4", "inet6"}
_READABLE = {
    *(kind for kind, _ in _INTEGERS),
    *_UNCHANGED,
    *_MOMENTS,
    *_GEOMETRIES,
    *_SHOWN,
    *("bit", "decimal", "float", "json"),
}
_WIDEST_DECIMAL = 38
_WIDEST_BIT = 64

DEFAULT_CHOICES = ColumnChoices()


def plan_columns(
    table: SourceTable, choices: ColumnChoices = DEFAULT_CHOICES
) -> tuple[ColumnPlan, ...]:
    """Plan how to read each column of a table; UsageError for an unsupported type."""
    return tuple(
        _hashed(table, column)
        if column.name in choices.hash
        else _boolean(column)
        if column.name in choices.booleans
        else _plan(table, column)
        for column in table.columns
        if column.name not in choices.exclude
    )


def quote_name(name: str) -> str:
    """Quote a name for MySQL."""
    return "`" + name.replace("`", "``") + "`"


def _hashed(table: SourceTable, column: SourceColumn) -> ColumnPlan:
    if column.data_type not in _READABLE:
        raise _unreadable(table, column)
    name = quote_name(column.name)
    if column.data_type in _TEXTS or column.data_type == "json":
        name = f"CONVERT({name} USING utf8mb4)"  # the same hash whatever the column's character set
    elif column.data_type == "float":
        name = f"CONCAT({_double(name)})"
    elif _UNCHANGED.get(column.data_type) != "binary" and column.data_type not in _GEOMETRIES:
        name = f"CONCAT({name})"
    return ColumnPlan(
        name=column.name,
        expression=f"SHA2({name}, 256)",
        arrow="string",
        nullable=column.nullable,
        type="char(64)",
        hashed=True,
    )


def _boolean(column: SourceColumn) -> ColumnPlan:
    """Read text, of which only 0 and 1 become booleans; Arrow would accept any number."""
    return ColumnPlan(
        name=column.name,
        expression=f"CONCAT({quote_name(column.name)})",
        arrow="bool",
        nullable=column.nullable,
        type=column.column_type,
    )


def _plan(table: SourceTable, column: SourceColumn) -> ColumnPlan:
    name = quote_name(column.name)
    kind = column.data_type
    moment = kind in _MOMENTS
    expression = name
    if arrow := _INTEGERS.get((kind, column.unsigned)) or _UNCHANGED.get(kind):
        pass
    elif kind == "decimal":
        expression, arrow = f"CONCAT({name})", _decimal(column)
    elif kind == "float":
        expression, arrow = _double(name), "float32"
    elif moment:
        expression, arrow = f"CONCAT({name})", _MOMENTS[kind]
    elif kind in _SHOWN:
        expression, arrow = f"CONCAT({name})", "string"
    elif kind == "json":
        expression, arrow = f"CAST({name} AS CHAR)", "string"
    elif kind == "bit":
        expression, arrow = f"CAST({name} AS UNSIGNED)", _bit(column)
    elif kind in _GEOMETRIES:
        expression, arrow = _well_known_binary(name), "binary"
    else:
        raise _unreadable(table, column)
    return ColumnPlan(
        name=column.name,
        expression=expression,
        arrow=arrow,
        nullable=column.nullable or moment,
        type=column.column_type,
        zero_dates=moment,
    )


def _unreadable(table: SourceTable, column: SourceColumn) -> UsageError:
    return UsageError(
        f"{table.name}: column {column.name!r} has the type {column.column_type!r},"
        " which Floodmark cannot read exactly",
        hint=f"leave it out: 'exclude: [{column.name}]' for the table",
    )


def _double(name: str) -> str:
    """Read a FLOAT with all its digits."""
    return f"{name} * 1E0"


def _well_known_binary(name: str) -> str:
    """Read well-known binary, with the SRID if it is not 0, as in PostGIS.

    Every server stores a geometry as four bytes of SRID and WKB, little endian, x before y.
    `ST_AsBinary` drops the SRID, and MySQL 8 swaps the axes of some systems.
    """
    extended = f"CONCAT(SUBSTR({name}, 5, 4), X'20', LEFT({name}, 4), SUBSTR({name}, 10))"
    return f"IF(LEFT({name}, 4) = X'00000000', SUBSTR({name}, 5), {extended})"


def _decimal(column: SourceColumn) -> str:
    assert column.precision is not None
    if column.precision > _WIDEST_DECIMAL:
        return "string"
    return f"decimal128({column.precision}, {column.scale or 0})"


def _bit(column: SourceColumn) -> str:
    if column.precision == 1:
        return "bool"
    return "decimal128(20, 0)" if column.precision == _WIDEST_BIT else "int64"
