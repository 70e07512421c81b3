"""Detect manifests with incompatible primary keys."""

import pytest

from floodmark.model.log_state import LogState
from floodmark.model.manifest import Chunk, Column, Manifest
from floodmark.model.position import START, Position
from floodmark.model.timestamps import parse_timestamp
from floodmark.planning.key_change import key_change


def manifest(
    number: int,
    key: str,
    type_: str,
    *,
    epoch: int = 1,
    reload: bool = False,
    empty: bool = False,
) -> Manifest:
    return Manifest(
        table_name="S:s.t",
        epoch=epoch,
        sequence=number,
        created_at=parse_timestamp("2025-06-01"),
        session_id="s",
        author="a",
        change=Chunk(
            start=START,
            end=START if empty else Position(id=number),
            files=(),
            strategy="sequential",
            columns=(Column("id", type_, False, "x"),),
            primary_key=(key,) if key else (),
            reload=reload,
        ),
        standing=LogState(),
    )


@pytest.mark.parametrize(
    ("before", "now", "found"),
    [
        (("id", "int"), ("id", "bigint"), None),
        (("id", "int"), ("ID", "int"), None),
        (("id", "bigint"), ("id", "int"), None),
        (("", "int"), ("id", "int"), ("nothing", "(id)")),
        (("id", "int"), ("other", "int"), ("(id)", "(other)")),
        (("id", "uuid"), ("id", "binary(16)"), ("(id) with uuid", "(id) with binary(16)")),
        (("id", "smallint"), ("id", "year"), ("(id) with smallint", "(id) with year")),
    ],
)
def test_compatible_and_incompatible_keys(
    before: tuple[str, str], now: tuple[str, str], found: tuple[str, str] | None
) -> None:
    pair = [manifest(1, *before), manifest(2, *now)]
    assert key_change(pair) == found
    assert key_change(pair[::-1]) == found  # a skipped manifest may be loaded late


def test_key_changes_across_reloads_and_resets() -> None:
    old = manifest(1, "id", "uuid", reload=True)
    assert key_change([old, manifest(2, "id", "binary(16)", reload=True)]) is None
    assert key_change([manifest(1, "id", "bigint"), manifest(1, "id", "int", epoch=2)]) is not None
    assert key_change([]) is None


def test_the_key_of_an_empty_table_does_not_count() -> None:
    assert key_change([manifest(1, "", "int", empty=True), manifest(2, "id", "int")]) is None
