"""The example for dbt: a sync whose hook builds a project of dbt, on DuckDB's file."""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.embedded.settlement import create_tables
from pipelines import Pipeline, ask_once, source_of
from scenarios import Lake

ROOT = Path(__file__).parents[2]
DBT = Path(os.environ.get("FLOODMARK_DBT", ROOT / ".venv-dbt" / "bin" / "dbt"))
DELIVERIES = "settlement_normal_delivery_detail"
TABLES = (DELIVERIES, "partner_info")

pytestmark = pytest.mark.skipif(
    not DBT.exists(), reason="'make dbt' installs dbt in an environment of its own"
)


@pytest.fixture
def project(
    mariadb: PrivateMariaDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Pipeline]:
    """The demo's tables, the example's project, and its hook."""
    create_tables(mariadb.execute, deliveries=400)
    shutil.copytree(ROOT / "examples" / "dbt", tmp_path / "dbt")
    monkeypatch.setenv("DBT", str(DBT))
    monkeypatch.setenv("WAREHOUSE", str(tmp_path / "warehouse.duckdb"))
    command = json.dumps([sys.executable, str(tmp_path / "dbt" / "build.py")])
    yield Pipeline(
        folder=tmp_path,
        lake=Lake(f"{tmp_path}/lake"),
        source=source_of(mariadb),
        schema="settlement",
        tables=dict.fromkeys(TABLES, "{}"),
    ).write_config(
        f"hooks: {{on_success: [{{command: {command}, timeout_seconds: 300, tries: 1}}]}}\n"
    )
    mariadb.execute("DROP DATABASE settlement")


def built(it: Pipeline) -> dict[str, str]:
    """What dbt did in its last build: each node and its status."""
    results = json.loads((it.folder / "dbt" / "target" / "run_results.json").read_text())
    return {result["unique_id"]: result["status"] for result in results["results"]}


def revenue(it: Pipeline) -> Any:
    with duckdb.connect(str(it.folder / "warehouse.duckdb"), read_only=True) as database:
        return database.execute("SELECT sum(revenue) FROM revenue_by_partner").fetchone()


def test_the_hook_builds_what_depends_on_the_loaded_tables(project: Pipeline) -> None:
    billed = f"SELECT SUM(net_price) FROM {DELIVERIES} WHERE status IN ('billed', 'paid')"
    ended = project.call("sync", "-p", "main")
    assert (ended.code, "hook" in ended.err, "failed" in ended.err) == (0, False, False), ended
    assert len(built(project)) == 7  # the model, and six tests
    assert revenue(project) == ask_once(project, billed)[0]

    now = "NOW() - INTERVAL 5 SECOND"
    ask_once(project, f"UPDATE partner_info SET updated_at = {now} WHERE partner_id = 1")
    ask_once(project, f"UPDATE {DELIVERIES} SET net_price = 7, update_at = {now} WHERE id = 1")
    ended = project.call("sync", "-t", "settlement.partner_info")
    assert (ended.code, "hook" in ended.err, "failed" in ended.err) == (0, False, False), ended
    nodes = built(project)  # only what is after the table that was loaded
    assert set(nodes.values()) == {"success", "pass"}
    assert not [node for node in nodes if "source_" in node and DELIVERIES in node], nodes
    ended = project.call("sync", "-p", "main")
    assert (ended.code, "hook" in ended.err, "failed" in ended.err) == (0, False, False), ended
    assert revenue(project) == ask_once(project, billed)[0]


def test_a_build_that_fails_is_reported_with_the_end_of_what_dbt_says(project: Pipeline) -> None:
    model = project.folder / "dbt" / "models" / "revenue_by_partner.sql"
    model.write_text(model.read_text().replace("partner.country", "partner.no_such_column"))
    ended = project.call("sync", "-p", "main")
    assert ended.code == 0, ended
    assert "for success failed: exit code 1: " in ended.err
    assert "ERROR=" in ended.err
