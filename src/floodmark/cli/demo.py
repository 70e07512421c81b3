"""`floodmark demo`: the story on embedded parts, told by the real commands."""

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
@click.option("--keep", is_flag=True, help="Leave the folder with lake and warehouse behind.")
@click.option(
    "--rows",
    type=click.IntRange(1000, 100_000_000),
    default=300_000,
    show_default=True,
    help="Deliveries in the source.",
)
def demo(rows: int, *, keep: bool) -> None:
    """Tell the story on a private MariaDB, a local lake and DuckDB, in about a minute."""
    _check_programs()
    folder = Path(tempfile.mkdtemp(prefix="floodmark-demo-"))
    try:
        with PrivateMariaDB(folder / "mariadb") as source:
            Story(folder, source, rows).tell()
    finally:
        if keep:
            click.echo(f"\nkept; the server is stopped:\n  cd {folder} && floodmark watermark list")
        else:
            shutil.rmtree(folder, ignore_errors=True)


class Story:
    """The chapters of the demo, and what they need."""

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

    def tell(self) -> None:
        """Tell all chapters."""
        began = time.monotonic()
        create_tables(self._source.execute, deliveries=self._rows)
        self._begin()
        self._run("sync -p settlement --dry-run")
        self._open("The first sync", "MySQL → Parquet files in the lake → DuckDB.")
        self._run("sync -p settlement")
        self._run(f"watermark get -t {DELIVERIES.unscoped}")
        self._open("Nothing new", "A sync with nothing to do answers at once; it starts no Spark.")
        self._run("sync -p settlement")
        self._open("Rows change", "The next sync reads those, and no others.")
        self._change(every=100)
        self._run("sync -p settlement")
        self._open(
            "A sync is killed in the middle",
            "What was committed stays; the rest is read again, once.",
        )
        self._change(every=2)
        self._run_and_kill("sync -p settlement")
        self._run("watermark list")
        self._open(
            "And the watermark is destroyed",
            "It is a checkpoint with copies; the truth is in the manifests.",
        )
        self._destroy(lake_layout.primary(DELIVERIES))
        self._run(f"watermark get -t {DELIVERIES.unscoped}")
        self._open(
            "Run it again",
            "It goes on behind the last chunk. Then source and warehouse are compared, row by row.",
        )
        self._run("sync -p settlement --verify-data")
        self._open("What happened", "Every step is in the log, and any of them can be restored.")
        self._run(f"watermark history -t {DELIVERIES.unscoped} --most 5")
        self._run("watermark validate")
        self._end(time.monotonic() - began)

    def _begin(self) -> None:
        self._open(
            "A source, and a configuration",
            f"A private MariaDB with {self._rows:,} deliveries; 'init' finds its tables, keys and"
            " cursors.",
        )
        login = f"--port {self._source.port} --user {self._source.user}"
        self._run(f"init --yes {login} --pipeline settlement")

    def _change(self, *, every: int) -> None:
        for statement in (change_deliveries(every), insert_deliveries(self._rows // 100)):
            _show("mysql> ", fold(f"{statement};", indent=4))
            self._source.execute(statement)
        time.sleep(1.1)  # what carries the current second is not read before it is over

    def _destroy(self, key: str) -> None:
        _show("$ ", f"echo garbage > lake/{key}")
        (self._folder / "lake" / key).write_text("garbage\n")

    def _run(self, command: str) -> None:
        _show("$ ", f"floodmark {command}")
        done = subprocess.run(  # noqa: S603
            self._command(command), cwd=self._folder, env=self._environment, check=False
        )
        if done.returncode != 0:
            raise FloodmarkError(f"'floodmark {command}' ended with {done.returncode}")

    def _run_and_kill(self, command: str) -> None:
        _show("$ ", f"floodmark {command} &")
        manifests = self._folder / "lake" / lake_layout.manifests(DELIVERIES)
        before = sum(1 for _ in manifests.rglob("*.json"))
        # Small chunks, so that there is a middle to be killed in.
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

    def _open(self, title: str, what_to_see: str) -> None:
        self._chapter += 1
        heading = f"━━ {self._chapter}/{CHAPTERS} {title} "
        rule = "━" * (min(width() or WIDEST, WIDEST) - len(heading))
        click.echo(f"\n{style(heading + rule, 'blue', bold=True)}\n{fold(what_to_see, indent=0)}")

    def _end(self, seconds: float) -> None:
        rule = "━" * min(width() or WIDEST, WIDEST)
        click.echo(f"\n{style(rule, 'blue', bold=True)}")
        click.echo(
            f"Told in {seconds:.0f} s. Two crimes, and not a row lost or loaded twice.\n\n"
            "Where to look next:\n"
            "  README.md                 a first sync of your own, in five steps\n"
            "  docs/guides/              daily syncs, backfill, recovery, a cluster\n"
            "  floodmark init            writes your configuration\n"
            "  floodmark --help          every command"
        )


def _check_programs() -> None:
    """FloodmarkError if a program is missing, with what to install."""
    places = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin"
    missing = [program for program in NEEDED if shutil.which(program, path=places) is None]
    if missing:
        packages = " ".join(dict.fromkeys(NEEDED[program] for program in missing))
        raise FloodmarkError(
            f"the demo needs {' and '.join(missing)}, which this machine does not have",
            hint=f"on Debian: apt install {packages}",
        )


def _show(prompt: str, line: str) -> None:
    """Show a line as it would be typed."""
    click.echo(f"\n{prompt}{style(line, 'cyan', bold=True)}")
