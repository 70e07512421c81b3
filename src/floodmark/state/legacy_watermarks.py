"""Read watermarks that older systems left in the lake.

They are in one of three folders, under one of several spellings of the table's name (perhaps in
lower case), as a flat document (`last_mysql_data_timestamp`, …) or a nested one (`mysql_state`, …).
They are never changed. If several disagree, the one furthest behind is used, and one without a
position is behind all others: reading again is safe, skipping is not.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from typing import Any

from msgspec import structs

from floodmark.errors import CorruptDocument, ObjectNotFound, StateError, UsageError
from floodmark.model.checksummed_json import read_object
from floodmark.model.log_state import ImportedFrom
from floodmark.model.manifest import Import
from floodmark.model.notice import Notice, Report
from floodmark.model.position import LARGEST_NUMBER, Position
from floodmark.model.run import Strategy
from floodmark.model.table import TableName
from floodmark.model.timestamps import parse_timestamp
from floodmark.model.watermark import in_future, position_in_future
from floodmark.storage.objects import ObjectStore, is_key

_HINT = "fix or remove it, or set the position by hand"
FOLDERS = ("watermarks/v2/", "watermarks/", "watermark/tables/")


def spellings(table: TableName) -> list[str]:
    """Return every way in which an older system may have written a table's name."""
    dotted, underscored = (f"{table.schema}{dot}{table.table}" for dot in "._")
    names = [dotted, underscored]
    for separator in (":", ".", "_"):
        names += [f"{table.scope}{separator}{dotted}", f"{table.scope}{separator}{underscored}"]
    return names


def any_case(table: TableName) -> list[str]:
    """Return every spelling of a table's name, as it is and in lower case."""
    names = spellings(table)
    return list(dict.fromkeys([*names, *map(str.lower, names)]))


class Spellings:
    """Look up the known tables that a spelling may refer to."""

    def __init__(self, known: Collection[TableName]) -> None:
        self._known = known

    @cached_property  # used for each of thousands of tables
    def _tables(self) -> dict[str, list[TableName]]:
        found: dict[str, list[TableName]] = defaultdict(list)
        for table in self._known:
            for spelling in {str(table), *any_case(table)}:
                found[spelling].append(table)
        return found

    def meant(self, spelling: str, table: TableName) -> list[TableName]:
        """Return the table with this full name, or else all that it may refer to.

        `table` counts as known.
        """
        tables = {table, *self._tables.get(spelling, ())}
        exactly = [one for one in tables if str(one) == spelling]
        return exactly or [one for one in tables if spelling in any_case(one)]

    def refuse_ambiguity(self, table: TableName, spelling: str, key: str) -> None:
        """Raise StateError if a spelling may refer to several known tables; case matters."""
        fitting = self._tables.get(spelling, ())
        _refuse_several(table, [other for other in fitting if spelling in spellings(other)], key)


def find_older(
    objects: ObjectStore,
    table: TableName,
    known: Spellings,
    *,
    now: datetime,
    report: Report,
) -> Import | None:
    """Return the position that an older system left for a table; None if there is none.

    `known` are the other tables that a spelling might refer to. Raise CorruptDocument or StateError
    if a document cannot be trusted; never guess.
    """
    found: list[Import] = []
    broken: list[CorruptDocument] = []
    for key, spelling, data in _documents(objects, table):
        try:
            document = _decode(data, key)
            named = document.get("table_name")
            meant = known.meant(spelling if named is None else str(named), table)
            if table not in meant:
                continue  # another table with the same spelling
            _refuse_several(table, meant, key)
            found.append(_read(document, key, now))
        except CorruptDocument as error:
            broken.append(error)
        except RecursionError:
            broken.append(_corrupt(key, "nested too deeply"))
    nowhere = all(candidate.position.is_start for candidate in found)
    for damaged in broken:
        if nowhere:
            raise damaged
        report(Notice("warning", f"ignored: {damaged.message}"))
    if nowhere:
        return None
    chosen = _furthest_behind(table, found)
    others = [
        f"{other.origin.key} ({other.position})" for other in found if other.origin != chosen.origin
    ]
    message = f"{table}: position imported from {chosen.origin.key}"
    report(Notice("info", message, "import", str(table)))
    if others:
        report(
            Notice(
                "warning",
                f"{table}: using {chosen.origin.key} ({chosen.position}), which is furthest behind;"
                f" ignored: {', '.join(others)}",
            )
        )
    return chosen


