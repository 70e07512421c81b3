"""A lake with tables in every state and days of runs, written by the program's own store.

Only the clock is made up. There is no source and no warehouse: a chunk's data file does not exist.
"""

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from floodmark import __version__
from floodmark.model import lake_layout
from floodmark.model.failure import Failure
from floodmark.model.load_transitions import loaded
from floodmark.model.manifest import Chunk, DataFile, Reconciled, Set
from floodmark.model.position import Position
from floodmark.model.reconciled_state import ReconciledState, begun, finished
from floodmark.model.run_record import RunNotice, RunRecord, RunStatus, TableRun
from floodmark.model.table import TableName
from floodmark.model.verification_transitions import differs, verified
from floodmark.model.watermark import Watermark
from floodmark.state.last_drill import DrilledTable, LastDrill
from floodmark.state.lease import record_failure
from floodmark.state.mirror import MirrorState
from floodmark.state.run_records import RunRecords
from floodmark.state.watermark_store import WatermarkStore
from scenarios import Lake, open_store

PASSWORD = "1045 (28000): Access denied for user 'reader'@'10.4.0.17' (using password: YES)"
DIFFERENCE = "3 rows differ between source and target: id 48213, 48377, 51002"
HELD = "transaction 8127341 has been open for 5 hours and may still commit older rows"
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


class Sample(Struct, kw_only=True):
    """A table of the lake: how many rows it gets a run, and what becomes of it at the end.

    `deleted` rows are found deleted in the source by a reconciliation in the middle of the time.
    """

    name: str
    rows: int = 0
    fate: str = "in step"
    deleted: int = 0


SHOP = [
    Sample(name="shop.payments", rows=5200, fate="failing"),
    Sample(name="shop.orders", rows=9100, fate="differs"),
    Sample(name="shop.stock_movements", rows=14800, fate="held back"),
    Sample(name="shop.deliveries", rows=3100, fate="behind"),
    Sample(name="shop.gift_cards", fate="never synced"),
    Sample(name="shop.customers", rows=420, deleted=37),
    Sample(name="shop.order_items", rows=26400),
    Sample(name="shop.prices", rows=900),
    Sample(name="shop.countries", rows=0),
    Sample(name="shop.returns", rows=310, deleted=4),
    Sample(name="shop.suppliers", rows=12),
    Sample(name="shop.invoices", rows=4800),
    Sample(name="shop.refunds", rows=130, fate="failing"),
    Sample(name="shop.vouchers", rows=60, fate="failing"),
    Sample(name="shop.old_carts", rows=50, fate="not configured"),
]


