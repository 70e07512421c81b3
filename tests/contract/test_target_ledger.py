"""Targets sum up their ledger themselves; a load reads only the entries that it needs."""

from collections.abc import Sequence
from random import Random
from typing import Any

from msgspec import structs

from floodmark.model.load import LedgerTotals, LoadChunk, deleted_rows, loaded_rows
from floodmark.model.load import quarantined_rows as aside
from floodmark.model.log_state import ManifestId
from floodmark.warehouse.sql_target import SqlTarget
from warehouses import PEOPLE, Loads, Warehouse

MANY = 1200


def note(target: SqlTarget, loads: Loads, chunks: Sequence[LoadChunk], epoch: int = 1) -> None:
    """Write chunks into the ledger as a load does."""
    target.prepare(PEOPLE)
    target._begin()
    target._note(loads.batch(*chunks, load_epoch=epoch), chunks, again=False)
    target._commit()


def test_a_part_of_the_ledger_and_its_sums_agree_with_all_of_it(warehouse: Warehouse) -> None:
    random = Random(7)
    loads = Loads(warehouse, PEOPLE)
    heads = [ManifestId(epoch, number) for epoch in (1, 2, 5) for number in range(1, 9)]
    with warehouse.open() as target:
        assert isinstance(target, SqlTarget)
        assert target.ledger_totals(loads.source, 1) == LedgerTotals()
        for epoch in (1, 2):
            chunks = [
                structs.replace(
                    loads.chunk(head=head),
                    rows=random.randrange(50, 90),
                    quarantined_rows=random.randrange(9),
                    deleted_rows=random.randrange(9),
                )
                for head in random.sample(heads, 15)
            ]
            note(target, loads, chunks, epoch)
        for epoch in (1, 2, 3):
            every = target.ledger(loads.source, epoch)
            assert target.ledger_totals(loads.source, epoch) == LedgerTotals(
                entries=len(every),
                rows=loaded_rows(every),
                quarantined_rows=aside(every),
                deleted_rows=deleted_rows(every),
                newest=max((entry.head for entry in every), default=None),
            )
            for after in [*heads, ManifestId(1, 0), ManifestId(3, 0), ManifestId(6, 0)]:
                later = target.ledger(loads.source, epoch, after=after)
                assert {e.head for e in later} == {e.head for e in every if e.head > after}


def test_a_load_reads_few_entries_of_a_long_ledger(warehouse: Warehouse) -> None:
    loads = Loads(warehouse, PEOPLE)
    with warehouse.open() as target:
        assert isinstance(target, SqlTarget)
        note(target, loads, [structs.replace(loads.chunk(), rows=1) for _ in range(MANY)])
        look, read = target._look, []

        def counting(*arguments: Any) -> Any:
            rows = look(*arguments)
            read.append(len(rows))
            return rows

        target._look = counting  # type: ignore[method-assign,assignment]
        assert target.load(loads.batch(loads.chunk([{"id": 1, "name": "new"}]))) == 1
        assert sum(read) < 20
        assert target.ledger_totals(loads.source, 1).entries == MANY + 1
