"""The lake alone gives the rows that a load into an empty warehouse would give."""

import sys
from pathlib import Path
from random import Random
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from floodmark import open_project
from floodmark.config.models import LakeSettings
from floodmark.errors import FloodmarkError, UsageError
from floodmark.model.manifest import chunks_in
from floodmark.model.table import TableName
from floodmark.planning.current_rows import CurrentRows, eligible, selection_of
from floodmark.planning.key_change import key_change
from floodmark.state.lake_validation import validate
from floodmark.storage.memory import MemoryObjectStore
from floodmark.sync import spark_engine as engines
from floodmark.sync.read_lake import EventReader, find_rows, frame_of, parts_of
from floodmark.warehouse.lake_reader import LakeFiles
from floodmark.worker.lake_rows import event_schema
from lake_logs import RandomLog, in_duckdb, load_into_nothing, up_to
from pipelines import warm_engine
from scenarios import Lake, new_lake, use_test_keys, write_config
from servers.spark import HAS_DATA_SOURCES
from warehouses import quoted

TABLE_OF_CONFIG = TableName("US_PROD", "shop", "orders")
ANOTHER = TableName("US_PROD", "shop", "payments")
TABLE = TableName("A", "b", "t")


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**9))
@example(seed=7997198)  # a column that was a number of three types, and then a flag
def test_random_logs_as_of_any_manifest(seed: int) -> None:
    """The same SQL as in Spark, run by DuckDB."""
    random = Random(seed)
    objects = MemoryObjectStore()
    log = RandomLog(random, objects, TABLE)
    log.grow(random.randrange(1, 10))
    assert validate(log.store, TABLE).differences == ()
    manifests = list(log.store.log.manifests(TABLE))
    last = random.choice([manifests[-1], random.choice(manifests)])
    counting = eligible([m for m in manifests if m.head <= last.head])
    if not chunks_in(counting) or key_change(counting):
        return
    expected = load_into_nothing(
        up_to(objects, TABLE, last.head), TABLE, random.choice([1, 2_000, 10**9])
    )
    rows = find_rows(log.store, TABLE, last.head)
    reader = EventReader(
        lake=LakeSettings(url="unused"), rows=rows, parts=tuple(parts_of(rows.files))
    )
    files = LakeFiles(objects, None)
    batches = [b for part in range(len(reader.parts)) for b in reader.read_from(files, part)]
    schema = event_schema(rows.table, reader.marks)
    events = pa.Table.from_batches(batches, schema)
    columns = [column.name for column in rows.table.columns]
    if not rows.table.primary_key:
        found = events.select(sorted(columns, key=str.lower)).to_pylist()
        assert sorted(tuple(row.values()) for row in found) == sorted(expected)
        return
    selection = selection_of(rows, quoted)
    assert in_duckdb(events, selection, columns, "rank") == expected


@pytest.fixture(scope="module")
def session(spark: Any) -> Any:
    """Spark SQL beside what the tests of this process run."""
    return spark.sql_session()


def test_spark_without_data_sources_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark 3.5 does not have this module."""
    monkeypatch.setitem(sys.modules, "pyspark.sql.datasource", None)
    monkeypatch.delitem(sys.modules, "floodmark.spark.lake_frame", raising=False)
    with pytest.raises(UsageError, match=r"needs PySpark 4\.0 or newer"):
        frame_of(None, LakeSettings(url="/nowhere"), cast(CurrentRows, None))


@pytest.mark.skipif(not HAS_DATA_SOURCES, reason="PySpark 3.5 has no data sources in Python")
@pytest.mark.parametrize("kind", ["local", "ministack"])
def test_a_spark_session_reads_a_lake(
    kind: str,
    spark: Any,
    session: Any,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Random logs of several tables, with deletes of both kinds, in a folder and in S3."""
    use_test_keys(monkeypatch)
    monkeypatch.setattr(engines, "SparkEngine", warm_engine(spark))
    lake = new_lake(kind, request, tmp_path)
    objects = lake.open()
    frames, expected, names = [], [], []
    own = kind == "ministack"  # a session that the project started
    with open_project(write_config(tmp_path, lake), spark=None if own else session) as project:
        for seed, table in ((3, TABLE_OF_CONFIG), (12, ANOTHER)):
            log = RandomLog(Random(seed), objects, table)
            log.timed, log.keyless, log.soft = True, False, seed == 3
            log.grow(8)
            log.reconcile()
            last = list(log.store.log.heads(table))[-1]
            expected.append(load_into_nothing(up_to(objects, table, last), table, 10**9))
            frames.append(project.read(str(table), as_of=str(last)))
            names.append(sorted(frames[-1].columns, key=str.lower))
        for frame, columns, rows in zip(frames, names, expected, strict=True):
            found = [tuple(row) for row in frame.select(*columns).collect()]
            assert sorted(found, key=repr) == sorted(rows, key=repr)
        assert project.read(ANOTHER, session).count() == len(expected[-1])


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    lake = Lake(folder=str(tmp_path / "lake"))
    log = RandomLog(Random(1), lake.open(), TABLE_OF_CONFIG)
    with open_project(write_config(tmp_path, lake)) as project:
        name = str(TABLE_OF_CONFIG)
        with pytest.raises(FloodmarkError, match="no rows of"):
            project.read(name)
        log.timed, log.keyless = False, False
        log.extract()
        for text in ("1-9", "latest"):
            with pytest.raises(UsageError, match=text):
                project.read(name, as_of=text)
        (file,) = next(log.store.log.chunks(TABLE_OF_CONFIG)).files
        log.store.objects.delete(file.path)
        with pytest.raises(FloodmarkError, match=rf"1 of 1 files .* {file.path}"):
            project.read(name)
