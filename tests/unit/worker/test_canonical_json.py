"""JSON is compared by its meaning, whatever its spelling."""

import json
import random
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodmark.worker.canonical_json import plain_json, write_slowly

NUMBERS = st.sampled_from(
    [
        *("0", "-0", "-0.0", "0e9", "1", "1.0", "1e0", "10", "1e1", "1E+1", "100e-1", "-15e-1"),
        *("1e22", "1" + "0" * 22, "1e-7", "0.0000001", "1e400", "1" + "0" * 400, "-1.5"),
        *("18446744073709551615", "18446744073709551616", "9" * 4500, "1e5000", "1" + "0" * 5000),
        *("1e131071", "1e300000", "1e-16383", "0." + "1" * 99, "0." + "1" * 100),
    ]
)
LEAVES = NUMBERS.map(Decimal) | st.none() | st.booleans() | st.text()
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=9
)


def spelled(value: Any, chosen: random.Random) -> str:
    """Spell a value in one of many ways."""
    space = chosen.choice(["", " ", "\n"])
    match value:
        case dict():
            members = list(value.items())
            chosen.shuffle(members)
            parts = [f"{spelled(k, chosen)}{space}:{spelled(v, chosen)}" for k, v in members]
            return "{" + f"{space},".join(parts) + "}"
        case list():
            return f"[{f',{space}'.join(spelled(item, chosen) for item in value)}{space}]"
        case Decimal() if value.adjusted() < 9000 and value != 0:
            positional = format(value, "f")
            more = positional + ("0" if "." in positional else ".00")
            return chosen.choice([str(value), positional, more, f"{value:e}"])
        case Decimal():
            return str(value)
    return json.dumps(value, ensure_ascii=chosen.random() < 0.5)


@settings(max_examples=300, deadline=None)
@given(VALUES, st.integers(0, 9), st.integers(0, 9))
def test_every_spelling_of_a_value_is_one_text(value: Any, one: int, other: int) -> None:
    first, second = (spelled(value, random.Random(seed)) for seed in (one, other))
    assert plain_json(first) == plain_json(second) == write_slowly(first) == write_slowly(second)


@settings(max_examples=300, deadline=None)
@given(VALUES, VALUES)
def test_other_values_have_another_text(one: Any, other: Any) -> None:
    texts = [spelled(value, random.Random(1)) for value in (one, other)]
    assert (plain_json(texts[0]) == plain_json(texts[1])) == (_typed(one) == _typed(other))


def _typed(value: Any) -> Any:
    """The value; True is not 1 here."""
    match value:
        case dict():
            return {key: _typed(item) for key, item in value.items()}
        case list():
            return [_typed(item) for item in value]
    return type(value), value


@pytest.mark.parametrize(
    "text", ["{broken", "[1,]", "01", "1.", "NaN", '"\\ud800"', "", "[1] 2", '{"a":NaN}', "1e"]
)
def test_both_ways_agree_on_what_is_no_json(text: str) -> None:
    assert plain_json(text) == write_slowly(text)


def test_digits_beyond_all_databases_are_not_rounded() -> None:
    one, other = (f"0.{'1' * 250_000}{digit}" for digit in "12")
    assert plain_json(one) != plain_json(other)
