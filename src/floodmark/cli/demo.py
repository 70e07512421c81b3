"""`floodmark demo`: run the real commands on an embedded source, lake and warehouse."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

from floodmark.cli.terminal import fold, style, width
from floodmark.embedded.mariadb import PrivateMariaDB
from floodmark.embedded.settlement import change_deliveries, create_tables, insert_deliveries
from floodmark.errors import FloodmarkError
from floodmark.model import lake_layout
from floodmark.model.table import TableName

DELIVERIES = TableName("PROD", "settlement", "settlement_normal_delivery_detail")
NEEDED = {
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
    "java": "openjdk-17-jre-headless",
}
CHAPTERS = 8
WINDOWS = 12
WIDEST = 80


@click.command()
@click.option("--keep", is_flag=True, help="Keep the folder with the lake and the warehouse.")
@click.option(
    "--rows",
    type=click.IntRange(1000, 100_000_000),
    default=300_000,
    show_default=True,
    help="Number of deliveries in the source.",
)
def demo(rows: int, *, keep: bool) -> None:
    """Run a self-contained demo on MariaDB, a local lake and DuckDB (about a minute)."""
    _check_programs()
    folder = Path(tempfile.mkdtemp(prefix="floodmark-demo-"))
    try:
        with PrivateMariaDB(folder / "mariadb") as source:
            Demo(folder, source, rows).run()
    finally:
        if keep:
            click.echo(f"\nfolder kept, server stopped:\n  cd {folder} && floodmark watermark list")
        else:
            shutil.rmtree(folder, ignore_errors=True)


class Demo:
    """The chapters of the demo."""

    def __init__(self, folder: Path, source: PrivateMariaDB, rows: int) -> None:
        self._folder = folder
        self._source = source
        self._rows = rows
        self._chapter = 0
        ours = {k: v for k, v in os.environ.items() if not k.startswith(("FLOODMARK_", "MYSQL_"))}
        self._environment = ours | {
            "MYSQL_PASSWORD": source.password,
            "FLOODMARK_EXTRACTION": f"{{window_rows: {rows // WINDOWS}, windows_per_chunk: 2}}",
        }

    def run(self) -> None:
        """Run all chapters."""
        began = time.monotonic()
        create_tables(self._source.execute, deliveries=self._rows)
        self._begin()
        self._run("sync -p settlement --dry-run")
        self._open("The first sync", "MySQL → Parquet files in the lake → DuckDB.")
        self._run("sync -p settlement")
        self._run(f"watermark get -t {DELIVERIES.unscoped}")
        self._open(
            "Nothing new", "A sync with nothing to do returns at once, without starting Spark."
        )
        self._run("sync -p settlement")
        self._open("Rows change", "The next sync reads only the changed rows.")
        self._change(every=100)
        self._run("sync -p settlement")
        self._open(
            "A sync is killed halfway",
            "Committed chunks stay; the next run reads the rest.",
        )
        self._change(every=2)
        self._run_and_kill("sync -p settlement")
        self._run("watermark list")
        self._open(
            "The watermark is corrupted",
            "It is a checkpoint with backups; the manifests are the source of truth.",
        )
        self._destroy(lake_layout.primary(DELIVERIES))
        self._run(f"watermark get -t {DELIVERIES.unscoped}")
        self._open(
            "Run it again",
            "It resumes after the last chunk, then compares all columns of source and warehouse.",
        )
        self._run("sync -p settlement --verify-data")
        self._open("What happened", "The log records every step, and you can restore any of them.")
        self._run(f"watermark history -t {DELIVERIES.unscoped} --most 5")
        self._run("watermark validate")
        self._end(time.monotonic() - began)

    def _begin(self) -> None:
        self._open(
            "A source, and a configuration",
            f"A private MariaDB with {self._rows:,} deliveries; 'init' detects tables, keys and"
            " cursors.",
        )
        login = f"--port {self._source.port} --user {self._source.user}"
        self._run(f"init --yes {login} --pipeline settlement")

    def _change(self, *, every: int) -> None:
        for statement in (change_deliveries(every), insert_deliveries(self._rows // 100)):
            _show("mysql> ", fold(f"{statement};", indent=4))
            self._source.execute(statement)
        time.sleep(1.1)  # rows of the current second are read once it is over

    def _destroy(self, key: str) -> None:
        _show("$ ", f"echo garbage > lake/{key}")
        (self._folder / "lake" / key).write_text("garbage\n")

    def _run(self, command: str) -> None:
        _show("$ ", f"floodmark {command}")
        done = subprocess.run(  # noqa: S603
            self._command(command), cwd=self._folder, env=self._environment, check=False
        )
        if done.returncode != 0:
            raise FloodmarkError(f"'floodmark {command}' exited with code {done.returncode}")

    def _run_and_kill(self, command: str) -> None:
        _show("$ ", f"floodmark {command} &")
        manifests = self._folder / "lake" / lake_layout.manifests(DELIVERIES)
        before = sum(1 for _ in manifests.rglob("*.json"))
        # Small chunks, so that the kill falls between two of them.
        small = {
            "FLOODMARK_EXTRACTION": f"{{window_rows: {self._rows // 60}, windows_per_chunk: 1}}"
        }
        with subprocess.Popen(  # noqa: S603
            self._command(command), cwd=self._folder, env=self._environment | small
        ) as process:
            while process.poll() is None:
                if sum(1 for _ in manifests.rglob("*.json")) > before:
                    process.send_signal(signal.SIGKILL)
                    break
                time.sleep(0.01)
        click.echo("\r\x1b[K" if width() else "", nl=False)
        _show("$ ", "kill -9 %1        # right after its first chunk")

    def _command(self, command: str) -> list[str]:
        return [sys.executable, "-m", "floodmark", *shlex.split(command)]

    def _open(self, title: str, summary: str) -> None:
        self._chapter += 1
        heading = f"━━ {self._chapter}/{CHAPTERS} {title} "
        rule = "━" * (min(width() or WIDEST, WIDEST) - len(heading))
        click.echo(f"\n{style(heading + rule, 'blue', bold=True)}\n{fold(summary, indent=0)}")

    def _end(self, seconds: float) -> None:
        rule = "━" * min(width() or WIDEST, WIDEST)
        click.echo(f"\n{style(rule, 'blue', bold=True)}")
        click.echo(
            f"Done in {seconds:.0f} s: a crash, a corrupt file, no row lost or loaded twice.\n\n"
            "Next steps:\n"
            "  README.md                 your own first sync, in five steps\n"
            "  docs/guides/              daily syncs, backfill, recovery, clusters\n"
            "  floodmark init            write your configuration\n"
            "  floodmark --help          all commands"
        )


def _check_programs() -> None:
    """Raise FloodmarkError if a program is missing, with the packages to install."""
    places = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin"
    missing = [program for program in NEEDED if shutil.which(program, path=places) is None]
    if missing:
        packages = " ".join(dict.fromkeys(NEEDED[program] for program in missing))
        raise FloodmarkError(
            f"the demo needs {' and '.join(missing)}, not found on this machine",
            hint=f"on Debian: apt install {packages}",
        )


def _show(prompt: str, line: str) -> None:
    """Print a line as if typed at a prompt."""
    click.echo(f"\n{prompt}{style(line, 'cyan', bold=True)}")
