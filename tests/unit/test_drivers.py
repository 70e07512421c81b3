"""Without a driver, an error names it before anything is read."""

import os
import re
import subprocess
import sys
import venv
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import floodmark
from floodmark.checks.targets import check_target
from floodmark.config import drivers
from floodmark.config.models import LakeSettings, PostgresConnection
from floodmark.model.timestamps import utc_now
from floodmark.storage.memory import MemoryObjectStore

SITE = Path(next(path for path in sys.path if path.endswith("site-packages")))
DRIVERS = {"postgres": ["psycopg", "pgpq"], "redshift": ["redshift_connector"]}
CONFIG = """
lake: {lake}
retries: {{tries: 1}}
connections:
  A: {{type: mysql, port: 1, user: u}}
  B: {{type: {kind}, host: 127.0.0.1, port: 1, database: d, user: u}}
pipelines:
  p: {{source: A, target: B, tables: {{a.b: {{}}}}}}
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with everything that is installed here, except for drivers."""
    home = tmp_path_factory.mktemp("venv")
    venv.create(home, with_pip=False)
    (packages,) = home.glob("lib/*/site-packages")
    (packages / "floodmark.pth").write_text(str(Path(floodmark.__file__).parents[1]))
    for found in SITE.iterdir():
        if not found.name.startswith(("psycopg", "pgpq", "redshift_connector", "__editable__")):
            (packages / found.name).symlink_to(found)
    return home


def sync(home: Path, folder: Path, kind: str, *options: str) -> subprocess.CompletedProcess[str]:
    lake = str(folder) if kind == "postgres" else "{url: s3://bucket, endpoint: http://127.0.0.1:1}"
    (folder / "floodmark.yml").write_text(CONFIG.format(lake=lake, kind=kind))
    keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
    return subprocess.run(
        [home / "bin" / "python", "-m", "floodmark", "sync", "-p", "p", *options],
        cwd=folder,
        env={**os.environ, **keys},
        capture_output=True,
        text=True,
    )


@pytest.mark.follows_hint("pip install 'floodmark[")
@pytest.mark.parametrize("kind", DRIVERS)
def test_a_driver_that_is_missing_is_named_before_anything_is_read(
    bare: Path, tmp_path: Path, kind: str
) -> None:
    ended = sync(bare, tmp_path, kind)
    assert ended.returncode == 2
    missing = DRIVERS[kind][0]
    assert ended.stderr == (
        f"error: a {kind} connection needs {missing}, which is not installed\n"
        f"hint: pip install 'floodmark[{kind}]'\n"
    )
    (extra,) = re.findall(r"floodmark\[(\w+)\]", ended.stderr)
    (packages,) = bare.glob("lib/*/site-packages")
    for name in names_of("floodmark", {extra}):
        for file in distribution(name).files or []:
            if (top := Path(file).parts[0]) not in ("..", "__pycache__"):
                (packages / top).unlink(missing_ok=True)
                (packages / top).symlink_to(SITE / top)
    assert set(DRIVERS[kind]) <= {path.name for path in packages.iterdir()}
    further = sync(bare, tmp_path, kind, "--dry-run")  # the next that is missing is a server
    assert re.search("does not answer|: no response", further.stderr + further.stdout), further


def test_doctor_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drivers, "_installed", lambda _: False)
    postgres = PostgresConnection(database="d", user="u")
    (check,) = check_target(
        "B", postgres, MemoryObjectStore(), LakeSettings(url="/"), utc_now, folder="/"
    )
    assert (check.state, check.hint) == ("failed", "pip install 'floodmark[postgres]'")


def names_of(name: str, extras: set[str]) -> set[str]:
    """What an installed package requires for some of its extras, and what that requires."""
    found = set()
    for text in distribution(name).requires or []:
        wanted = Requirement(text)
        marker = wanted.marker
        if marker and "extra" in str(marker) and any(marker.evaluate({"extra": e}) for e in extras):
            found |= {wanted.name} | names_of(wanted.name, wanted.extras)
    return found - {"floodmark"}


def test_all_brings_every_driver_and_the_core_none() -> None:
    everything = names_of("floodmark", {"postgres"}) | names_of("floodmark", {"redshift"})
    assert names_of("floodmark", {"all"}) == everything
    needed = {Requirement(text) for text in distribution("floodmark").requires or []}
    core = {wanted.name for wanted in needed if wanted.marker is None}
    assert core.isdisjoint(everything)
    assert "duckdb" in core


def test_arrow_is_imported_with_the_driver_only_before_a_load() -> None:
    code = (
        "import sys\n"
        "import floodmark.warehouse.postgres.target\n"
        "assert 'pyarrow' not in sys.modules\n"
        "from floodmark.config.models import PostgresConnection\n"
        "from floodmark.warehouse.factory import import_kind\n"
        "import_kind(PostgresConnection(host='h', database='d', user='u'))\n"
        "needed = {'pyarrow.parquet', 'pyarrow.compute', 'pgpq'}\n"
        "assert needed <= sys.modules.keys(), needed - sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
