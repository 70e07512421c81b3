"""How a row becomes one text that is the same in every database, and then a hash.

Each column has a canonical text, which shows where it ends, so that different rows have different
texts. A comma follows everything. Numbers and times are plain: never empty, and without a comma; a
NULL is empty. Text and binary data are framed: their length in bytes, and what they are, so that
they may be anything; a NULL has an empty length, and nothing else. If long text is shortened, a
digest takes the place of what is longer than LONGEST_TEXT. One text may be the last of a row, which
needs no length: the text and its comma, or nothing for a NULL.

    id 7, note 'a,b', amount NULL   →   7,3,a,b,,

The row's hash is the SHA-256 of that text in UTF-8: every database has it, processors have
instructions for it, and it is allowed where MD5 is not. Two parts of 56 bits are summed. If two
sets of rows differ, both sums and the number of rows are equal by chance with a probability of
about 2**-112.
"""

from typing import Literal

from msgspec import Struct

TextForm = Literal["plain", "framed", "shortened", "last"]

LONGEST_TEXT = 255
"""Bytes of text or binary data that are not shortened."""

HASH_DIGITS = 14
"""Hexadecimal digits of each part of a hash: 56 bits, which every database holds in a BIGINT."""


class CheckedColumn(Struct, frozen=True):
    """A column, and the form in which its text is part of the row's text."""

    name: str
    form: TextForm
