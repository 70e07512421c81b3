"""Messages on stderr: as text, and as JSON."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from floodmark.cli.main import run
from floodmark.model import lake_layout
from floodmark.storage.local import LocalObjectStore
from scenarios import TABLE, Lake, land, open_store, write_config


class Floodmark:
    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.lake = Lake(folder=str(folder / "lake"))
        self.config = write_config(folder, self.lake)
        self._capsys = capsys

    def log(self, *arguments: str, code: int) -> list[dict[str, Any]]:
        """Run a command; what it says on stderr, which must be JSON to the last line."""
        assert run([*arguments, "--config", self.config, "--log-format", "json"]) == code
        entries = [json.loads(line) for line in self._capsys.readouterr().err.splitlines()]
        for entry in entries:
            assert datetime.fromisoformat(entry["time"]).tzinfo
            assert entry["level"] in ("debug", "info", "warning", "error")
            assert entry["message"]
        return entries


@pytest.fixture
def floodmark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Floodmark:
    return Floodmark(tmp_path, capsys)


def test_an_error_with_its_hint(floodmark: Floodmark) -> None:
    (entry,) = floodmark.log("watermark", "get", "-t", "shop.order", code=2)
    assert entry["level"] == "error"
    assert entry["event"] == "failed"
    assert entry["exit_code"] == 2
    assert entry["message"] == "unknown table 'shop.order'"
    assert entry["hint"] == "did you mean 'shop.orders'?"
    assert entry["session"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["watermark", "get", "--no-such-option"],
        ["sync", "-p", "shop_pipeline", "--strategy", "none"],
        ["watermark", "history"],
    ],
)
def test_wrong_usage(floodmark: Floodmark, arguments: list[str]) -> None:
    (entry,) = floodmark.log(*arguments, code=2)
    assert entry["level"] == "error"
    assert "--help" in entry["hint"]


def test_a_recovery_names_its_table(floodmark: Floodmark) -> None:
    store = open_store(floodmark.lake.open())
    land(store, 10, "a")
    LocalObjectStore(floodmark.lake.folder or "").delete(lake_layout.primary(TABLE))
    (entry,) = floodmark.log("watermark", "get", "-t", "shop.orders", code=0)
    assert entry["level"] == "warning"
    assert entry["event"] == "recovery"
    assert entry["table"] == str(TABLE)


def test_a_traceback_is_one_line_too(floodmark: Floodmark) -> None:
    entries = floodmark.log("watermark", "get", "-t", "shop.order", "--debug", code=2)
    assert [entry["event"] for entry in entries] == ["traceback", "failed"]
    assert "UsageError" in entries[0]["traceback"]


def test_the_environment_chooses_the_format(
    floodmark: Floodmark, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLOODMARK_LOG_FORMAT", "json")
    assert run(["watermark", "get", "-t", "no.table", "--config", floodmark.config]) == 2
    assert json.loads(capsys.readouterr().err)["level"] == "error"


def test_people_read_text(floodmark: Floodmark, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["watermark", "get", "-t", "shop.order", "--config", floodmark.config]) == 2
    assert capsys.readouterr().err == (
        "error: unknown table 'shop.order'\nhint: did you mean 'shop.orders'?\n"
    )
