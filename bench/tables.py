"""The tables of the benchmark: a wide one with mixed types, and a narrow one."""

import time
from collections.abc import Sequence
from typing import Any, Protocol

_ROWS_AT_ONCE = 500_000
_SETTLING_SECONDS = 30.0
_FEW_VERSIONS = 100

# Name, type, and the value of row `seq`; `a` and `b` are pseudorandom numbers.
WIDE = (
    ("id", "BIGINT NOT NULL", "seq"),
    ("order_no", "VARCHAR(32) NOT NULL", "CONCAT('ORD', LPAD(a, 10, '0'), b % 100)"),
    ("partner_id", "INT NOT NULL", "a % 500"),
    ("driver_id", "INT", "IF(a % 10 = 0, NULL, b % 20000)"),
    ("status", "TINYINT NOT NULL", "b % 7"),
    ("kind", "VARCHAR(12) NOT NULL", "ELT(1 + b % 4, 'normal', 'express', 'return', 'pickup')"),
    ("city", "VARCHAR(40)", "CONCAT('city ', a % 900)"),
    ("postcode", "CHAR(6)", "LPAD(b % 999999, 6, '0')"),
    ("address", "VARCHAR(120)", "CONCAT(a % 9999, ' Main Street, unit ', b % 400)"),
    ("price", "DECIMAL(12,2) NOT NULL", "a % 100000 / 100"),
    ("tax", "DECIMAL(12,4) NOT NULL", "a % 100000 / 1300"),
    ("fee", "DECIMAL(10,2)", "IF(b % 5 = 0, NULL, b % 300 / 100)"),
    ("weight", "DOUBLE", "b % 10000 / 7"),
    ("latitude", "DOUBLE", "43 + a % 1000000 / 1000000"),
    ("longitude", "DOUBLE", "-79 - b % 1000000 / 1000000"),
    ("is_paid", "TINYINT(1) NOT NULL", "a % 2"),
    ("service_day", "DATE NOT NULL", "'2025-06-01' + INTERVAL seq DIV 20000 DAY"),
    ("created_at", "DATETIME NOT NULL", "'2025-06-01' + INTERVAL seq DIV 10 SECOND"),
    ("delivered_at", "DATETIME(6)", "'2025-06-01' + INTERVAL seq * 100000 + a MICROSECOND"),
    ("signed_by", "VARCHAR(40)", "IF(b % 3 = 0, NULL, CONCAT('receiver ', a % 7000))"),
    ("note", "VARCHAR(200)", "CONCAT('shelf ', b % 50, ', code ', LEFT(SHA2(seq, 256), 12))"),
    (
        "extra",
        "JSON",
        """CONCAT('{"zone": ', a % 40, ', "tries": ', b % 3, ', "weight": ', b, '}')""",
    ),
    (
        "update_at",
        "DATETIME NOT NULL ON UPDATE CURRENT_TIMESTAMP",
        "'2025-06-01' + INTERVAL seq DIV 10 SECOND",
    ),
)
NARROW = (
    ("id", "BIGINT NOT NULL", "seq"),
    ("amount", "DECIMAL(12,4)", "a % 1000000000 / 70"),
    ("note", "VARCHAR(20)", "CONCAT('note ', b % 1000)"),
    (
        "update_at",
        "DATETIME NOT NULL ON UPDATE CURRENT_TIMESTAMP",
        "'2025-06-01' + INTERVAL seq DIV 100 SECOND",
    ),
)


class Source(Protocol):
    """A MySQL server that runs statements."""

    def execute(self, sql: str, *, database: str | None = None) -> Sequence[Sequence[Any]]:
        """Run a statement."""


_KEYS = ", PRIMARY KEY (id), KEY by_change (update_at, id)"


def create(
    source: Source,
    name: str,
    columns: tuple[tuple[str, str, str], ...],
    rows: int,
    *,
    keys: str = _KEYS,
) -> None:
    """Create a table of so many rows, with an index on its changes."""
    source.execute("CREATE DATABASE IF NOT EXISTS bench")
    _create_numbers(source)
    defined = ", ".join(f"{column} {kind}" for column, kind, _ in columns)
    source.execute(f"CREATE TABLE bench.{name} ({defined}{keys})")
    values = ", ".join(value for *_, value in columns)
    for first in range(1, rows + 1, _ROWS_AT_ONCE):
        last = min(first + _ROWS_AT_ONCE - 1, rows)
        source.execute(
            f"INSERT INTO bench.{name} SELECT {values} FROM (SELECT seq, CRC32(seq) AS a,"
            f" CRC32(CONCAT('b', seq)) AS b FROM (SELECT number + {first} AS seq FROM bench.numbers"
            f" WHERE number <= {last - first}) AS these) AS numbers",
            database="bench",  # MySQL wants one for tables that are derived
        )
    source.execute(f"ANALYZE TABLE bench.{name}")


def _create_numbers(source: Source) -> None:
    """Create a table of numbers from 0: MySQL has no sequences as MariaDB has."""
    if source.execute("SHOW TABLES FROM bench LIKE 'numbers'"):
        return
    source.execute("CREATE TABLE bench.numbers (number INT PRIMARY KEY)")
    source.execute("INSERT INTO bench.numbers VALUES (0)")
    rows = 1
    while rows < _ROWS_AT_ONCE:
        source.execute(f"INSERT INTO bench.numbers SELECT number + {rows} FROM bench.numbers")
        rows *= 2


def change(source: Source, name: str, rows: int, of: int, day: int) -> str:
    """Change so many rows, spread over the table, on a day later than all others.

    Return the note in these rows.
    """
    note = f"changed on day {day}"
    every = max(1, of // rows)
    source.execute(
        f"UPDATE bench.{name} SET price = price + 1, note = '{note}',"
        f" update_at = '2026-01-01' + INTERVAL {day} DAY + INTERVAL id MOD 3600 SECOND"
        f" WHERE id MOD {every} = 0 AND id <= {every * rows}"
    )
    _settle(source)
    return note


def _settle(source: Source) -> None:
    """Wait until the server has purged old row versions after a change."""
    deadline = time.monotonic() + _SETTLING_SECONDS
    while time.monotonic() < deadline:
        ((versions,),) = source.execute(
            "SELECT `COUNT` FROM information_schema.INNODB_METRICS"
            " WHERE NAME = 'trx_rseg_history_len'"  # MySQL has no status variable for it
        )
        if int(versions) < _FEW_VERSIONS:
            return
        time.sleep(0.1)
