"""Text fits the terminal and is aligned; in a pipe it is complete."""

import os
from datetime import UTC, datetime, timedelta

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.cli import terminal
from floodmark.cli.progress import progress_line
from floodmark.cli.terminal import Column, cells, shorten
from floodmark.cli.watermark_text import show_absence, show_state
from floodmark.model.formatting import ago, counted, since, size, span
from floodmark.model.log_state import MysqlState
from floodmark.model.position import Position
from floodmark.model.table import TableName
from floodmark.model.watermark import BackupMetadata, RedshiftState, Watermark
from floodmark.state.lease import LeaseDocument
from floodmark.sync.progress import Progress

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
COLUMNS = [
    Column(title="TABLE", least=10),
    Column(title="ROWS", right=True, spare=1),
    Column(title="STATE"),
    Column(title="MORE", spare=3),
]
ROWS = [
    ["settlement.settlement_normal_delivery_detail", "1,250,000", "in step", "success"],
    ["shop.注文明細テーブル", "1", "\x1b[31mload failed\x1b[0m", "failed"],
]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mred\x1b[0m\tb\n", "a\x1b[31mred\x1b[0m\tb\n"),
        ("\x1b]0;title\x07", "\ufffd]0;title\ufffd"),
        ("\x1b[2J\x1b[1;1Hin step", "\ufffd[2J\ufffd[1;1Hin step"),
        ("safe\rgone\x9b2J\x00", "safe\ufffdgone\ufffd2J\ufffd"),
    ],
)
def test_quoted_data_cannot_control_the_terminal(
    text: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert terminal.harmless(text) == shown
    terminal.print_text(text)
    assert capsys.readouterr().out == f"{click.unstyle(shown)}\n"
    assert click.unstyle(terminal.labelled("x:", "red", text)) == click.unstyle(f"x: {shown}")


def seen(monkeypatch: pytest.MonkeyPatch, columns: int | None) -> list[str]:
    monkeypatch.setattr(terminal, "width", lambda *_: columns)
    return [click.unstyle(line) for line in terminal.table(COLUMNS, ROWS).splitlines()]


@pytest.mark.parametrize("columns", [140, 80, 60, 40, 30])
def test_a_table_is_aligned_and_no_wider_than_the_terminal(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    lines = seen(monkeypatch, columns)
    assert all(cells(line) <= columns for line in lines)
    at = {cells(line[: line.index(word)]) for line, word in zip(lines, STATES, strict=True)}
    assert len(at) == 1, lines


STATES = ("STATE", "in step", "load failed")


def test_what_is_spare_goes_before_names_are_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen(monkeypatch, 70)[0].split() == ["TABLE", "ROWS", "STATE"]
    assert "settlement_normal_delivery_detail" in seen(monkeypatch, 70)[1]
    assert "…" in seen(monkeypatch, 50)[1]
    assert seen(monkeypatch, 30)[0].split() == ["TABLE", "STATE"]


def test_a_pipe_gets_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = seen(monkeypatch, None)
    assert lines[0].split() == ["TABLE", "ROWS", "STATE", "MORE"]
    assert lines[1].split()[0] == ROWS[0][0]


@given(st.text(), st.integers(1, 40))
def test_what_is_shortened_fits(text: str, most: int) -> None:
    assert cells(click.unstyle(shorten(text, most))) <= max(most, 1)


def test_lines_are_folded_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    text = ("word " * 30 + "単語 " * 30).strip()
    monkeypatch.setattr(terminal, "width", lambda *_: 40)
    lines = terminal.fold(text, indent=4).splitlines()
    assert len(lines) > 3
    assert all(cells(line) <= 40 for line in lines)
    assert all(line.startswith(("    word", "    単語")) for line in lines[1:])
    assert " ".join(" ".join(lines).split()) == text
    monkeypatch.setattr(terminal, "width", lambda *_: None)
    assert terminal.fold(text, indent=4) == text


def test_no_color_when_asked_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" in terminal.style("x", "red")
    monkeypatch.setitem(os.environ, "NO_COLOR", "1")
    assert terminal.style("x", "red") == "x"


@pytest.mark.parametrize("columns", [140, 79, 60, 50])
def test_a_progress_line_fits_and_names_the_table(columns: int) -> None:
    table = TableName("PROD", "settlement", "settlement_normal_delivery_detail")
    progress = Progress(
        rows=1_250_000,
        bytes=123_000_000,
        expected_rows=5_000_000,
        slices_done=0,
        slices=8,
        seconds=100,
    )
    line = progress_line(table, progress, columns)
    assert cells(line) <= columns
    assert line.startswith("sett")
    assert "25%" in line
    assert "1,250,000 rows" in line
    if columns > 70:
        assert "about 5 minutes left" in line


@pytest.mark.parametrize(
    ("rows", "slices_done", "finished", "line"),
    [
        (0, 0, False, "░░░░░░░░░░░░░░░░░░░░   0% 0 rows"),
        (0, 2, False, "██████████░░░░░░░░░░  50% about 500 rows, 50 rows/s, about 10 seconds left"),
        # All are read, but nothing is committed yet.
        (
            0,
            4,
            False,
            "████████████████████  99% about 1,000 rows, 100 rows/s, about 0 seconds left",
        ),
        # There were more rows than the server thought, and there may be still more.
        (
            2000,
            0,
            False,
            "████████████████████  99% 2,000 rows, 200 rows/s, 9 kB, about 0 seconds left",
        ),
        (900, 0, True, "████████████████████ 100% 900 rows, 90 rows/s, 9 kB"),
    ],
)
def test_progress_is_not_done_before_all_is_committed(
    rows: int, slices_done: int, finished: bool, line: str
) -> None:
    progress = Progress(
        rows=rows,
        bytes=9000 if rows else 0,
        expected_rows=1000,
        slices_done=slices_done,
        slices=4,
        seconds=10,
        chunk_rows=1000,
        finished=finished,
    )
    assert progress_line(TableName("PROD", "a", "b"), progress, 200) == f"a.b {line}"


def watermark(extract: MysqlState, load: RedshiftState) -> Watermark:
    return Watermark(
        table_name="A:b.c",
        session_id="s",
        created_at=NOW,
        updated_at=NOW,
        mysql_state=extract,
        redshift_state=load,
        backup_metadata=BackupMetadata(saved_at=NOW, session_id="s"),
    )


def lease(*, in_step: timedelta | None = None, held: bool = False) -> LeaseDocument:
    return LeaseDocument(
        table_name="A:b.c",
        number=1,
        session_id="s",
        owner="me",
        taken_at=NOW,
        expires_at=NOW + timedelta(seconds=60),
        released=not held,
        in_step_at=None if in_step is None else NOW - in_step,
    )


LOADED = RedshiftState(status="success", total_rows=5)


@pytest.mark.parametrize(
    ("extract", "load", "held", "words"),
    [
        (MysqlState(status="success", last_extraction_time=NOW), LOADED, None, "in step"),
        (
            MysqlState(status="success", last_extraction_time=NOW - timedelta(minutes=3)),
            LOADED,
            None,
            "3 minutes behind",
        ),
        (
            MysqlState(status="success", last_extraction_time=NOW - timedelta(days=40)),
            LOADED,
            lease(in_step=timedelta(hours=1)),
            "1 hour behind",
        ),
        (MysqlState(status="failed", last_extraction_time=NOW), LOADED, None, "extract failed"),
        (
            MysqlState(status="success", last_extraction_time=NOW),
            RedshiftState(status="failed"),
            None,
            "load failed",
        ),
        (MysqlState(status="in_progress"), LOADED, lease(held=True), "running"),
        (MysqlState(status="in_progress"), LOADED, lease(), "interrupted"),
        (MysqlState(), RedshiftState(), None, "not read yet"),
        (
            MysqlState(status="success", total_rows=5, last_extraction_time=NOW),
            RedshiftState(),
            None,
            "not loaded yet",
        ),
    ],
)
def test_how_a_table_is(
    extract: MysqlState, load: RedshiftState, held: LeaseDocument | None, words: str
) -> None:
    assert click.unstyle(show_state(watermark(extract, load), held, NOW)) == words


def test_a_table_without_a_watermark_may_be_in_step() -> None:
    empty = lease(in_step=timedelta(seconds=5))
    assert click.unstyle(show_absence(empty, None, NOW)) == "in step"
    assert click.unstyle(show_absence(None, None, NOW)) == "no watermark"
    assert click.unstyle(show_absence(empty, "it is lost", NOW)) == "no watermark"


def test_numbers_and_times_in_words() -> None:
    assert counted(1, "row") == "1 row"
    assert counted(1_250_000, "row") == "1,250,000 rows"
    assert span(timedelta(seconds=61)) == "1 minute"
    assert span(timedelta(hours=50)) == "2 days"
    assert ago(NOW - timedelta(seconds=5), NOW) == "just now"
    assert ago(None, NOW) == "never"
    assert size(0) == "0 kB"
    assert size(1_001) == "2 kB"
    assert size(1_234_500_000) == "1,234.5 MB"


def test_right_before_a_moment_is_shown_as_the_moment() -> None:
    start = Position(datetime(2024, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC))
    assert since(start) == "2025-01-01 00:00:00"
    assert since(Position(NOW, 5)) == "2026-01-01 12:00:00, id 5"
