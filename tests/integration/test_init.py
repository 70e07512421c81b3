"""`floodmark init`: what it finds, what it asks, and what it never writes down."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from floodmark.cli import init_tls
from floodmark.cli.init import Answers
from floodmark.cli.log import Log
from floodmark.cli.main import run
from floodmark.config.loading import load_config
from floodmark.config.models import MysqlConnection, TlsSettings
from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.embedded.process import free_ports
from floodmark.model.timestamps import utc_now
from floodmark.subprocesses import LOOPBACK
from floodmark.sync import spark_engine as engines
from pipelines import DirectEngine, numbers
from servers.mysql import PrivateMySQL
from terminals import on_terminal

STAMP = "TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP"
SCHEMAS = ("init_a", "init_b", "init.c")
TABLES = (
    f"init_a.orders (id BIGINT AUTO_INCREMENT PRIMARY KEY, update_at {STAMP}, KEY (update_at))",
    "init_a.events (id BIGINT AUTO_INCREMENT PRIMARY KEY, what TEXT)",
    "init_a.bag (a INT, update_at DATETIME)",
    "init_a.`no` (`on` INT AUTO_INCREMENT PRIMARY KEY)",
    "init_a.`naïve {table}` (id INT PRIMARY KEY)",
    "init_a.`a:b` (id INT PRIMARY KEY)",
    "init_b.Orders (id BIGINT AUTO_INCREMENT PRIMARY KEY)",
    "init_b.large (code CHAR(32) PRIMARY KEY)",
    "`init.c`.`a.b` (id INT AUTO_INCREMENT PRIMARY KEY)",
    "init_b.places (id INT AUTO_INCREMENT PRIMARY KEY, place INET6, odd GEOMETRY)",
)


@pytest.fixture(scope="module")
def source(server: PrivateMariaDB) -> Iterator[PrivateMariaDB]:
    for schema in SCHEMAS:
        server.execute(f"CREATE DATABASE `{schema}` CHARACTER SET utf8mb4")
    for table in TABLES:
        if isinstance(server, PrivateMySQL):
            table = table.replace("INET6", "VARBINARY(16)")
        server.execute(f"CREATE TABLE {table}")
    server.execute(
        f"INSERT INTO init_b.large SELECT LEFT(SHA2(seq, 256), 32) FROM {numbers(1, 150000)}"
    )
    server.execute("ANALYZE TABLE init_b.large")
    server.execute("CREATE VIEW init_a.seen AS SELECT * FROM init_a.orders")
    server.execute("CREATE TABLE init_a.gone (id INT)")
    server.execute("CREATE VIEW init_a.broken AS SELECT * FROM init_a.gone")
    server.execute("DROP TABLE init_a.gone")
    yield server
    for schema in SCHEMAS:
        server.execute(f"DROP DATABASE `{schema}`")


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
        schemas = [word for schema in SCHEMAS for word in ("--schema", schema)]
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
        "init_a.`a:b`": {"cursor": "none"},
        "`init.c`.a.b": {"cursor": "id"},
        "init_b.Orders": {"cursor": "id", "target_name": "init_b_Orders"},
        "init_b.places": {"cursor": "id"},
    }
    text = Path("floodmark.yml").read_text()
    assert "# update_at records changes (ON UPDATE CURRENT_TIMESTAMP)" in text
    assert "# note: id only grows with inserts: updated rows are not seen" in text


def test_large_table_without_a_cursor_needs_a_decision(init: Init) -> None:
    said = init()
    assert "      # init_b.large: {cursor: none}\n" in Path("floodmark.yml").read_text()
    text = Path("floodmark.yml").read_text()
    words = " ".join(text.replace("#", " ").split())
    assert "it is left out because every sync would read it in full init_b.large:" in words
    assert "      # a view, not a table: if you include it, every sync reads it" in text
    assert "      # init_a.seen: {cursor: none}\n" in text
    assert "      # init_a.broken: {}\n" in text
    why = "1 cannot be read, 1 large without a cursor, 1 view"
    assert f"3 commented out, each with the reason: {why}\n" in said


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
    assert said == "error: floodmark.yml already exists\nhint: add --force to overwrite it\n"
    assert Path("floodmark.yml").read_text() == "mine"
    init("--force")
    assert len(tables()) == 9


def test_nothing_is_written_when_mysql_cannot_be_looked_at(
    init: Init, monkeypatch: pytest.MonkeyPatch, source: PrivateMariaDB
) -> None:
    monkeypatch.setenv("MYSQL_PASSWORD", "wrong")
    assert "refuses user 'floodmark'\nhint: check 'user' and 'password'" in init(code=2)
    monkeypatch.setenv("MYSQL_PORT", str(free_ports(1)[0]))
    assert f"error: MySQL at {LOOPBACK}" in init(code=1)
    source.execute("CREATE USER nobody IDENTIFIED BY 'nothing'")
    monkeypatch.setenv("MYSQL_PORT", str(source.port))
    monkeypatch.setenv("MYSQL_USER", "nobody")
    monkeypatch.setenv("MYSQL_PASSWORD", "nothing")
    try:
        assert "error: MySQL user 'nobody' cannot see any tables\nhint: GRANT SELECT" in init(
            code=2
        )
    finally:
        source.execute("DROP USER nobody")
    assert not Path("floodmark.yml").exists()


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
        "tls": {},
    }
    assert "export WAREHOUSE_PASSWORD=…" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--schema", "nowhere"], "schema 'nowhere' has no tables"),
        (["--scope", "a b"], "scope 'a b' is not a valid name"),
        (["--target", "postgres"], "--target-host is missing"),
        (["--password-variable", "a-b"], "'a-b' is not a valid name for an environment variable"),
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
    assert (
        "error: --user is missing\nhint: pass it, or set MYSQL_USER in the environment\n"
        in init(code=2)
    )


def test_what_was_found_as_json(init: Init) -> None:
    said = json.loads(init("--json"))
    assert said["variables"] == ["MYSQL_PASSWORD"]
    assert {table["table"] for table in said["tables"] if not table["included"]} == {
        "init_a.broken",
        "init_a.seen",
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
    assert "8 tables in pipeline main" in shown
    config = yaml.safe_load((tmp_path / "floodmark.yml").read_text())
    assert config["connections"]["PROD"]["port"] == source.port
    assert source.password not in shown


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Init:
    """Runs a command of a new user, without Spark; returns what it said."""
    monkeypatch.setattr(engines, "SparkEngine", DirectEngine)

    def call(*arguments: str, code: int = 0) -> str:
        ended = run(list(arguments))
        captured = capsys.readouterr()
        assert ended == code, captured
        return captured.out + captured.err

    return call


def test_the_whole_history_arrives_on_the_first_day(
    server: PrivateMariaDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: Init
) -> None:
    """As with Sakila: sixteen tables, and all rows of 2006."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MYSQL_PASSWORD", server.password)
    server.execute("CREATE DATABASE sakila")
    try:
        for number in range(1, 17):
            server.execute(
                f"CREATE TABLE sakila.t{number} (id INT AUTO_INCREMENT PRIMARY KEY,"
                f" last_update {STAMP})"
            )
            server.execute(
                f"INSERT INTO sakila.t{number} SELECT seq, '2006-02-15 04:34:33'"
                f" FROM {numbers(1, number)}"
            )
        given = ("--port", str(server.port), "--user", server.user, "--schema", "sakila")
        assert "16 tables in pipeline main" in steps("init", "--yes", *given)
        assert "default_start: all\n" in Path("floodmark.yml").read_text()
        assert "not read" not in steps("doctor")
        synced = steps("sync", "-p", "main", "--verify-data=all")
        assert synced.count("source and target are equal\n") == 16
        listed = json.loads(steps("watermark", "list", "--json"))
        assert sum(table["redshift_state"]["total_rows"] for table in listed) == 136
        assert "left out" not in steps("watermark", "list")
    finally:
        server.execute("DROP DATABASE sakila")


