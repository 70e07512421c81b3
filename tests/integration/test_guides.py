"""Every command in the README and the guides is run, page by page, as a reader would type it."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
import pytest

from floodmark import open_project
from floodmark.cli.main import run
from floodmark.config.loading import load_config
from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.embedded.settlement import create_tables
from floodmark.model.table import TableName
from floodmark.sync import spark_engine as engines
from lake_logs import commit_deletes
from pipelines import DirectEngine, warm_engine
from servers.spark import HAS_DATA_SOURCES

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
SECRETS = [f"{name}_PASSWORD" for name in ("MYSQL", "PG", "REDSHIFT")]
SECRETS += ["MYSQL_USER", "SPARK_SECRET", "SLACK_PATH"]

# Run by other tests, or by hand.
ELSEWHERE = re.compile(
    r"(make|pip|docker|curl|scripts)\b"
    r"|floodmark (demo|init|serve)\b|floodmark .*(--every|--watch)\b"
)


def fences(page: Path, language: str) -> list[str]:
    found = FENCE.findall(page.read_text())
    return [
        re.sub(rf"^{indent}", "", text, flags=re.M)
        for indent, name, text in found
        if name == language
    ]


def commands(page: Path) -> list[str]:
    """What a page tells its reader to type, line by line."""
    lines = "".join(fences(page, "sh")).splitlines()
    return [line for line in lines if line.strip() and not ELSEWHERE.match(line)]


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WITH_COMMANDS = [page for page in PAGES if commands(page)]
CONFIGS = [
    pytest.param(text, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, text in enumerate(fences(page, "yaml"))
    if text.startswith("lake:")
]
UNSYNCED = {"README", "first-sync", "older-layout"}


@pytest.fixture
def settlement(mariadb: PrivateMariaDB) -> Iterator[PrivateMariaDB]:
    create_tables(mariadb.execute, deliveries=3_000)
    yield mariadb
    mariadb.execute("DROP DATABASE settlement")


def configure(settlement: PrivateMariaDB, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the configuration that all pages work with."""
    monkeypatch.setenv("MYSQL_USER", settlement.user)
    monkeypatch.setenv("MYSQL_PASSWORD", settlement.password)
    config, *_ = fences(ROOT / "docs" / "guides" / "first-sync.md", "yaml")
    here = f"{settlement.host}, port: {settlement.port}"
    (folder / "floodmark.yml").write_text(config.replace("db.example.com", here))


class Reader:
    """Somebody who types commands in a folder."""

    def __init__(self, folder: Path, spark: Any) -> None:
        self._folder = folder
        self._engine = warm_engine(spark)

    def types(self, line: str) -> None:
        """Run a line, which must end well, or as a comment behind it says: `# exit 5`."""
        expected = re.search(r"# exit (\d+)", line)
        code, said = self._floodmark(line) if line.startswith("floodmark ") else self._shell(line)
        assert code == (int(expected[1]) if expected else 0), f"{line}\n{said}"

    def _floodmark(self, line: str) -> tuple[int, str]:
        _, *words = shlex.split(line, comments=True)
        kept = words.index(">") if ">" in words else len(words)
        out, err = StringIO(), StringIO()
        with (
            patch.object(engines, "SparkEngine", self._engine),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            code = run(words[:kept])
        if words[kept:]:
            (self._folder / words[kept + 1]).write_text(out.getvalue())
        return code, out.getvalue() + err.getvalue()

    def _shell(self, line: str) -> tuple[int, str]:
        done = subprocess.run(
            ["bash", "-c", line], cwd=self._folder, capture_output=True, text=True
        )
        return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.stem)
def test_commands_do_what_the_page_says(
    page: Path,
    settlement: PrivateMariaDB,
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    configure(settlement, tmp_path, monkeypatch)
    reader = Reader(tmp_path, spark)
    if page.stem not in UNSYNCED:
        reader.types("floodmark sync -p settlement")
    for line in commands(page):
        reader.types(line)


def test_python_does_what_the_page_says(
    settlement: PrivateMariaDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for the part with a Spark of one's own, which needs a process of its own."""
    monkeypatch.chdir(tmp_path)
    configure(settlement, tmp_path, monkeypatch)
    monkeypatch.setattr(engines, "SparkEngine", DirectEngine)
    names: dict[str, Any] = {}
    for text in fences(ROOT / "docs" / "guides" / "python.md", "python"):
        if "SparkSession" not in text:
            exec(compile(text, "python.md", "exec"), names)
    assert [table.failed for table in names["result"].tables] == [False, False]


@pytest.mark.skipif(not HAS_DATA_SOURCES, reason="PySpark 3.5 has no data sources in Python")
def test_the_lake_is_read_as_the_page_says(
    settlement: PrivateMariaDB, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark and DuckDB find the rows that the warehouse has, after deletes of both kinds."""
    monkeypatch.chdir(tmp_path)
    configure(settlement, tmp_path, monkeypatch)
    monkeypatch.setattr(engines, "SparkEngine", DirectEngine)
    table = "settlement_normal_delivery_detail"
    page = ROOT / "docs" / "guides" / "read-lake.md"
    with open_project("floodmark.yml") as project:
        project.sync(pipelines="settlement").raise_for_failures()
        settlement.execute(f"UPDATE settlement.{table} SET weight_kg = 1 WHERE id <= 20")
        project.sync(pipelines="settlement").raise_for_failures()
        store = project.new_run().store
        name = TableName("PROD", "settlement", table)
        rows = [{"id": number, "update_at": datetime(2100, 1, 1)} for number in (1, 2, 3, 4)]  # noqa: DTZ001
        commit_deletes(store, name, rows[:2], None)
        commit_deletes(store, name, rows[2:], "_deleted_at")
        (result, _) = project.sync(pipelines="settlement", stages=["load"]).tables
        assert (result.error, result.deleted_rows) == (None, 4)
    spark.sql_session()  # which getOrCreate() then returns
    names: dict[str, Any] = {}
    for text in fences(page, "python"):
        with redirect_stdout(StringIO()):
            exec(compile(text, page.name, "exec"), names)
    frame = names["deliveries"]
    assert frame.columns
    with duckdb.connect("warehouse.duckdb") as database:
        columns = ", ".join(frame.columns)
        alive = f"SELECT {columns} FROM {table} WHERE _deleted_at IS NULL"
        expected = database.execute(f"{alive} ORDER BY id").fetchall()
        for text in fences(page, "sql"):
            database.execute(text)
        assert database.execute(f"SELECT {columns} FROM deliveries ORDER BY id").fetchall() == (
            expected
        )
    assert len(expected) == 3_000 - 4
    assert [tuple(row) for row in frame.orderBy("id").collect()] == expected


@pytest.mark.parametrize("text", CONFIGS)
def test_configurations_are_valid(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "floodmark.yml"
    file.write_text(text)
    load_config(str(file), dict.fromkeys(SECRETS, "x"))
