"""A Spark DataFrame of rows that workers read from the lake.

It is a Python data source: Spark plans one task for each part, and gets Arrow batches from it. So
any session can read the lake, also without jars for S3, and nothing passes through the driver.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark_types
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

_NAME = "floodmark_lake"
_DECIMAL = re.compile(r"decimal128\((\d+), ?(\d+)\)")
_TYPES: dict[str, spark_types.DataType] = {
    "bool": spark_types.BooleanType(),
    "int16": spark_types.ShortType(),
    "int32": spark_types.IntegerType(),
    "int64": spark_types.LongType(),
    "float32": spark_types.FloatType(),
    "float64": spark_types.DoubleType(),
    "string": spark_types.StringType(),
    "binary": spark_types.BinaryType(),
    "date32": spark_types.DateType(),
    "timestamp[us]": spark_types.TimestampNTZType(),
    "timestamp[us, UTC]": spark_types.TimestampType(),
}


def lake_frame(
    session: Any,
    columns: Mapping[str, str],
    read: Callable[[int], Iterator[pa.RecordBatch]],
    parts: int,
) -> DataFrame:
    """Return a frame of `parts`, numbered from 0, that workers `read`.

    `columns` are their names and Arrow types.
    """
    schema = spark_types.StructType(
        [spark_types.StructField(name, _spark_type(kind)) for name, kind in columns.items()]
    )
    spark: SparkSession = session
    if not parts:
        return spark.createDataFrame([], schema)

    class LakeReader(DataSourceReader):
        def partitions(self) -> Sequence[InputPartition]:
            return [InputPartition(part) for part in range(parts)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            yield from read(partition.value)

    class LakeSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return _NAME

        def schema(self) -> spark_types.StructType:
            return schema

        def reader(self, schema: spark_types.StructType) -> DataSourceReader:  # noqa: ARG002
            return LakeReader()

    # A frame keeps the source that was registered when it was made.
    spark.dataSource.register(LakeSource)
    return spark.read.format(_NAME).load()


def quote(name: str) -> str:
    """Quote a name for Spark."""
    return "`" + name.replace("`", "``") + "`"


def _spark_type(arrow: str) -> spark_types.DataType:
    if found := _DECIMAL.fullmatch(arrow):
        return spark_types.DecimalType(int(found[1]), int(found[2]))
    return _TYPES[arrow]
