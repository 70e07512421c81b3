"""Fingerprints of rows that every database computes alike, in BIGINT arithmetic.

A row is a vector of integers: one number per key column, and its version. An integer is its own
number, a time is microseconds since the year 0, text is the first 60 bits of its SHA-256. Each of
the two sums adds up, over all rows,

    h = (((x + a) * (y + b)) % r) * (z + d)

where x and z are remainders of the key, y of the version (without one, of the key again). The
moduli are random primes and the offsets are random; both are chosen for each run, and separately
for each sum. No step exceeds 63 bits, and `%` truncates towards zero everywhere.

What is the chance that a difference goes unnoticed? Let e be +1 for each row that only the source
has and -1 for each row that only the target has.

1. The sum of e*h is zero for at most one of the 2^29 offsets d, unless the sum of e*w is zero,
   where w is the remainder by r.
2. That makes N, the sum of e*(x+a)*(y+b), a multiple of r. A number below 2^90 has at most three
   prime factors above 2^30, of which there are 5*10^7 to choose from: 6*10^-8, unless N is zero.
3. N is a polynomial in a and b. It is zero for at most 2 of 2^29 values, unless the rows on both
   sides agree in number, in the sum of x, in the sum of y, and in the sum of x*y.
4. If the sums of all keys differ, those of x are equal only if p divides the difference: at most
   three of 2.6*10^7 primes. The same holds for versions, y and q.

So one sum misses a difference with a chance below 2*10^-7, and both together below 10^-13. A single
row that was added, deleted, moved to another key or given another version never satisfies 3. Rows
in regular patterns can: for them the chance is higher, but they must also agree in the sum of x*y*z
and in how often each product wraps around r. The next run chooses other numbers.
"""

import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Literal

from msgspec import Struct

from floodmark.model.reconciliation import Fingerprint
from floodmark.model.schema import SourceColumn
from floodmark.model.timestamps import FIRST_MOMENT, LAST_MOMENT, as_utc

NumberKind = Literal["integer", "moment", "decimal", "text", "binary"]
"""How a column becomes a number."""

DIGEST_DIGITS = 15
"""Hexadecimal digits of a SHA-256 that make a number."""
LARGEST_DIGEST = 16**DIGEST_DIGITS - 1
DAY = 86_400_000_000
"""Microseconds of a day. Day 366 is 0001-01-01, as TO_DAYS counts."""

UNIX_EPOCH = 719_528 * DAY
"""Number of the time 1970-01-01."""

_MOST_INTEGER_DIGITS = 18
_KINDS: dict[str, NumberKind] = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "year"), "integer"),
    "bit": "integer",
    **dict.fromkeys(("date", "datetime", "timestamp"), "moment"),
    "decimal": "decimal",
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), "text"),
    **dict.fromkeys(("enum", "set", "time", "uuid", "inet4", "inet6"), "text"),
    **dict.fromkeys(
        ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), "binary"
    ),
}


def number_kind(column: SourceColumn) -> NumberKind | None:
    """Return how a column becomes a number; None if databases would disagree.

    Floating-point numbers are printed differently, and JSON is rewritten.
    """
    if column.column_type == "json":
        return None
    if column.data_type == "decimal" and not column.scale:
        return "integer" if (column.precision or 0) <= _MOST_INTEGER_DIGITS else "decimal"
    return _KINDS.get(column.data_type)


def moment(number: int) -> datetime:
    """Return the time of a number; OverflowError if there is none."""
    return FIRST_MOMENT + timedelta(microseconds=number - 366 * DAY)


def nearest_moment(number: int) -> datetime:
    """Return the time of a number; the first or last one if it is beyond the calendar."""
    return moment(min(max(number, FIRST_NUMBER), LAST_NUMBER))


def moment_number(value: datetime) -> int:
    """Return the number of a time."""
    return (as_utc(value) - FIRST_MOMENT) // timedelta(microseconds=1) + 366 * DAY


FIRST_NUMBER, LAST_NUMBER = moment_number(FIRST_MOMENT), moment_number(LAST_MOMENT)
"""Numbers of the first and last time."""


def digest_number(text: bytes) -> int:
    """Return the number of a text; the reference of what databases compute."""
    return int(sha256(text).hexdigest()[:DIGEST_DIGITS], 16)


