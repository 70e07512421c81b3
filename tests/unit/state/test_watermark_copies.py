"""Which redundant copy of a watermark is the newest."""

import pytest
from msgspec import structs

from floodmark.model.checksummed_json import seal
from floodmark.model.table import TableName
from floodmark.model.timestamps import utc_now
from floodmark.model.watermark import empty_watermark
from floodmark.state.watermark_copies import Copies
from floodmark.storage.memory import MemoryObjectStore

TABLE = TableName("PROD", "shop", "orders")


@pytest.mark.parametrize("suffixes", [("a", "b"), ("b", "a")])
def test_the_revision_decides_between_sessions_of_one_second(suffixes: tuple[str, str]) -> None:
    copies = Copies(MemoryObjectStore(), utc_now, lambda _notice: None)
    for revision, suffix in enumerate(suffixes, 1):
        session_id = f"20250804_120000_{suffix}"
        watermark = structs.replace(
            empty_watermark(TABLE, session_id, utc_now()), revision=revision
        )
        copies.save(TABLE, seal(watermark), session_id)
    found = [copy.watermark.revision for copy in copies.sessions(TABLE) if copy.watermark]
    assert found == [2, 1]
