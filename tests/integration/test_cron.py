"""The lines of the example for cron, run as cron runs them."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from sys import executable

import pytest

from pipelines import Ended, Pipeline, ask_once, numbers
from scenarios import open_store

pytestmark = pytest.mark.enough_on("mariadb")

New = Callable[..., Pipeline]
EXAMPLE = Path(__file__).parents[2] / "examples" / "cron" / "floodmark"


class Cron:
    """Runs the jobs of the example: with its environment only, and with what it prints as mail."""

    def __init__(self, it: Pipeline) -> None:
        lines = [line for line in EXAMPLE.read_text().splitlines() if not line.startswith("#")]
        settings = dict(line.split("=", 1) for line in lines if "=" in line.split()[0])
        self.metrics = it.folder / "floodmark.prom"
        self.environment = {
            **settings,
            "PATH": f"{Path(executable).parent}:{settings['PATH']}",
            "FLOODMARK_CONFIG": it.config,
            "HOME": str(it.folder),
        }
        commands = [line.split(maxsplit=6)[6] for line in lines if "=" not in line.split()[0]]
        ours = {
            "-p settlement": "-p main",
            "/var/lib/node_exporter/floodmark.prom": str(self.metrics),
        }
        for theirs, here in ours.items():
            assert any(theirs in command for command in commands)
            commands = [command.replace(theirs, here) for command in commands]
        self.sync, self.status, self.prune = commands

    def run(self, command: str) -> Ended:
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            capture_output=True,
            text=True,
            env=self.environment,
            cwd=self.environment["HOME"],
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)


def test_the_lines_for_cron_print_problems_and_nothing_else(pipeline: New) -> None:
    it = pipeline({"t": "{cursor: [update_at, id]}"})
    ask_once(
        it,
        "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, update_at DATETIME NOT NULL"
        " DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, KEY (update_at, id))",
    )
    add = (
        f"INSERT INTO t (update_at) SELECT '2025-06-01' + INTERVAL seq SECOND FROM {numbers(1, 20)}"
    )
    ask_once(it, add)
    cron, quiet = Cron(it), Ended(0, "", "")
    for _ in range(2):  # with rows to read, by Spark, and with nothing new
        assert cron.run(cron.sync) == quiet
        assert f'floodmark_rows_total{{table="{it.table()}",stage="load"}} 20' in (
            cron.metrics.read_text()
        )
    assert cron.run(cron.status) == quiet
    assert cron.run(cron.prune) == quiet
    with open_store(it.lake.open()).lease(it.table(), "extract"):
        ask_once(it, add.replace("06-01", "06-02"))
        assert cron.run(cron.sync) == quiet  # the previous run is still in progress

    ask_once(it, "RENAME TABLE t TO gone")
    failed = cron.run(cron.sync)
    assert failed.code != 0
    assert "does not exist, or the user may not read it" in failed.out
    never = it.config.replace("floodmark.yml", "never.yml")
    Path(never).write_text(Path(it.config).read_text().replace(it.lake.yaml, "./empty"))
    cron.environment["FLOODMARK_CONFIG"] = never
    old = cron.run(cron.status)
    assert (old.code, "never synced" in old.out) == (6, True)
