"""`floodmark init`: what it finds, what it asks, and what it never writes down."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from floodmark.children import LOOPBACK
from floodmark.cli.main import run
from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.embedded.process import free_ports
from pipelines import numbers
from servers.mysql import PrivateMySQL
from terminals import on_terminal

STAMP = "TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP"
TABLES = (
    f"init_a.orders (id BIGINT AUTO_INCREMENT PRIMARY KEY, update_at {STAMP}, KEY (update_at))",
    "init_a.events (id BIGINT AUTO_INCREMENT PRIMARY KEY, what TEXT)",
    "init_a.bag (a INT, update_at DATETIME)",
    "init_a.`no` (`on` INT AUTO_INCREMENT PRIMARY KEY)",
    "init_a.`naïve {table}` (id INT PRIMARY KEY)",
    "init_a.`a:b` (id INT PRIMARY KEY)",
    "init_b.Orders (id BIGINT AUTO_INCREMENT PRIMARY KEY)",
    "init_b.large (code CHAR(32) PRIMARY KEY)",
    "init_b.places (id INT AUTO_INCREMENT PRIMARY KEY, place INET6, odd GEOMETRY)",
)


@pytest.fixture(scope="module")
def source(server: PrivateMariaDB) -> Iterator[PrivateMariaDB]:
    for schema in ("init_a", "init_b"):
        server.execute(f"CREATE DATABASE {schema} CHARACTER SET utf8mb4")
    for table in TABLES:
        if isinstance(server, PrivateMySQL):
            table = table.replace("INET6", "VARBINARY(16)")
        server.execute(f"CREATE TABLE {table}")
    server.execute(
        f"INSERT INTO init_b.large SELECT LEFT(SHA2(seq, 256), 32) FROM {numbers(1, 150000)}"
    )
    server.execute("ANALYZE TABLE init_b.large")
    yield server
    for schema in ("init_a", "init_b"):
        server.execute(f"DROP DATABASE {schema}")


Init = Callable[..., str]


@pytest.fixture
def init(
    source: PrivateMariaDB,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Init:
    """Runs init for the two schemas, without a terminal; returns what it said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MYSQL_PORT", str(source.port))
    monkeypatch.setenv("MYSQL_USER", source.user)
    monkeypatch.setenv("MYSQL_PASSWORD", source.password)

    def call(*arguments: str, code: int = 0) -> str:
        schemas = ("--schema", "init_a", "--schema", "init_b")
        ended = run(["init", "--yes", *schemas, *arguments])
        captured = capsys.readouterr()
        assert ended == code, captured
        return captured.out + captured.err

    return call


def tables() -> dict[str, Any]:
    """The tables of the file that was written."""
    text = Path("floodmark.yml").read_text()
    found: dict[str, Any] = yaml.safe_load(text)["pipelines"]["main"]["tables"]
    return found


def test_tables_keys_and_cursors_are_found(init: Init) -> None:
    init()
    assert tables() == {
        "init_a.orders": {"cursor": ["update_at", "id"], "target_name": "init_a_orders"},
        "init_a.events": {"cursor": "id"},
        "init_a.bag": {"cursor": "none"},
        "init_a.no": {"cursor": "on"},
        "init_a.naïve {table}": {"cursor": "none"},
        "init_b.Orders": {"cursor": "id", "target_name": "init_b_Orders"},
        "init_b.places": {"cursor": "id"},
    }
    text = Path("floodmark.yml").read_text()
    assert "# update_at says when a row changed: it is stamped by the server on update" in text
    assert "# note: id only grows with inserts: updated rows are not seen" in text


def test_what_is_large_and_has_no_cursor_is_left_to_decide_on(init: Init) -> None:
    said = init()
    assert "      # init_b.large: {cursor: none}\n" in Path("floodmark.yml").read_text()
    assert '      # "init_a.a:b": {}\n' in Path("floodmark.yml").read_text()
    assert "2 tables commented out" in said


def test_the_result_passes_doctor_and_plans_a_sync(
    init: Init, capsys: pytest.CaptureFixture[str]
) -> None:
    init()
    assert run(["doctor"]) == 0, capsys.readouterr()
    assert run(["sync", "-p", "main", "--dry-run"]) == 0, capsys.readouterr()