class SqlNumber(Struct, frozen=True):
    """SQL for a number. `cast` makes its remainders BIGINT, if the value is of a wider type."""

    value: str
    cast: str = "{}"

    def remainder(self, modulus: int) -> str:
        """Return SQL for the remainder."""
        return self.cast.format(f"({self.value} % {modulus})")


class RowNumbers(Struct, frozen=True, kw_only=True):
    """SQL for the numbers of a row: those of its key columns, and of its version if it has one."""

    key: tuple[SqlNumber, ...]
    version: SqlNumber | None


class Multipliers(Struct, frozen=True, kw_only=True):
    """The random numbers of one sum: primes p, q, r, s, offsets a, b, d, and a factor c."""

    p: int
    q: int
    r: int
    s: int
    a: int
    b: int
    c: int
    d: int

    @classmethod
    def random(cls) -> "Multipliers":
        """Choose them."""
        p, q, s = (_prime(2**29, 2**30) for _ in range(3))
        a, b, d = (2**30 + secrets.randbelow(2**29) for _ in range(3))
        return cls(
            p=p, q=q, r=_prime(2**30, 2**31), s=s, a=a, b=b, c=2 + secrets.randbelow(p - 2), d=d
        )

    def key_sql(self, row: RowNumbers) -> str:
        """Return SQL for `x + a`, which is positive."""
        key = row.key
        x = key[0].remainder(self.p)
        for number in key[1:]:
            x = f"(({x} * {self.c} + {number.remainder(self.p)}) % {self.p})"
        return f"({x} + {self.a})"

    def sql(self, row: RowNumbers) -> str:
        """Return SQL for a row's summand."""
        last = row.key[-1]
        y = f"({(row.version or last).remainder(self.q)} + {self.b})"
        z = f"({last.remainder(self.s)} + {self.d})"
        return f"(({self.key_sql(row)} * {y}) % {self.r}) * {z}"

    def key_value(self, key: Sequence[int]) -> int:
        """Return `x + a`; the reference of `key_sql`."""
        x = _remainder(key[0], self.p)
        for number in key[1:]:
            x = _remainder(x * self.c + _remainder(number, self.p), self.p)
        return x + self.a

    def value(self, key: Sequence[int], version: int | None) -> int:
        """Return a row's summand; the reference of `sql`."""
        y = _remainder(key[-1] if version is None else version, self.q) + self.b
        z = _remainder(key[-1], self.s) + self.d
        return (self.key_value(key) * y) % self.r * z


class Hashing(Struct, frozen=True):
    """The random numbers of a run: those of both sums."""

    first: Multipliers
    second: Multipliers

    def sums(self, row: RowNumbers) -> str:
        """Return SQL for a fingerprint."""
        return f"COUNT(*), SUM({self.first.sql(row)}), SUM({self.second.sql(row)})"

    def bucket(self, row: RowNumbers, modulus: int) -> str:
        """Return SQL for the bucket of a key: its hash by a modulus."""
        return f"({self.first.key_sql(row)} % {modulus})"

    @classmethod
    def random(cls) -> "Hashing":
        """Choose them."""
        return cls(Multipliers.random(), Multipliers.random())

    def fingerprint(self, rows: Iterable[tuple[Sequence[int], int | None]]) -> Fingerprint:
        """Return the fingerprint of rows, given as numbers; the reference of `sums`."""
        found = list(rows)
        first, second = (
            sum(sums.value(key, version) for key, version in found)
            for sums in (self.first, self.second)
        )
        return Fingerprint(len(found), first, second)


def _remainder(value: int, modulus: int) -> int:
    """Return the remainder with the sign of the value, as in SQL."""
    return abs(value) % modulus * (1 if value >= 0 else -1)


def _prime(low: int, high: int) -> int:
    """Return a random prime in `[low, high)`."""
    while True:
        number = low + secrets.randbelow(high - low)
        if _is_prime(number):
            return number


def _is_prime(number: int) -> bool:
    """Miller and Rabin's test, which is exact below 3 * 10^9 for these bases."""
    if number % 2 == 0:
        return False
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    return all(_passes(number, base, odd, twos) for base in (2, 3, 5, 7))


def _passes(number: int, base: int, odd: int, twos: int) -> bool:
    power = pow(base, odd, number)
    if power in (1, number - 1):
        return True
    for _ in range(twos - 1):
        power = power * power % number
        if power == number - 1:
            return True
    return False
