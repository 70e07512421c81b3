"""Keys of deleted rows, in the types of their columns."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq

from floodmark.config.models import LakeSettings
from floodmark.model.manifest import Column
from floodmark.model.reconciliation import FoundKey
from floodmark.worker.delete_file import write_deletes

MOMENT = datetime(2025, 6, 1, 12, 30, 0, 250_000, tzinfo=UTC)
COLUMNS = (
    Column("small", "tinyint", False, "int16"),
    Column("large", "bigint unsigned", False, "decimal128(20, 0)"),
    Column("code", "varchar(9)", False, "string"),
    Column("hash", "binary(2)", False, "binary"),
    Column("day", "date", False, "date32"),
    Column("at", "datetime(3)", False, "timestamp[us]"),
    Column("flag", "tinyint(1)", False, "bool"),
    Column("update_at", "timestamp(3)", True, "timestamp[us, UTC]"),
)


def test_each_type_of_key_and_a_version_that_is_not_there(tmp_path: Path) -> None:
    key = (7, 2**64 - 1, "é'", "0x00ff", "2025-06-01", "2025-06-01 12:30:00.250", 1)
    keys = [FoundKey(key, MOMENT), FoundKey(key, None)]
    file = write_deletes(LakeSettings(url=str(tmp_path)), "deletes/a.parquet", COLUMNS, keys)
    written = pq.read_table(tmp_path / "deletes" / "a.parquet")
    assert (file.rows, file.bytes) == (2, (tmp_path / "deletes" / "a.parquet").stat().st_size)
    naive = MOMENT.replace(tzinfo=None)
    values = [7, Decimal(2**64 - 1), "é'", b"\x00\xff", date(2025, 6, 1), naive, True]
    assert [list(row.values()) for row in written.to_pylist()] == [
        [*values, MOMENT],
        [*values, None],
    ]


def test_a_version_that_is_part_of_the_key_is_written_once(tmp_path: Path) -> None:
    columns = (COLUMNS[0], COLUMNS[5])
    key = FoundKey((7, "2025-06-01 12:30:00.25"), MOMENT)
    write_deletes(LakeSettings(url=str(tmp_path)), "deletes/a.parquet", columns, [key])
    (row,) = pq.read_table(tmp_path / "deletes" / "a.parquet").to_pylist()
    assert row == {"small": 7, "at": MOMENT.replace(tzinfo=None)}
