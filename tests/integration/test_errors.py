"""Every error: one line that names the cause, a hint, the exit code, and no traceback."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from floodmark.cli.main import run
from floodmark.embedded.process import free_ports
from floodmark.subprocesses import LOOPBACK
from scenarios import Lake, land, open_store, write_config
from terminals import on_terminal

FLOODMARK = f"{shlex.quote(sys.executable)} -m floodmark"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a configuration, and with files that are none."""
    monkeypatch.chdir(tmp_path)
    write_config(tmp_path, Lake(folder=str(tmp_path / "lake")))
    (tmp_path / "empty.yml").touch()
    (tmp_path / "binary.yml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "folder.yml").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "lake_is_a_file.yml").write_text("lake: ./file\n")
    port = free_ports(1)[0]
    text = (tmp_path / "floodmark.yml").read_text()
    unreachable = text.replace(
        'user: reader, password: "${NO_SUCH_PASSWORD}"', f"user: x, port: {port}"
    )
    assert unreachable != text
    (tmp_path / "unreachable.yml").write_text(unreachable)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], line: str) -> tuple[int, str]:
    code = run(shlex.split(line))
    return code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "code", "error", "hint"),
    [
        ("snyc", 2, "no such command 'snyc'", "did you mean 'sync'?"),
        ("xyz", 2, "No such command 'xyz'", "--help"),
        ("watermark lst", 2, "no such command 'lst'", "did you mean 'list'?"),
        ("sync --nosuch", 2, "No such option '--nosuch'", "--help"),
        ("watermark list --config none.yml", 2, "none.yml does not exist", "floodmark init"),
        ("watermark list --config folder.yml", 2, "folder.yml: Is a directory", "--config"),
        ("watermark list --config empty.yml", 2, "empty.yml is not a configuration", "init"),
        ("watermark list --config binary.yml", 2, "binary.yml: not UTF-8 text", "save it as UTF-8"),
        (
            "watermark list --config lake_is_a_file.yml",
            2,
            "file is not a folder",
            "set 'lake:' to a folder",
        ),
        ("sync -p nope", 2, "unknown pipeline 'nope'", "known pipelines: shop_pipeline"),
        ("sync", 2, "nothing to sync", "-p"),
        ("sync -t shop.orders", 2, "variable NO_SUCH_PASSWORD is not set", None),
        ("sync -t shop.ordres", 2, "unknown table 'shop.ordres'", "did you mean 'shop.orders'?"),
        ("sync -t shop.orders --limit -1", 2, "limit '-1'", None),
        ("watermark get -t orders", 2, "'orders' is not a table name", "schema.table"),
        ("watermark set -t shop.orders --id 1.5", 2, "id '1.5'", None),
        ("watermark set never --force", 2, "unknown preset 'never'", "one of"),
        ("watermark restore -t shop.orders --file folder.yml", 2, "cannot read folder.yml", None),
        ("watermark history", 2, "Missing option '-t' / '--table'", "--help"),
        ("s3clean clean -t shop.orders --older-than 3", 2, "'3' is not a duration", "7d"),
        ("doctor --break-lease", 2, "--break-lease needs tables", "-t"),
        ("demo --rows 5", 2, "Invalid value for '--rows'", "--help"),
        ("init --yes", 2, "floodmark.yml already exists", "--force"),
    ],
)
def test_one_line_and_a_hint(
    capsys: pytest.CaptureFixture[str], line: str, code: int, error: str, hint: str | None
) -> None:
    ended, text = said(capsys, line)
    first, *rest = text.splitlines()
    assert (ended, first.startswith("error: ")) == (code, True), text
    assert error in first
    assert [line[:6] for line in rest] == ([] if hint is None and not rest else ["hint: "])
    assert hint is None or hint in rest[0]


def test_a_table_that_cannot_be_reached(capsys: pytest.CaptureFixture[str]) -> None:
    code = run(shlex.split("sync -t shop.orders --backup-only --config unreachable.yml"))
    captured = capsys.readouterr()
    assert code == 1
    assert captured.out.startswith("✗ US_PROD:shop.orders: MySQL at 127.0.0.1:")
    assert "hint: check 'host' and 'port'" in captured.err
    assert "Traceback" not in captured.err


