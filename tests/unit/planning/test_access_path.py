"""The access path to a table's new rows."""

from datetime import UTC, datetime

import pytest
from msgspec import structs

from floodmark.errors import FloodmarkError
from floodmark.model.cursor import Cursor
from floodmark.model.position import START, KeyScan, Position
from floodmark.model.schema import SourceColumn, SourceIndex, SourceTable
from floodmark.model.table import TableName
from floodmark.planning.access_path import choose_route, walk_bound
from floodmark.planning.null_cursors import judge_unusable

BOUND = Position(datetime(2025, 8, 4, tzinfo=UTC))
LATER = Position(datetime(2025, 8, 5, tzinfo=UTC), 7)
BY_TIME = Cursor(kind="timestamp", timestamp="update_at", key=("id",))
BY_ID = Cursor(kind="id", key=("id",))
LARGE = SourceTable(
    name=TableName("S", "a", "b"),
    columns=tuple(
        SourceColumn(name=name, data_type=kind, column_type=kind, nullable=False)
        for name, kind in (("id", "bigint"), ("update_at", "datetime"))
    ),
    primary_key=("id",),
    indexes=(
        SourceIndex(name="PRIMARY", columns=("id",), unique=True),
        SourceIndex(name="u", columns=("update_at",), unique=False),
    ),
    estimated_rows=5_000_000,
)
SMALL = structs.replace(LARGE, estimated_rows=5_000)
BARE = structs.replace(LARGE, indexes=LARGE.indexes[:1])
DESCENDING = structs.replace(LARGE, indexes=LARGE.indexes[1:])
KEYLESS = structs.replace(LARGE, primary_key=(), indexes=())


def test_syncs_follow_the_cursor() -> None:
    for table, start in ((SMALL, START), (LARGE, LATER), (SMALL, LATER)):
        route = choose_route(table, BY_TIME, start)
        assert (route.by, route.index, route.chunked) == ("cursor", "u", True)


def test_the_first_load_of_a_large_table_scans_the_primary_key() -> None:
    route = choose_route(LARGE, BY_TIME, START)
    assert (route.by, route.index, route.chunked) == ("key", "PRIMARY", True)
    # A default start is no reason to follow the cursor if most rows are after it.
    assert choose_route(LARGE, BY_TIME, LATER, rows_in_range=4_000_000).by == "key"
    assert choose_route(LARGE, BY_TIME, LATER, rows_in_range=400_000).by == "cursor"


def test_an_unordered_key_is_not_scanned() -> None:
    time_alone = Cursor(kind="timestamp", timestamp="update_at", unique=False)
    assert choose_route(DESCENDING, time_alone, START).index == "u"
    assert choose_route(DESCENDING, BY_TIME, START).index is None
    assert choose_route(DESCENDING, BY_ID, START).index is None
    assert choose_route(DESCENDING, Cursor(kind="none"), START).by == "cursor"


def test_a_limit_or_an_id_cursor_follows_the_cursor() -> None:
    assert choose_route(LARGE, BY_TIME, START, limit=50).by == "cursor"
    assert choose_route(LARGE, BY_ID, START).index == "PRIMARY"
    assert choose_route(LARGE, BY_ID, START).by == "cursor"


def test_an_interrupted_scan_resumes_under_its_own_bound() -> None:
    under_way = Position(walk=KeyScan(99, BOUND))
    assert choose_route(SMALL, BY_TIME, under_way, limit=5).by == "key"
    assert walk_bound(under_way) == BOUND
    assert walk_bound(LATER) is None


def test_without_an_index_there_is_one_chunk() -> None:
    route = choose_route(BARE, BY_TIME, LATER)
    assert (route.by, route.chunked) == ("key", False)
    assert "no index on (update_at, id)" in route.why
    assert choose_route(BARE, BY_TIME, START).chunked  # the first load can still be resumed
    route = choose_route(KEYLESS, Cursor(kind="timestamp", timestamp="update_at"), LATER)
    assert (route.by, route.index, route.chunked) == ("cursor", None, False)


def test_full_reloads_are_one_chunk() -> None:
    assert choose_route(LARGE, Cursor(kind="none"), START).chunked is False
    assert choose_route(KEYLESS, Cursor(kind="none"), START).index is None


def test_rows_without_a_cursor_are_reported_or_refused() -> None:
    assert judge_unusable(LARGE.name, BY_TIME, 0, "error") is None
    assert "3 rows" in str(judge_unusable(LARGE.name, BY_TIME, 3))
    with pytest.raises(FloodmarkError, match="3 rows"):
        judge_unusable(LARGE.name, BY_TIME, 3, "error")