def test_no_secret_is_written_or_shown(init: Init, source: PrivateMariaDB) -> None:
    said = init("--debug")
    assert source.password not in said
    assert source.password not in Path("floodmark.yml").read_text()
    assert "${MYSQL_PASSWORD}" in Path("floodmark.yml").read_text()


def test_a_file_that_is_there_is_replaced_only_by_force(init: Init) -> None:
    Path("floodmark.yml").write_text("mine")
    said = init(code=2)
    assert said == "error: floodmark.yml is there already\nhint: add --force to replace it\n"
    assert Path("floodmark.yml").read_text() == "mine"
    init("--force")
    assert len(tables()) == 7


def test_a_template_is_written_when_mysql_cannot_be_reached(
    init: Init, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MYSQL_PORT", str(free_ports(1)[0]))
    said = init()
    assert f"warning: MySQL at {LOOPBACK}" in said
    assert "no table was looked at" in said
    assert tables() == {}
    assert run(["watermark", "list"]) == 0
    assert capsys.readouterr().out == "no tables\n"


def test_other_warehouses_keep_their_secrets_too(init: Init) -> None:
    given = ("--target-host", "w.example.com", "--target-database", "dev", "--target-user", "me")
    said = init("--target", "redshift", *given, "--lake", "s3://bucket/prefix")
    config = yaml.safe_load(Path("floodmark.yml").read_text())
    assert config["lake"] == "s3://bucket/prefix"
    assert config["connections"]["warehouse"] == {
        "type": "redshift",
        "host": "w.example.com",
        "port": 5439,
        "database": "dev",
        "user": "me",
        "password": "${WAREHOUSE_PASSWORD}",
        "schema": "public",
        "iam_role": "default",
    }
    assert "export WAREHOUSE_PASSWORD=…" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--schema", "nowhere"], "schema 'nowhere' has no tables"),
        (["--scope", "a b"], "scope 'a b' is not a name"),
        (["--target", "postgres"], "--target-host is missing"),
        (["--password-variable", "a-b"], "'a-b' cannot name an environment variable"),
        (["--config", "no/such/folder.yml"], "cannot write no/such/folder.yml"),
    ],
)
def test_wrong_input_writes_nothing(init: Init, arguments: list[str], message: str) -> None:
    assert message in init(*arguments, code=2)
    assert not Path("floodmark.yml").exists()


def test_without_a_terminal_and_without_a_user_it_says_what_is_missing(
    init: Init, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MYSQL_USER")
    assert "error: --user is missing\nhint: give it, or in the environment as MYSQL_USER\n" in init(
        code=2
    )


def test_what_was_found_as_json(init: Init) -> None:
    said = json.loads(init("--json"))
    assert said["problem"] is None
    assert said["variables"] == ["MYSQL_PASSWORD"]
    assert {table["table"] for table in said["tables"] if not table["included"]} == {
        "init_a.a:b",
        "init_b.large",
    }


def test_a_person_is_asked_and_may_answer_again(source: PrivateMariaDB, tmp_path: Path) -> None:
    port, user = str(source.port), source.user
    answers = [
        ("[PROD]: ", ""),
        ("MySQL host [127.0.0.1]: ", ""),
        ("MySQL port [3306]: ", port),
        ("MySQL user: ", user),
        ("Password", "wrong"),
        ("Try other answers? [Y/n]: ", ""),
        ("MySQL host [127.0.0.1]: ", ""),
        (f"MySQL port [{port}]: ", ""),
        (f"MySQL user [{user}]: ", ""),
        ("Password", source.password),
        ("Schemas, separated by commas", "init_a, init_b"),
        ("[./lake]: ", ""),
        ("[duckdb]: ", ""),
        ("[main]: ", ""),
    ]
    code, shown = on_terminal(
        [sys.executable, "-m", "floodmark", "init"], folder=tmp_path, answers=answers
    )
    assert code == 0, shown
    assert "refuses user 'floodmark'" in shown
    assert "7 tables in pipeline main" in shown
    config = yaml.safe_load((tmp_path / "floodmark.yml").read_text())
    assert config["connections"]["PROD"]["port"] == source.port
    assert source.password not in shown
