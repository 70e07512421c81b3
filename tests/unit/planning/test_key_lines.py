"""Lines of keys and versions show which keys differ."""

from hypothesis import given
from hypothesis import strategies as st

from floodmark.planning.key_lines import differing_numbers, number_batches

ROWS = st.lists(st.tuples(st.integers(-4, 4), st.integers(0, 2)), max_size=12)


def text(rows: list[tuple[int, int]]) -> str:
    return "\n".join(f"{key},{version or ''}" for key, version in rows)


@given(ROWS, ROWS, st.integers(0, 12))
def test_all_keys_that_differ_and_no_others(
    source: list[tuple[int, int]], target: list[tuple[int, int]], at: int
) -> None:
    source = list(dict(source).items())  # its key is unique
    found = differing_numbers([text(source[:at]), text(source[at:])], text(target))
    keys = {key for key, _ in (*source, *target)}
    assert found == sorted(
        key
        for key in keys
        if [row for row in source if row[0] == key] != [row for row in target if row[0] == key]
    )


def test_keys_are_divided_into_batches() -> None:
    assert list(number_batches([1, 2, 3, 7, 9], 3)) == [[(1, 3)], [(7, 7), (9, 9)]]
    assert list(number_batches([], 3)) == [[]]
