"""Text that a collation takes for the same, and a warehouse does not."""

from floodmark.model.schema import SourceColumn
from floodmark.mysql.connection import MysqlSession, query_dicts

_PAIRS = {
    "upper and lower case": ("a", "A"),
    "accents": ("e", "é"),
    "trailing blanks": ("a", "a "),
}


def not_told_apart(session: MysqlSession, column: SourceColumn) -> list[str]:
    """In what two values of a text column may differ and be the same key; the server is asked.

    Names of collations do not tell: even `_bin` may ignore trailing blanks.
    """
    if column.data_type not in ("char", "varchar") or not column.collation:
        return []
    charset = column.collation.partition("_")[0]
    questions = ", ".join(
        f"CONVERT(_utf8mb4'{one}' USING {charset}) COLLATE {column.collation}"
        f" = CONVERT(_utf8mb4'{other}' USING {charset}) AS pair{number}"
        for number, (one, other) in enumerate(_PAIRS.values())
    )
    answers = query_dicts(session, f"SELECT {questions}")[0]
    # A CHAR is read without its trailing blanks, so none can come or go.
    return [
        what
        for (what, (_, other)), same in zip(_PAIRS.items(), answers.values(), strict=True)
        if same and not (column.data_type == "char" and other.endswith(" "))
    ]