class SampleLake:
    """Writes the lake of a configuration, run after run."""

    def __init__(self, folder: Path, samples: Iterable[Sample] = SHOP, *, days: int = 14) -> None:
        self.samples = list(samples)
        self.lake = Lake(folder=str(folder / "lake"))
        self.config = folder / "floodmark.yml"
        listed = [s for s in self.samples if s.fate != "not configured"]
        tables = "\n".join(f"      {json.dumps(sample.name)}: {{}}" for sample in listed)
        self.config.write_text(CONFIG.format(tables=tables))
        self.objects = self.lake.open()
        self.end = datetime.now(UTC).replace(microsecond=0) - 20 * MINUTE
        self.now = self.end - days * DAY
        self._runs = 0

    def fill(self, *, every: timedelta = 6 * HOUR) -> None:
        """Run until the end; then let every table meet its fate."""
        middle = self.now + (self.end - self.now) / 2
        while self.now + every < self.end:
            if self.now <= middle < self.now + every:
                self._reconcile()
            left_out = {"never synced"} if self.now < middle else {"never synced", "not configured"}
            self.run([sample for sample in self.samples if sample.fate not in left_out])
            self.now += every
        self._operator()
        self._finish()

    def run(self, samples: list[Sample], *, fates: bool = False) -> None:
        """One run: extract and load each table, and record it."""
        began = self.now
        self._runs += 1
        session = f"{began:%Y%m%d_%H%M%S}_{self._runs:06x}"
        results = [
            self._sync(sample, session, fate=sample.fate if fates else "") for sample in samples
        ]
        notices = (RunNotice(level="warning", message=HELD),) if fates else ()
        self._record("sync", session, began, results, notices)

    def _record(
        self,
        command: str,
        session: str,
        began: datetime,
        results: list[TableRun],
        notices: tuple[RunNotice, ...] = (),
    ) -> None:
        failed = sum(result.status == "failed" for result in results)
        status: RunStatus = "success" if not failed else "partial"
        record = RunRecord(
            run_id=session,
            command=command,
            options={"pipelines": ["shop"]},
            pipelines=("shop",),
            user="etl",
            host="worker-2",
            program=__version__,
            status="failed" if failed == len(results) else status,
            started_at=began,
            seen_at=self.now,
            ended_at=self.now + timedelta(seconds=2),
            table_count=len(results),
            tables=tuple(result for result in results if not result.is_idle),
            unchanged={result.table_name: result.fresh for result in results if result.is_idle},
            notices=notices,
        )
        RunRecords(self.objects, lambda: self.now).save(record)

    def table(self, sample: Sample) -> TableName:
        """The table of a sample."""
        schema, _, name = sample.name.partition(".")
        return TableName("PROD", schema, name)

    def _sync(self, sample: Sample, session: str, *, fate: str) -> TableRun:
        began, table = self.now, self.table(sample)
        if fate == "failing":
            return self._fail(table, session)
        store = open_store(self.objects, session=session, clock=lambda: self.now, lease_seconds=900)
        rows = self._rows(sample)
        seconds = round(0.4 + rows / 900, 3)
        load_seconds = round(0.3 + rows / 2600, 3) if rows and fate != "behind" else 0.0
        with store.lease(table, "extract") as lease:
            if rows:
                self.now += timedelta(seconds=seconds)
                store.commit(table, lambda current: self._chunk(table, current, rows, session))
            lease.note_in_step(began)
            lease.note_held(HELD if fate == "held back" else None)
        if load_seconds:
            self.now += timedelta(seconds=load_seconds)
            self._load(store, table)
        return TableRun(
            table_name=str(table),
            status="held_back" if fate == "held back" else "success",
            rows=rows,
            files=1 if rows else 0,
            bytes=rows * 61,
            loaded_rows=rows if load_seconds else 0,
            seconds=seconds if rows else 0.0,
            load_seconds=load_seconds,
            ended_at=self.now,
            fresh=began,
            held_back=HELD if fate == "held back" else None,
        )

    def _fail(self, table: TableName, session: str) -> TableRun:
        self.now += timedelta(seconds=1)
        hint = "check 'user' and 'password' of the connection PROD"
        failure = Failure(
            stage="extract",
            error=PASSWORD,
            hint=hint,
            since=self.now,
            at=self.now,
            session_id=session,
        )
        record_failure(self.objects, table, failure, owner="etl@worker-2", began=self.now)
        return TableRun(
            table_name=str(table),
            status="failed",
            stage="extract",
            error=PASSWORD,
            hint=hint,
            exit_code=1,
            ended_at=self.now,
        )

    def _load(self, store: WatermarkStore, table: TableName) -> None:
        with store.lease(table, "load") as lease:
            store.update(
                table,
                lambda w: loaded(
                    w,
                    through=w.head,
                    total_rows=w.mysql_state.total_rows,
                    session_rows=0,
                    now=self.now,
                ),
            )
            lease.note_loaded()

    def _rows(self, sample: Sample) -> int:
        """Fewer at night and at weekends; the same every time."""
        weekend = 0.45 if self.now.weekday() >= 5 else 1.0
        night = 0.35 if self.now.hour < 6 else 1.0
        return int(sample.rows * weekend * night * (1 + (self._runs * 7 % 5) / 9))

    def _chunk(self, table: TableName, current: Watermark, rows: int, name: str) -> Chunk:
        end = Position(self.now - timedelta(seconds=3), current.mysql_state.total_rows + rows)
        path = f"{lake_layout.data_files(table)}year={self.now:%Y}/{name}.parquet"
        file = DataFile(path, rows, rows * 61, "", "", end, end)
        return Chunk(start=current.position, end=end, files=(file,), strategy="intra-table")

    def _reconcile(self) -> None:
        """A run finds deleted and stale rows, and repairs them in the target."""
        began = self.now
        session = f"{began:%Y%m%d_%H%M%S}_reconc"
        some = [sample for sample in self.samples if sample.deleted]
        if some:
            results = [self._reconcile_table(sample, session) for sample in some]
            self._record("reconcile", session, began, results)

    def _reconcile_table(self, sample: Sample, session: str) -> TableRun:
        began, table = self.now, self.table(sample)
        store = open_store(self.objects, session=session, clock=lambda: self.now)
        store.update(table, lambda w: _reconciled(w, begun(w.reconciled_state, began, ("id",))))
        self.now += timedelta(seconds=3)
        deletes = lake_layout.deletes_file_key(table, session, 1)
        repaired = f"{lake_layout.data_files(table)}{session}.parquet"
        store.commit(table, lambda w: _repair(w, sample.deleted, deletes, repaired))
        self._load(store, table)
        store.update(table, lambda w: _reconciled(w, _finished(w, self.now)))
        return TableRun(
            table_name=str(table),
            rows=2,
            loaded_rows=2,
            seconds=1.9,
            load_seconds=0.6,
            ended_at=self.now,
        )

    def _operator(self) -> None:
        """An operator sets a position, and a watermark is damaged and recovered."""
        for sample in self.samples:
            store = open_store(self.objects, clock=lambda: self.now)
            if sample.fate == "differs":
                start = Position(self.now - 2 * DAY)
                store.commit(self.table(sample), lambda _, start=start: Set(position=start))  # type: ignore[misc]
            if sample.fate == "behind":
                self.objects.put(lake_layout.primary(self.table(sample)), b"garbage\n")
                store.get(self.table(sample))

    def _finish(self) -> None:
        """The last runs, and comparisons of source and target."""
        self.now = self.end - 20 * MINUTE
        late = [sample for sample in self.samples if sample.fate == "failing"]
        self.run(late, fates=True)
        self.now = self.end
        left_out = {"never synced", "not configured"}
        self.run([s for s in self.samples if s.fate not in left_out], fates=True)
        for sample in self.samples:
            store = open_store(self.objects, clock=lambda: self.now)
            if sample.fate == "differs":
                store.update(
                    self.table(sample),
                    lambda w: differs(
                        w,
                        w.verified_state.position,
                        DIFFERENCE,
                        since=w.verified_state.head,
                        now=self.now,
                    ),
                )
            elif sample.fate == "in step" and sample.rows:
                store.update(
                    self.table(sample),
                    lambda w: verified(w, w.position, through=w.head, now=self.now),
                )
        self._put_safety()

    def _put_safety(self) -> None:
        """A mirror that is complete, and a drill a few days ago."""
        mirror = MirrorState(mirror="./mirror", at=self.end)
        self.objects.put(lake_layout.MIRRORED, msgspec.json.encode(mirror))
        at = self.end - 3 * DAY
        drilled = DrilledTable(at=at, rehearsals=11, slowest_seconds=0.9)
        drill = LastDrill(
            at=at,
            author="etl@worker-2",
            seconds=41.5,
            all_tables=len(self.samples),
            results={str(self.table(sample)): drilled for sample in self.samples},
        )
        self.objects.put(lake_layout.LAST_DRILL, msgspec.json.encode(drill))