def test_names_with_dots_are_synced_as_init_writes_them(
    init: Init, steps: Init, source: PrivateMariaDB
) -> None:
    source.execute("INSERT INTO `init.c`.`a.b` VALUES (1), (2), (3)")
    init()
    assert "3 rows in 1 file" in steps("sync", "-t", "`init.c`.`a.b`")
    assert "PROD:`init.c`.a.b" in steps("watermark", "list")
    assert "Rows Loaded: 3" in steps("watermark", "get", "-t", "PROD:`init.c`.a.b")
    assert "equal" in steps("watermark", "validate", "-t", "`init.c`.a.b", "--data")
    assert "unknown table 'init.c.a.b'" in steps("watermark", "get", "-t", "init.c.a.b", code=2)


def test_of_tables_with_versions_the_current_rows_are_read(
    mariadb: PrivateMariaDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: Init
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MYSQL_PASSWORD", mariadb.password)
    mariadb.execute("CREATE DATABASE versions")
    period = (
        ", began TIMESTAMP(6) GENERATED ALWAYS AS ROW START, ended TIMESTAMP(6) GENERATED ALWAYS AS"
        " ROW END, PERIOD FOR SYSTEM_TIME (began, ended)"
    )
    try:
        for name, more in (("a", ""), ("b", period)):
            mariadb.execute(
                f"CREATE TABLE versions.{name} (id INT AUTO_INCREMENT PRIMARY KEY, v INT,"
                f" update_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)"
                f" ON UPDATE CURRENT_TIMESTAMP(6), KEY (update_at){more}) WITH SYSTEM VERSIONING"
            )
            mariadb.execute(
                f"INSERT INTO versions.{name} (id, v, update_at)"
                f" SELECT seq, 0, NOW() - INTERVAL 1 DAY FROM {numbers(1, 9)}"
            )
            mariadb.execute(
                f"UPDATE versions.{name} SET v = 1, update_at = NOW() - INTERVAL 1 HOUR"
            )
            mariadb.execute(f"DELETE FROM versions.{name} WHERE id = 9")
        mariadb.execute("CREATE SEQUENCE versions.s")
        given = ("--port", str(mariadb.port), "--user", mariadb.user, "--schema", "versions")
        said = steps("init", "--yes", *given)
        assert "2 tables in pipeline main" in said
        assert "1 commented out, each with the reason: 1 sequence" in said
        assert tables() == {
            name: {"cursor": ["update_at", "id"]} for name in ("versions.a", "versions.b")
        }
        assert Path("floodmark.yml").read_text().count("only the current ones are read") == 2
        assert "primary key id (" in steps("doctor")
        synced = steps("sync", "-p", "main", "--verify-data=all")
        assert synced.count("8 rows in 1 file") == 2
        assert synced.count("8 rows compared") == 2
        for name in ("a", "b"):
            mariadb.execute(
                f"UPDATE versions.{name} SET v = 2, update_at = NOW() - INTERVAL 1 MINUTE"
            )
        synced = steps("sync", "-p", "main", "--verify-data=all")
        assert synced.count("8 rows in 1 file") == 2
        assert synced.count("8 rows compared") == 2
    finally:
        mariadb.execute("DROP DATABASE versions")


# Encryption


def written_tls(connection: str = "PROD") -> Any:
    return yaml.safe_load(Path("floodmark.yml").read_text())["connections"][connection].get("tls")


def test_this_machine_needs_no_encryption(init: Init) -> None:
    init()
    assert written_tls() is None


def test_less_than_verified_is_never_chosen_in_silence(
    init: Init, source: PrivateMariaDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MySQL makes a certificate that nobody trusts; MariaDB has none."""
    monkeypatch.setattr(init_tls, "is_local", lambda _: False)
    own = isinstance(source, PrivateMySQL)
    choice, tls = ("encrypted", {"verify": "none"}) if own else ("off", False)
    said = init(code=2)
    assert (
        f"can only be reached {'encrypted, but not verified' if own else 'not encrypted'}" in said
    )
    assert f"--tls {choice}" in said
    assert not Path("floodmark.yml").exists()
    said = init("--tls", choice)
    assert written_tls() == tls
    assert "(tls: " in said
    assert "    # Encrypted, but any" in (text := Path("floodmark.yml").read_text()) or not own
    assert "    # Not encrypted: " in text or own
    loaded = load_config(None, {"MYSQL_PASSWORD": "x"}).connection("PROD")
    assert isinstance(loaded, MysqlConnection)
    assert loaded.tls == ("off" if not own else TlsSettings(verify="none"))
    assert "--tls-ca has no effect with" in init(
        "--force", "--tls", choice, "--tls-ca", "f", code=2
    )


def test_weaker_encryption_needs_consent(
    init: Init, source: PrivateMariaDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert init is not None
    log = Log(utc_now, as_json=False)
    monkeypatch.setattr(init_tls, "is_local", lambda _: False)
    connection = MysqlConnection(port=source.port, user=source.user)
    for agreed in (True, False):
        asked: list[str] = []

        def confirm(question: str, *, agreed: bool = agreed, asked: Any = asked, **_: Any) -> None:
            asked.append(question)
            if not agreed:
                raise click.Abort

        monkeypatch.setattr(click, "confirm", confirm)
        if agreed:
            assert init_tls.choose_tls(log, Answers({}, asking=True), connection) is not None
        else:
            with pytest.raises(click.Abort):
                init_tls.choose_tls(log, Answers({}, asking=True), connection)
        assert asked[0].startswith("Send the password ")


def test_a_warehouse_elsewhere_is_verified(init: Init) -> None:
    options = {"host": "db.example.com", "database": "d", "user": "u"}
    words = [word for key, value in options.items() for word in (f"--target-{key}", value)]
    init("--target", "postgres", *words)
    assert written_tls("warehouse") == {}
    init("--force", "--target", "postgres", *words[2:], "--target-host", "127.0.0.1")
    assert written_tls("warehouse") is None
