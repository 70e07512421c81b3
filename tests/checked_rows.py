"""A table of a server and the same rows in a target, with the checksum of each row."""

import uuid
from collections.abc import Sequence
from typing import Self

import pyarrow as pa
import pymysql

from floodmark.config.models import LakeSettings, MysqlConnection
from floodmark.config.secret import Secret
from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.model.cursor import Cursor
from floodmark.model.extraction import ColumnChoices, Window, ZeroDates
from floodmark.model.load import TargetTable
from floodmark.model.manifest import Column
from floodmark.model.position import START, Position
from floodmark.model.row_checksums import CheckedColumn
from floodmark.model.table import TableName
from floodmark.model.verification import Checksum, Extent
from floodmark.mysql.catalog import read_table
from floodmark.mysql.connection import connect
from floodmark.mysql.row_checksums import SourceChecksums
from floodmark.mysql.types import plan_columns, quote_name
from floodmark.planning.row_checksums import checked_columns
from floodmark.worker.compare_window import RowFilter
from floodmark.worker.conversion import Conversion
from floodmark.worker.job import ExtractionJob
from floodmark.worker.mysql_reader import read_batches
from pipelines import source_of
from warehouses import AsItIs, Loads, Warehouse

CHOICES = ColumnChoices(hash=("secret",), booleans=("yes",))


def window_of(predicate: str, start: Position = START, end: Position = START) -> Window:
    """A window of the rows that a predicate selects."""
    return Window(part=1, start=start, end=end, predicate=predicate)


class Source:
    """A table of a server, with a key `id` that counts its rows from 1."""

    def __init__(self, server: PrivateMariaDB) -> None:
        self.schema = f"s_{uuid.uuid4().hex[:8]}"
        self.name = TableName("S", self.schema, "t")
        self.place = f"{quote_name(self.schema)}.`t`"
        self._server = server
        server.execute(f"CREATE DATABASE {self.schema}")
        self.connection = MysqlConnection(
            host=server.host,
            port=server.port,
            user=server.user,
            password=Secret(server.password),
        )

    def create(self, columns: dict[str, str], rows: Sequence[Sequence[str]]) -> None:
        defined = ", ".join(f"{quote_name(name)} {kind}" for name, kind in columns.items())
        values = ", ".join(f"({', '.join(row)})" for row in rows)
        names = ", ".join(map(quote_name, columns))
        neutral = "SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'"
        with (
            pymysql.connect(
                **source_of(self._server), autocommit=True, init_command=neutral
            ) as session,
            session.cursor() as cursor,
        ):
            cursor.execute(f"CREATE TABLE {self.place} (id INT AUTO_INCREMENT KEY, {defined})")
            cursor.execute(f"INSERT INTO {self.place} ({names}) VALUES {values}")

    def describe(self, choices: ColumnChoices = CHOICES) -> None:
        with connect(self.connection) as session:
            self.table = read_table(session, self.name)
        self.plans = plan_columns(self.table, choices)
        self.columns = tuple(Column(c.name, c.type, c.nullable, c.arrow) for c in self.plans)

    def read(self) -> pa.RecordBatch:
        """All rows, as they come into the lake."""
        job = ExtractionJob(
            table=self.name,
            session_id="20250809_200001_abcd",
            sequence=1,
            source=self.connection,
            relation=self.place,
            order="`id`",
            columns=self.plans,
            cursor=Cursor(kind="id", key=("id",)),
            lake=LakeSettings(url="/nowhere"),
        )
        window = Window(part=0, start=START, end=START, predicate="TRUE")
        conversion = Conversion(self.plans, "null")
        batches = [conversion.convert(batch) for batch in read_batches(job, window)]
        return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]

    def checksums(
        self,
        ids: Sequence[int],
        checked: Sequence[CheckedColumn],
        zero_dates: ZeroDates = "null",
        guard: str = "TRUE",
    ) -> list[Checksum | None]:
        """The checksum of each row."""
        sums = SourceChecksums(
            self.table,
            self.plans,
            checked,
            index=None,
            guard=guard,
            zero_dates=zero_dates,
        )
        with connect(self.connection) as session:
            found = [sums.statements(session, window_of(f"id = {number}")) for number in ids]
            return [sums.read(session, statement) for (statement,) in found]


class Target:
    """The same rows in a target, which stays open."""

    def __init__(self, warehouse: Warehouse, source: Source, rows: pa.RecordBatch) -> None:
        self.table = TargetTable(
            name="t", columns=source.columns, primary_key=("id",), version=None
        )
        with warehouse.open() as target:
            self.rows = RowFilter(target.unsupported_values(self.table)).filter(rows).to_pylist()
        json = {column.name for column in source.columns if column.type == "json"}
        loads = Loads(warehouse, self.table)
        loads.load(
            loads.chunk(
                [
                    {n: AsItIs(v) if n in json and v is not None else v for n, v in row.items()}
                    for row in self.rows
                ]
            )
        )
        self.ids = [row["id"] for row in self.rows]
        self._target = warehouse.open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._target.close()

    def checkable(self) -> list[CheckedColumn]:
        """The columns that both sides can compare."""
        any_length = self._target.hashes_any_length
        checked = checked_columns(self.table.columns, any_length=any_length) or ()
        names = self._target.checkable(self.table, checked)
        return [column for column in checked if column.name in names]

    def checksums(self, checked: Sequence[CheckedColumn]) -> list[Checksum]:
        """The checksum of each row, as a window of its own."""
        edges = [0, *self.ids]
        windows = [
            (Extent(columns=("id",), start=(first,), end=(last,)),)
            for first, last in zip(edges, self.ids, strict=False)
        ]
        return self._target.checksums(self.table, checked, windows)
