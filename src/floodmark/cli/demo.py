"""`floodmark demo`: the story on embedded parts, told by the real commands."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.embedded.settlement import change_deliveries, create_tables
from floodmark.errors import FloodmarkError
from floodmark.model.table import TableName
from floodmark.state import layout

DELIVERIES = TableName("PROD", "settlement", "settlement_normal_delivery_detail")

CONFIG = """\
lake: ./lake
connections:
  PROD: {{type: mysql, host: 127.0.0.1, port: {port}, user: {user}, password: "${{DEMO_PASSWORD}}"}}
  warehouse: {{type: duckdb, path: ./warehouse.duckdb}}
pipelines:
  settlement:
    source: PROD
    target: warehouse
    tables:
      settlement.settlement_normal_delivery_detail: {{cursor: [update_at, id]}}
      settlement.partner_info: {{}}    # cursor and key are found from the schema
extraction: {{window_rows: 25000, windows_per_chunk: 2}}
"""


@click.command()
@click.option("--keep", is_flag=True, help="Leave the folder with lake and configuration behind.")
@click.option(
    "--rows",
    type=click.IntRange(min=1000),
    default=300_000,
    show_default=True,
    help="Deliveries in the source.",
)
def demo(rows: int, *, keep: bool) -> None:
    """Tell the story on a private MariaDB, a local lake and DuckDB, in about a minute."""
    folder = Path(tempfile.mkdtemp(prefix="floodmark-demo-"))
    try:
        with PrivateMariaDB(folder / "mariadb") as source:
            Story(folder, source).tell(rows)
    finally:
        if keep:
            click.echo(f"\nkept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


class Story:
    """The chapters of the demo, and what they need."""

    def __init__(self, folder: Path, source: PrivateMariaDB) -> None:
        self._folder = folder
        self._source = source
        self._environment = os.environ | {"DEMO_PASSWORD": source.password}

    def tell(self, rows: int) -> None:
        """Tell all chapters."""
        config = CONFIG.format(port=self._source.port, user=self._source.user)
        (self._folder / "floodmark.yml").write_text(config)
        create_tables(self._source.execute, deliveries=rows)
        chapter(f"A MySQL server with {rows:,} deliveries, an empty lake, an empty warehouse")
        self._run("watermark get -t settlement.settlement_normal_delivery_detail")
        self._run("sync -p settlement --dry-run")
        chapter("The first sync")
        self._run("sync -p settlement")
        self._run("watermark get -t settlement.settlement_normal_delivery_detail")
        chapter("Nothing new: no Spark is started")
        self._run("sync -p settlement")
        chapter("Rows change; the next sync reads only those. It is killed in the middle")
        change_deliveries(self._source.execute, every=2)
        time.sleep(1.1)  # what carries the current second is not read before it is over
        self._run_and_kill("sync -p settlement")
        self._run("watermark list")
        chapter("Run again, it goes on behind the last chunk that was committed")
        self._run("sync -p settlement")
        chapter("Somebody destroys the watermark")
        primary = self._folder / "lake" / layout.primary(DELIVERIES)
        say(f"$ echo garbage > lake/{layout.primary(DELIVERIES)}")
        primary.write_text("garbage")
        self._run("watermark get -t settlement.settlement_normal_delivery_detail")
        chapter("Source and warehouse are equal, row by row")
        self._run("sync -p settlement --verify-data")
        chapter("What is tracked is what is there")
        self._run("watermark history -t settlement.settlement_normal_delivery_detail --most 5")
        self._run("watermark validate")
        chapter("Where to look next: README.md, and floodmark --help")

    def _run(self, command: str) -> None:
        say(f"$ floodmark {command}")
        done = subprocess.run(  # noqa: S603
            self._command(command), cwd=self._folder, env=self._environment, check=False
        )
        if done.returncode != 0:
            raise FloodmarkError(f"'floodmark {command}' ended with {done.returncode}")

    def _run_and_kill(self, command: str) -> None:
        say(f"$ floodmark {command} & kill -9 $!   # after its first chunk")
        manifests = self._folder / "lake" / layout.manifests(DELIVERIES)
        before = sum(1 for _ in manifests.rglob("*.json"))
        with subprocess.Popen(  # noqa: S603
            self._command(command), cwd=self._folder, env=self._environment
        ) as process:
            while process.poll() is None:
                if sum(1 for _ in manifests.rglob("*.json")) > before:
                    process.send_signal(signal.SIGKILL)
                    break
                time.sleep(0.01)
        click.echo("killed")

    def _command(self, command: str) -> list[str]:
        return [sys.executable, "-m", "floodmark", *command.split()]


def chapter(title: str) -> None:
    """Begin a chapter."""
    click.secho(f"\n── {title}", bold=True)


def say(line: str) -> None:
    """Show a command as it would be typed."""
    click.secho(line, fg="cyan")