def _reconciled(watermark: Watermark, state: ReconciledState) -> Watermark:
    return structs.replace(watermark, reconciled_state=state)


def _finished(watermark: Watermark, now: datetime) -> ReconciledState:
    rows = watermark.mysql_state.total_rows
    return finished(watermark.reconciled_state, rows=rows, left=0, now=now)


def _repair(watermark: Watermark, deleted: int, key: str, repaired: str) -> Chunk:
    """The chunk of a reconciliation: deleted keys, and two stale rows."""
    at = watermark.position
    deletes = DataFile(key, deleted, deleted * 9, "", "", at, at)
    return Chunk(
        start=at,
        end=at,
        files=(DataFile(repaired, 2, 122, "", "", at, at),),
        strategy="sequential",
        primary_key=("id",),
        seconds=1.9,
        reconciled=Reconciled(deletes=(deletes,), deleted=deleted, stale=2),
    )


CONFIG = """\
lake: ./lake
mirror: ./mirror
connections:
  PROD: {{type: mysql, host: db.example, user: reader, password: "${{NO_SUCH_PASSWORD}}"}}
  warehouse: {{type: duckdb, path: ./warehouse.duckdb}}
pipelines:
  shop:
    source: PROD
    target: warehouse
    tables:
{tables}
"""