def test_a_traceback_only_with_debug(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Traceback" not in said(capsys, "watermark get -t orders")[1]
    assert "Traceback" in said(capsys, "watermark get -t orders --debug")[1]


def test_unexpected_error_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(*_: object) -> None:
        raise ZeroDivisionError("oh\nmore")

    monkeypatch.setattr("floodmark.cli.app.load_config", break_down)
    code, text = said(capsys, "watermark list")
    assert code == 1
    assert text.splitlines() == [
        "error: unexpected ZeroDivisionError: oh",
        "hint: --debug shows the traceback; please report it",
    ]


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = said(capsys, "")
    assert code == 2
    assert text.startswith("Usage: ")
    assert "hint:" not in text


def shell(line: str, **environment: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        capture_output=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_no_error(closed: str) -> None:
    """Such a `sync` ended before it began, or could have written into its own files."""
    line = f"{FLOODMARK} sync -t shop.orders --backup-only --config unreachable.yml"
    opened, done = shell(line), shell(f"{line} {closed}")
    assert opened.stdout.startswith("✗ US_PROD:shop.orders: MySQL at".encode())
    assert done.returncode == opened.returncode == 1
    assert done.stdout == (b"" if " >" in f" {closed}" else opened.stdout)
    assert done.stderr == (b"" if "2>" in closed else opened.stderr)


def test_a_closed_stream_is_not_the_number_of_another_file() -> None:
    program = (
        "from floodmark.__main__ import _open_closed_streams as open_; open_();"
        "import os, sys; print('said', file=sys.stderr); file = open('file', 'w');"
        "print([os.readlink(f'/proc/self/fd/{n}') for n in (0, 2)], file.fileno() > 2)"
    )
    done = shell(f"{shlex.quote(sys.executable)} -c {shlex.quote(program)} <&- 2>&-")
    assert done.stdout == b"['/dev/null', '/dev/null'] True\n"


@pytest.mark.parametrize("reader", ["head -1", "true"])
def test_a_reader_that_goes_away_is_no_error(reader: str) -> None:
    done = shell(f"{FLOODMARK} watermark list | {reader}")
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_reader_that_goes_away_does_not_hide_a_failure() -> None:
    done = shell(f"{FLOODMARK} sync -p shop_pipeline --backup-only --config unreachable.yml | true")
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr


def test_a_full_disk_is_named() -> None:
    done = shell(f"{FLOODMARK} watermark list > /dev/full")
    assert done.returncode == 1
    assert done.stderr.startswith(b"error: No space left on device")
    assert b"Traceback" not in done.stderr


def test_a_terminal_that_knows_few_characters(folder: Path) -> None:
    land(open_store(Lake(folder=str(folder / "lake")).open()), rows=10, name="first")
    done = shell(f"{FLOODMARK} watermark get -t shop.orders", PYTHONIOENCODING="latin-1")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"Rows Extracted: 10" in done.stdout
    done = shell(f"{FLOODMARK} watermark validate --lake-only", PYTHONIOENCODING="latin-1")
    assert b"+ US_PROD:shop.orders: 1 manifest" in done.stdout


def test_colors_on_a_terminal_unless_disabled(folder: Path) -> None:
    command = [sys.executable, "-m", "floodmark", "watermark", "list"]
    assert "\x1b[33mno watermark" in on_terminal(command, folder=folder)[1]
    assert "\x1b" not in on_terminal(command, folder=folder, environment={"NO_COLOR": "1"})[1]
    assert b"\x1b" not in shell(f"{FLOODMARK} watermark list").stdout


def test_interrupting_ends_with_130(folder: Path) -> None:
    prompt = [sys.executable, "-m", "floodmark", "init", "--force"]
    code, shown = on_terminal(prompt, folder=folder, answers=[("[PROD]: ", "\x03")])
    assert code == 130
    assert "error: stopped" in click.unstyle(shown)
    assert "Traceback" not in shown


# Ctrl-C comes when a module is looked for.
INTERRUPTED = """
import os, runpy, signal, sys

module, *sys.argv[1:] = sys.argv[1:]

class Interrupting:
    def find_spec(self, name, *_):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
runpy.run_module("floodmark", run_name="__main__")
"""


@pytest.mark.parametrize(
    "module", ["floodmark.cli.main", "click", "floodmark.state.watermark_store"]
)
@pytest.mark.parametrize(
    ("log_format", "line"), [("text", "error: stopped"), ("json", '"message":"stopped"')]
)
def test_interrupting_while_modules_are_imported(module: str, log_format: str, line: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED, module, "watermark", "list"]
    done = subprocess.run(
        [*command, "--log-format", log_format], capture_output=True, text=True, check=False
    )
    assert done.returncode == 130, done.stderr
    (said,) = done.stderr.splitlines()
    assert line in said
    assert done.stdout == ""


def test_a_server_that_does_not_answer_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--config", "unreachable.yml"]) == 1
    assert f"✗ source US_PROD: MySQL at {LOOPBACK}:" in capsys.readouterr().out
