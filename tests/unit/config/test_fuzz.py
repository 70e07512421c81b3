"""Any configuration is either valid, or refused in one line."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from floodmark.config import models
from floodmark.config.loading import load_config
from floodmark.config.models import Config
from floodmark.config.secret import Secret
from floodmark.errors import ConfigError
from floodmark.sync.bound import configured_lag, configured_zone

HUGE = [10**18, 10**400, -1, 0, float("inf"), float("-inf"), float("nan"), 1e18, 1e308]
ODD_TEXT = ["", " ", "\0", "\ud800", "none", ".inf", "1e400", "9" * 5000, "${NO}", "a\nb", "ä.b"]
ODD_DATES = ["0001-01-01", "9999-12-31T23:59:59-23:59", "2025-02-30", "12:00", "1week"]
anything: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.dates()
    | st.datetimes()
    | st.sampled_from([*HUGE, *ODD_TEXT, *ODD_DATES]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=4,
)
SOMETIMES_ODD = 12


def value_of(kind: Any, path: str) -> st.SearchStrategy[Any]:
    """Values such as a field of this type takes, and now and then anything at all."""
    fitting = _fitting(kind, path)
    return st.integers(1, SOMETIMES_ODD).flatmap(lambda roll: anything if roll == 1 else fitting)


def _fitting(kind: Any, path: str) -> st.SearchStrategy[Any]:
    origin, inner = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return struct_of(kind, path)
    if origin is Annotated:
        return _fitting(inner[0], path)
    if origin in (Union, UnionType):
        return st.one_of([_fitting(choice, path) for choice in inner])
    if origin is Literal:
        return st.sampled_from(inner)
    if origin is list:
        return st.lists(_fitting(inner[0], path), max_size=3)
    if origin is dict:
        return st.dictionaries(names(path), value_of(inner[1], path), max_size=2)
    if kind is bool:
        return st.booleans()
    if kind is int:
        return st.integers(0, 100_000) | st.sampled_from(HUGE)
    if kind is float:
        return st.floats() | st.sampled_from(HUGE)
    if kind in (str, Secret):
        return names(path) | st.sampled_from(ODD_TEXT)
    if kind is type(None):
        return st.none()
    return st.datetimes() | st.sampled_from(ODD_DATES)


def names(path: str) -> st.SearchStrategy[str]:
    """Names that are likely to fit together."""
    if path.endswith("tables"):
        return st.sampled_from(["s.t", "s.u", "A:s.t", "s", "s.t.u"])
    if path.endswith("cursor"):
        return st.sampled_from(["id", "ID", "updated_at", "none"])
    return st.sampled_from(["A", "B", "spark.x", "s3://bucket/x", "./folder", "Europe", "UTC"])


def struct_of(kind: type[msgspec.Struct], path: str) -> st.SearchStrategy[dict[str, Any]]:
    hints = get_type_hints(kind, include_extras=True)
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    values = {name: value_of(hints[name], f"{path}.{name}") for name in fields}
    required = {name: values[name] for name, field in fields.items() if field.required}
    optional = {name: value for name, value in values.items() if name not in required}
    config = kind.__struct_config__
    tag = {config.tag_field: st.just(config.tag)} if config.tag_field else {}
    return st.fixed_dictionaries({**tag, **required}, optional=optional)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with TemporaryDirectory() as path:
        yield Path(path)


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(raw=struct_of(Config, ""))
def test_a_configuration_is_valid_or_refused_in_one_line(folder: Path, raw: dict[str, Any]) -> None:
    file = folder / "floodmark.yml"
    file.write_text(yaml.safe_dump(raw), encoding="utf-8", errors="surrogatepass")
    try:
        loaded = load_config(str(file), {})
        for table in loaded.tables:
            assert loaded.tables[table][1].cursor_columns != ("",)
            loaded.target_of(table)
            loaded.connection(table.scope)
        extraction = loaded.settings.extraction
        configured_zone(extraction.cursor_time_zone)
        configured_lag(extraction)
    except ConfigError as error:
        assert_one_line(error)


@settings(max_examples=200)
@example(raw={"a\nb": 5}, key="connections")
@example(raw=[1, 2], key="default_start")
@given(raw=anything, key=st.sampled_from(list(Config.__struct_fields__)))
def test_anything_behind_a_key(folder: Path, raw: Any, key: str) -> None:
    file = folder / "floodmark.yml"
    text = yaml.safe_dump({"lake": "./lake", key: raw})
    file.write_text(text, encoding="utf-8", errors="surrogatepass")
    try:
        load_config(str(file), {})
    except ConfigError as error:
        assert_one_line(error)


def test_every_number_has_an_upper_limit() -> None:
    found = [
        f"{name}.{field.name}"
        for name, kind in vars(models).items()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
        for field in msgspec.structs.fields(kind)
        if _is_unlimited(field.type)
    ]
    assert found == []


def _is_unlimited(kind: Any) -> bool:
    if get_origin(kind) is Annotated:
        number, *metas = get_args(kind)
        return number in (int, float) and all(meta.le is None for meta in metas)
    return kind in (int, float) or any(map(_is_unlimited, get_args(kind)))


@pytest.mark.parametrize(
    "text", [".inf", "-.inf", ".nan", "1e18", "'inf'", "'nan'", "0x" + "f" * 9999]
)
@pytest.mark.parametrize(
    "setting",
    [
        "extraction: {lag_seconds: %s}",
        "extraction: {windows_per_chunk: %s}",
        "extraction: {window_rows: %s}",
        "loading: {adopt_hours: %s}",
        "loading: {batch_mb: %s}",
        "retries: {tries: %s}",
        "retries: {first_seconds: %s}",
        "lease_seconds: %s",
    ],
)
def test_huge_numbers_are_refused(folder: Path, setting: str, text: str) -> None:
    file = folder / "floodmark.yml"
    file.write_text("lake: ./lake\n" + setting % text)
    with pytest.raises(ConfigError) as refused:
        load_config(str(file), {})
    assert_one_line(refused.value)


def assert_one_line(error: ConfigError) -> None:
    for said in (error.message, error.hint or ""):
        assert "\n" not in said
        said.encode()
