"""Find texts that are equal in a collation, but not in a warehouse."""

from floodmark.model.schema import SourceColumn
from floodmark.mysql.connection import MysqlSession, query_dicts

_PAIRS = {
    "upper and lower case": ("a", "A"),
    "accents": ("e", "é"),
    "trailing blanks": ("a", "a "),
}


def not_told_apart(session: MysqlSession, column: SourceColumn) -> list[str]:
    """Return the differences that a text column's collation ignores, by asking the server.

    The collation's name is not enough: even `_bin` may ignore trailing blanks.
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
    # A CHAR is read without trailing blanks, so they cannot differ.
    return [
        what
        for (what, (_, other)), same in zip(_PAIRS.items(), answers.values(), strict=True)
        if same and not (column.data_type == "char" and other.endswith(" "))
    ]
