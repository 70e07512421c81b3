"""Files of other systems: what is taken as it is, what is written rewritten, what is refused."""

import io
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from floodmark.errors import FloodmarkError
from floodmark.model.manifest import Column
from floodmark.worker.parquet_check import inspect_file, rewrite

MOMENT = Column("at", "timestamp(6)", True, "timestamp[us, UTC]")
LOCAL = Column("at", "datetime(6)", True, "timestamp[us]")
MOST = 1 << 30
TIMES = [
    datetime(1583, 1, 1, 1, 2, 3, 456789, tzinfo=UTC),  # too far away for nanoseconds
    datetime(2025, 6, 1, tzinfo=UTC),
    None,
    datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
]


def int96(values: list[Any]) -> bytes:
    sink = io.BytesIO()
    table = pa.table({"at": pa.array(values, pa.timestamp("us", "UTC"))})
    pq.write_table(table, sink, use_deprecated_int96_timestamps=True)
    return sink.getvalue()


def test_int96_is_a_moment_and_keeps_it() -> None:
    file = inspect_file(int96(TIMES), [MOMENT], (), MOST)
    assert (file.rows, file.exact, file.mismatches) == (4, False, ())
    rewritten = rewrite(int96(TIMES), [MOMENT])
    assert pq.read_table(io.BytesIO(rewritten)).column("at").to_pylist() == TIMES
    assert inspect_file(rewritten, [MOMENT], (), MOST).exact


def test_int96_is_no_local_time() -> None:
    (mismatch,) = inspect_file(int96(TIMES), [LOCAL], (), MOST).mismatches
    assert "(INT96) in the file, but timestamp[us] in the source" in mismatch


@pytest.mark.parametrize(
    ("found", "wanted", "values"),
    [
        (pa.int64(), "int16", [1, -32768, None]),
        (pa.uint64(), "decimal128(20, 0)", [2**64 - 1, 0, None]),
        (pa.int32(), "int64", [1, None]),
        (pa.float32(), "float64", [0.5, None]),
        (pa.large_string(), "string", ["é", "", None]),
        (pa.dictionary(pa.int32(), pa.string()), "string", ["a", "a", None]),
        (pa.binary(2), "binary", [b"ab", None]),
        (pa.timestamp("s"), "timestamp[us]", [datetime(2025, 1, 1), None]),  # noqa: DTZ001
        (pa.timestamp("us", "+00:00"), "timestamp[us, UTC]", [TIMES[1], None]),
    ],
    ids=str,
)
def test_same_values_in_another_type_are_rewritten(
    found: pa.DataType, wanted: str, values: list[Any]
) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"v": pa.array(values, found)}), sink)
    column = Column("v", "", True, wanted)
    file = inspect_file(sink.getvalue(), [column], (), MOST)
    assert file.mismatches == ()
    rewritten = rewrite(sink.getvalue(), [column])
    assert pq.read_table(io.BytesIO(rewritten)).column("v").to_pylist() == values
    assert inspect_file(rewritten, [column], (), MOST).exact


def test_what_may_not_be_null_by_now_may_have_been() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"v": pa.array([1, None], pa.int32())}), sink)
    column = Column("v", "", False, "int64")
    assert inspect_file(sink.getvalue(), [column], (), MOST).mismatches == ()
    rewritten = rewrite(sink.getvalue(), [column])
    assert pq.read_table(io.BytesIO(rewritten)).column("v").to_pylist() == [1, None]


@pytest.mark.parametrize(
    ("found", "wanted", "value"),
    [
        (pa.int64(), "int16", 40_000),
        (pa.float64(), "int64", 1.0),
        (pa.bool_(), "int16", True),
        (pa.string(), "int64", "1"),
        (pa.int64(), "string", 1),
        (pa.timestamp("us"), "date32", datetime(2025, 1, 1)),  # noqa: DTZ001
        (pa.timestamp("us"), "timestamp[us, UTC]", datetime(2025, 1, 1)),  # noqa: DTZ001
        (pa.list_(pa.int64()), "int64", [1]),
        (pa.struct([("a", pa.int64())]), "string", {"a": 1}),
    ],
    ids=str,
)
def test_nothing_is_guessed_or_cut(found: pa.DataType, wanted: str, value: Any) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"v": pa.array([value], found)}), sink)
    (mismatch,) = inspect_file(
        sink.getvalue(), [Column("v", "", True, wanted)], (), MOST
    ).mismatches
    assert mismatch.startswith("v ")
    assert wanted in mismatch


ROWS = 4_000_000
ID = Column("id", "bigint", False, "int64")
MEASURE = """
import sys
import pyarrow as pa
from floodmark.worker.parquet_check import inspect_file, rewrite
from floodmark.model.manifest import Column
data = open(sys.argv[1], "rb").read()
column = Column("id", "bigint", False, "int64")
rows = inspect_file(data, [column], ["id"], 1 << 30).rows
rewrite(data, [column])
print(rows, pa.default_memory_pool().max_memory())
"""


def repeated() -> bytes:
    """Return a file of one repeated value, a thousand times larger in memory."""
    sink = io.BytesIO()
    table = pa.table({"id": pa.repeat(pa.scalar(7, pa.int32()), ROWS)})
    pq.write_table(table, sink, row_group_size=ROWS)
    return sink.getvalue()


def test_a_small_file_of_many_rows_takes_little_memory(tmp_path: Path) -> None:
    file = tmp_path / "huge.parquet"
    file.write_bytes(repeated())
    assert file.stat().st_size < 100_000
    script = [sys.executable, "-c", MEASURE, str(file)]
    done = subprocess.run(script, capture_output=True, text=True, check=True)
    rows, peak = map(int, done.stdout.split())
    assert rows == ROWS
    assert peak < 4 * ROWS / 2


def test_a_file_that_is_huge_once_unpacked_is_refused_by_its_footer() -> None:
    with pytest.raises(FloodmarkError, match="4,000,000 rows take 15 MB unpacked, more than 1 MB"):
        inspect_file(repeated(), [ID], ["id"], 1 << 20)


DAMAGE = """
import random, sys
from contextlib import suppress
from pathlib import Path
from floodmark.errors import FloodmarkError
from floodmark.model.manifest import Column
from floodmark.worker.parquet_check import inspect_file, rewrite

columns = [Column("id", "bigint", False, "int64"), Column("é", "varchar(9)", True, "string")]
for number in range(int(sys.argv[2]), 150):
    print(number, flush=True)
    random.seed(number)
    file = bytearray(Path(sys.argv[1]).read_bytes())
    for _ in range(random.randint(1, 4)):
        file[random.randrange(len(file))] = random.randrange(256)
    for content in (bytes(file), bytes(file[: random.randrange(len(file))])):
        with suppress(FloodmarkError):
            if not inspect_file(content, columns, ["id"], 1 << 20).mismatches:
                rewrite(content, columns)
"""


def test_a_damaged_file_is_refused_or_read(tmp_path: Path) -> None:
    file = tmp_path / "damaged.parquet"
    rows = {"id": pa.array(range(5), pa.int64()), "é": pa.array(["a", None, "c", "d", "e"])}
    pq.write_table(pa.table(rows), file, compression="none")
    number = 0
    while number < 150:
        script = [sys.executable, "-c", DAMAGE, str(file), str(number)]
        ended = subprocess.run(script, capture_output=True, text=True, check=False)
        # Arrow itself may crash on a damaged page; then nothing is adopted. We go on behind it.
        assert ended.returncode in (0, -signal.SIGSEGV, -signal.SIGABRT), ended.stderr
        number = int(ended.stdout.split()[-1]) + 1