def _documents(objects: ObjectStore, table: TableName) -> Iterator[tuple[str, str, bytes]]:
    for folder in FOLDERS:
        for spelling in any_case(table):
            key = f"{folder}{spelling}.json"
            if not is_key(key):
                continue  # such as one with `..` in it, which would leave the folder
            try:
                yield key, spelling, objects.get(key).data
            except ObjectNotFound:
                continue


def _decode(data: bytes, key: str) -> dict[str, Any]:
    try:
        return read_object(data, name=key)
    except CorruptDocument as error:
        raise CorruptDocument(error.message, hint=_HINT) from error


def _refuse_several(table: TableName, meant: Collection[TableName], key: str) -> None:
    if len(meant) > 1:
        raise StateError(
            f"{key} may belong to {' or '.join(sorted(map(str, meant)))}",
            hint=f"set where {table} starts: floodmark watermark set -t {table} …,"
            " or put the scoped name into its 'table_name'",
        )


def _read(document: dict[str, Any], key: str, now: datetime) -> Import:
    nested = document.get("mysql_state")
    state = nested if isinstance(nested, dict) else document
    metadata = document.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    timestamp = _moment(state, ("last_timestamp", "last_mysql_data_timestamp"), key)
    if timestamp is not None and position_in_future(timestamp, now):
        raise _corrupt(key, f"its position {timestamp.isoformat()} is in the future")
    strategy = _strategy(document.get("backup_strategy"))
    manual = strategy == "manual_cli" or bool(metadata.get("manual_watermark"))
    updated = _moment(document, ("updated_at",), key) or _moment(metadata, ("updated_at",), key)
    extracted = _moment(state, ("last_extraction_time", "last_mysql_extraction_time"), key)
    if extracted is not None and in_future(extracted, now):
        raise _corrupt(key, f"its extraction time {extracted.isoformat()} is in the future")
    return Import(
        position=Position(timestamp, _count(state, ("last_id", "last_processed_id"), key)),
        origin=ImportedFrom(
            key=key,
            rows_reported=_count(state, ("total_rows", "mysql_rows_extracted"), key) or 0,
            files_reported=_count(state, ("s3_file_count",), key) or 0,
        ),
        strategy=strategy,
        extraction_time=extracted,
        manual_set_at=(updated or now) if manual else None,
    )


def _moment(state: dict[str, Any], keys: tuple[str, ...], origin: str) -> datetime | None:
    for key in keys:
        value = state.get(key)
        if value in (None, ""):
            continue
        try:
            return parse_timestamp(str(value))
        except UsageError as error:
            raise _corrupt(origin, f"{key}: {error.message}") from error
    return None


def _count(state: dict[str, Any], keys: tuple[str, ...], origin: str) -> int | None:
    for key in keys:
        value = state.get(key)
        if value in (None, ""):
            continue
        number = _whole(value)
        if number is None or number > LARGEST_NUMBER:
            raise _corrupt(origin, f"{key} is {value!r}")
        if number < 0:
            raise _corrupt(origin, f"{key} is negative: {number}")
        return number
    return None


def _whole(value: object) -> int | None:
    """Return a whole number, also from text; None if the value is not exactly one."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, int | str) and not isinstance(value, bool):
        with suppress(ValueError):
            return int(value)
    return None


def _strategy(value: object) -> Strategy:
    strategies: tuple[Strategy, ...] = ("inter-table", "intra-table", "manual_cli")
    for known in strategies:
        if str(value).replace("_", "-") == known.replace("_", "-"):
            return known
    return "sequential"


def _furthest_behind(table: TableName, found: list[Import]) -> Import:
    # The start compares with any position; other pairs may not compare.
    behind, *rest = sorted(found, key=lambda candidate: not candidate.position.is_start)
    for candidate in rest:
        order = candidate.position.compare(behind.position)
        if order is None:
            raise StateError(
                f"{behind.origin.key} ({behind.position}) and {candidate.origin.key}"
                f" ({candidate.position}) disagree, and neither is clearly behind",
                hint=f"set where {table} starts: floodmark watermark set -t {table} …",
            )
        if order < 0:
            behind = candidate
    position = behind.position
    # An id cursor ignores the time: only the smallest id skips nothing.
    ids = [other.position.id for other in found if isinstance(other.position.id, int)]
    if isinstance(position.id, int) and min(ids) < position.id:
        return structs.replace(behind, position=structs.replace(position, id=min(ids)))
    return behind


def _corrupt(key: str, problem: str) -> CorruptDocument:
    return CorruptDocument(f"{key}: {problem}", hint=_HINT)
