"""Any input works or is refused in one line, never with a traceback."""

import os
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from floodmark.cli.main import run
from floodmark.config.loading import load_config
from floodmark.errors import ConfigError
from floodmark.model.position import Position
from floodmark.model.timestamps import moved
from floodmark.planning.next_position import first_position, right_before
from scenarios import CONFIG, Lake, land, open_store, write_config

MOMENTS = [
    "0000-00-00 00:00:00",
    "0000-01-01",
    "0001-01-01",
    "0001-01-01T00:00:00+14:00",
    "-0001-01-01",
    "1000-01-01 00:00:00",
    "9999-12-31 23:59:59.999999",
    "9999-12-31T23:59:59.999999+14:00",
    "9999-12-31T23:59:59-14:00",
    "10000-01-01",
    "99999999999999999999",
    "2025-02-30",
    "2025-01-01T24:00:00",
    "2025-01-01T00:00:00+99:99",
    "now-99999999d",
    "٢٠٢٥-01-01",
    "",
    "\udcff",
]
SPANS = ["0d", "99999d", "99999w", "-1d", "1e9d", "٣d", "1d" * 1000, ""]
PRESETS = ["0day", "9999month", "9999week", "99999day", "1" * 400 + "day", "aug4\n", ""]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    lake = Lake(folder=str(tmp_path / "lake"))
    write_config(tmp_path, lake)
    land(open_store(lake.open()), rows=3, name="first")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_SUCH_PASSWORD", "x")
    return tmp_path


def answer(*arguments: str) -> str:
    """What a command says; a line or two, whatever it was given."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run(list(arguments))
    said = err.getvalue()
    assert "unexpected" not in said, said
    assert "Traceback" not in said + out.getvalue()
    assert code in (0, 1, 2, 5)
    if code in (1, 2):
        assert "error: " in said
    return said


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("text", MOMENTS)
def test_any_timestamp(text: str) -> None:
    set_it = ["watermark", "set", "-t", "shop.payments", "--force", "--timestamp", text]
    answer(*set_it)
    answer("watermark", "get", "-t", "shop.payments")
    answer("watermark", "validate", "-t", "shop.payments")
    answer("watermark", "list")


@pytest.mark.usefixtures("folder")
def test_any_span_and_preset() -> None:
    for text in SPANS:
        answer("s3clean", "clean", "-t", "shop.orders", "--dry-run", "--older-than", text)
        answer("watermark", "prune", "--keep-days", text)
        answer("sync", "-p", "shop_pipeline", "--dry-run", "--every", text)
    for text in PRESETS:
        answer("watermark", "set", text, "--force")
        answer("watermark", "list")


NAMES = st.text(max_size=12) | st.text("./\\`:%~\0\n A漢é", max_size=12)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=NAMES)
@example("shop...")
@example("US_PROD:../..")
@example("US_PROD:`..`.`..`")
@example("US_PROD:`../../x`.t")
@example("US_PROD:" + "漢" * 64 + "." + "字" * 64)
@example("US_PROD:a.b\ud800")
def test_any_name_of_a_table(folder: Path, name: str) -> None:
    before = set(folder.parent.iterdir())
    answer("watermark", "get", "-t", name)
    answer("s3clean", "list", "-t", f"US_PROD:{name}")
    assert set(folder.parent.iterdir()) == before


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.text("./\\`:%~\n A漢é\"'{}", max_size=12))
@example("..")
@example("shop...")
@example("`..`.`..`")
@example("`../../x`.t")
@example("漢" * 64 + "." + "字" * 64)
def test_any_name_in_a_configuration(folder: Path, name: str) -> None:
    quoted = '"' + name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    config = CONFIG.format(lake=folder / "lake").replace("shop.payments", quoted)
    (folder / "floodmark.yml").write_text(config)
    for command in (["watermark", "list"], ["watermark", "validate"], ["sync", "--help"]):
        answer(*command)
    said = answer("watermark", "set", "-t", name, "--force", "--timestamp", "2025-01-01")
    said += answer("watermark", "get", "-t", name)
    assert "object key" not in said  # what the configuration takes has a place in the lake
    assert "too long" not in said
    assert [path.name for path in folder.iterdir() if path.name not in KNOWN] == []


KNOWN = {"floodmark.yml", "lake", "warehouse.duckdb"}


@given(st.datetimes(timezones=st.just(UTC)), st.timedeltas())
@example(datetime.max.replace(tzinfo=UTC), timedelta(days=1))
@example(datetime.min.replace(tzinfo=UTC), timedelta(microseconds=-1))
def test_arithmetic_ends_with_the_calendar(moment: datetime, span: timedelta) -> None:
    assert datetime.min.replace(tzinfo=UTC) <= moved(moment, span)
    assert Position(moment).as_end
    assert right_before(moment).compare(Position(moment)) == -1
    assert first_position("timestamp", Position(), Position(moment)) == right_before(moment)


def bomb(levels: int, width: int, *, merged: bool) -> str:
    """A billion laughs: each level names the one before many times."""
    lines = ["a0: &a0 {x: 1}"]
    for level in range(1, levels):
        refs = ", ".join([f"*a{level - 1}"] * width)
        lines.append(f"a{level}: &a{level} " + ("{<<: [" + refs + "]}" if merged else f"[{refs}]"))
    return "\n".join(lines)


@pytest.mark.parametrize("merged", [False, True])
def test_a_configuration_that_unfolds_without_end_is_refused(
    tmp_path: Path, *, merged: bool
) -> None:
    path = tmp_path / "floodmark.yml"
    path.write_text(bomb(30, 10, merged=merged))
    with pytest.raises(ConfigError, match="expands to more than"):
        load_config(str(path), os.environ)


def test_a_variable_is_not_looked_into(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_SUCH_PASSWORD", "${NO_SUCH_PASSWORD}${HOME}")
    loaded = load_config(str(folder / "floodmark.yml"), os.environ)
    password = loaded.settings.connections["US_PROD"].password  # type: ignore[union-attr]
    assert password is not None
    assert password.reveal() == "${NO_SUCH_PASSWORD}${HOME}"
