"""Table names and their storage keys."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from floodmark.errors import UsageError
from floodmark.model.table import TableName, split_name, valid_scope
from floodmark.storage.objects import check_key

PARTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
SCOPES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,20}", fullmatch=True)
IDENTIFIERS = PARTS.filter(lambda part: part.isprintable() and part == part.strip())
NAMES = st.builds(TableName, PARTS, PARTS, PARTS)
WRITABLE_NAMES = st.builds(TableName, SCOPES, IDENTIFIERS, IDENTIFIERS)


@given(NAMES)
@example(TableName("A", "%41", "%"))
@example(TableName("A", "ü%C3", "%BC"))
@example(TableName("a/b", "..", "/"))
def test_a_key_round_trips(name: TableName) -> None:
    assert TableName.from_key(name.key) == name


@given(NAMES, NAMES)
@example(TableName("S", "a", "b_c"), TableName("S", "a_b", "c"))
@example(TableName("S", "a.b", "c"), TableName("S", "a", "b.c"))
@example(TableName("S/a", "b", "c"), TableName("S", "a/b", "c"))
@example(TableName("S", "a%2Eb", "c"), TableName("S", "a.b", "c"))
def test_different_names_have_different_keys(one: TableName, other: TableName) -> None:
    assert (one.key == other.key) == (one == other)


@given(NAMES)
def test_key_is_safe_everywhere(name: TableName) -> None:
    assert check_key(name.key) == name.key
    assert name.key.isascii()
    assert name.key.count("/") == 1
    assert name.key.count(".") == 1


@given(WRITABLE_NAMES)
@example(TableName("S", "a:b", "c:d.e"))
@example(TableName("S", "my.schema", "a.b"))
@example(TableName("S", "`", "`a`"))
@example(TableName("S", "`a.b`", "``"))
def test_what_is_shown_can_be_read(name: TableName) -> None:
    assert TableName.parse(str(name)) == name


@given(WRITABLE_NAMES)
@example(TableName("S", "a:b", "c:d.e"))
@example(TableName("S", "S", "a:b"))
@example(TableName("S", "`a.b`", "``:"))
def test_unscoped_name_can_be_read(name: TableName) -> None:
    assert split_name(name.unscoped) == (None, name.schema, name.table)


def test_names_in_backticks_are_those_of_mysql() -> None:
    assert split_name("`my.schema`.`a.b`") == (None, "my.schema", "a.b")
    assert split_name("A:`my.schema`.t") == ("A", "my.schema", "t")
    assert split_name("shop.`a:b`") == (None, "shop", "a:b")
    assert split_name("`shop`.`a``b`") == (None, "shop", "a`b")
    # Older watermarks contain names without backticks.
    assert str(TableName("A", "shop", "a.b")) == "A:shop.a.b"
    assert str(TableName("A", "a:b", "c:d")) == "A:a:b.c:d"


def test_usual_names_have_readable_keys() -> None:
    name = TableName.parse("US_PROD_RO_SSH:settlement.settlement_normal_delivery_detail")
    assert name == TableName("US_PROD_RO_SSH", "settlement", "settlement_normal_delivery_detail")
    assert name.key == "US_PROD_RO_SSH/settlement.settlement_normal_delivery_detail"
    assert name.unscoped == "settlement.settlement_normal_delivery_detail"


BAD = [
    "",
    ".",
    ":",
    "orders",
    "shop.",
    ".orders",
    "A:",
    "A:orders",
    "A:.orders",
    "A:shop.",
    ":shop.orders",
    "A B:shop.orders",
    "-A:shop.orders",
    "ü:shop.orders",
    "A.b:shop.orders",
    " shop.orders",
    "shop.orders ",
    "shop .orders",
    "shop. orders",
    "shop.orders\n",
    "shop.or\x00ders",
    "shop.\udcff",
]


@pytest.mark.parametrize("text", BAD)
def test_bad_names_are_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        split_name(text)
    assert repr(text) in caught.value.message
    assert "schema.table" in (caught.value.hint or "")


@pytest.mark.parametrize("text", BAD)
def test_bad_names_are_refused_with_a_scope_too(text: str) -> None:
    with pytest.raises(UsageError):
        TableName.parse(text)


def test_a_scope_is_required() -> None:
    with pytest.raises(UsageError, match=r"'shop.orders' has no scope"):
        TableName.parse("shop.orders")


@given(st.text("Ab./%63FC", max_size=12))
@example("A/b.%c3%bc")
@example("A/b.c/d")
def test_each_name_has_one_key(text: str) -> None:
    try:
        name = TableName.from_key(text)
    except UsageError:
        return
    assert name.key == text


@pytest.mark.parametrize("text", ["A/b", "A/b.", "/b.c", "A/b.c.d", "A/b.%FF", "A/b.%63", "b.c"])
def test_foreign_keys_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not the key of a table"):
        TableName.from_key(text)


@pytest.mark.parametrize("text", ["A", "us-prod_2", "7"])
def test_scopes(text: str) -> None:
    assert valid_scope(text)


@pytest.mark.parametrize("text", ["", "_a", "-a", "a.b", "a b", "a:b", "a/b", "ä", "a\n"])
def test_bad_scopes(text: str) -> None:
    assert not valid_scope(text)


def test_names_sort() -> None:
    names = [TableName("A", "b", "a"), TableName("B", "a", "a"), TableName("A", "a", "b")]
    assert [str(name) for name in sorted(names)] == ["A:a.b", "A:b.a", "B:a.a"]
