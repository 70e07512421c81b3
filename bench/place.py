"""The environment of the benchmark: MariaDB, MySQL, PostgreSQL, folders, the peers' Python."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
from msgspec import Struct, structs

from floodmark.embedded.mariadb import PrivateMariaDB
from meter import tree_cpu
from servers.mysql import PrivateMySQL
from servers.postgres import PrivatePostgres

ROOT = Path(__file__).parents[1]
PEERS = Path(os.environ.get("FLOODMARK_BENCH_PEERS", ROOT / ".peers"))
JAR = PEERS / "jdbc/usr/share/java/mariadb-java-client.jar"

_CONFIG = """
lake: {lake}
connections:
  PROD: {{type: mysql, port: {source.port}, user: {source.user}, password: "{source.password}"}}
  warehouse: {target}
pipelines:
  main:
    source: PROD
    target: warehouse
    tables:
      bench.wide: {{cursor: [update_at, id]}}
      bench.half: {{cursor: [update_at, id]{half}}}
      bench.small: {{cursor: [update_at, id]}}
      bench.large: {{cursor: [update_at, id]}}
      bench.few: {{cursor: [update_at, id]}}
      bench.windows_200: {{cursor: [update_at, id]}}
      bench.windows_2200: {{cursor: [update_at, id]}}
      bench.small_keyless: {{cursor: none}}
      bench.large_keyless: {{cursor: none}}
"""


class Place(Struct, frozen=True, kw_only=True):
    """The servers that all contenders share, and a folder for each of their runs."""

    folder: Path
    source: PrivateMariaDB
    target: PrivatePostgres

    @property
    def source_url(self) -> str:
        """Return the source's URL with its password."""
        source = self.source
        return f"mysql://{source.user}:{source.password}@{source.host}:{source.port}/bench"

    @property
    def target_url(self) -> str:
        """Return the target's URL with its password."""
        target = self.target
        account = f"{target.user}:{target.password}"
        return f"postgresql://{account}@{target.host}:{target.port}/{target.database}"

    def floodmark(
        self, name: str, target: str = "duckdb", lake: str = "./lake", half: str = ""
    ) -> Path:
        """Create a folder with a Floodmark configuration, a lake and its own schema."""
        folder = self.folder / name
        if not folder.exists():
            folder.mkdir()
            server = self.target
            postgres = (
                f"type: postgres, port: {server.port}, user: {server.user},"
                f' password: "{server.password}", database: {server.database},'
                f" schema: {self.schema(name)}"
            )
            targets = {
                "duckdb": "{type: duckdb, path: ./warehouse.duckdb}",
                "postgres": f"{{{postgres}}}",
                "postgres, text": f"{{{postgres}, json: text}}",
            }
            text = _CONFIG.format(source=self.source, target=targets[target], lake=lake, half=half)
            (folder / "floodmark.yml").write_text(text)
        return folder

    def schema(self, name: str) -> str:
        """Return the schema of a folder's configuration in PostgreSQL."""
        return f"{name}_of_mysql" if isinstance(self.source, PrivateMySQL) else name

    def databases_cpu(self) -> float:
        """Return the CPU seconds of both servers so far."""
        return sum(tree_cpu(pid) for server in (self.source, self.target) if (pid := server.pid))

    def rows_noted(self, schema: str, note: str) -> int:
        """Count the rows of a schema's wide table with a note."""
        found = self.target.execute(f"SELECT count(*) FROM {schema}.wide WHERE note = %s", [note])
        return int(found[0][0])

    def rows_noted_in_duckdb(self, folder: str, schema: str, note: str) -> int:
        """Count the rows of a wide table with a note, in the DuckDB file of a folder."""
        with duckdb.connect(self.folder / folder / "warehouse.duckdb", read_only=True) as file:
            rows = f"SELECT count(*) FROM {schema}.wide WHERE note = ?"
            return int(file.execute(rows, [note]).fetchall()[0][0])

    def empty(self, name: str) -> Path:
        """Create a new folder."""
        folder = self.folder / name
        folder.mkdir()
        return folder


@contextmanager
def open_place(folder: Path) -> Iterator[Place]:
    """Start both servers, with enough memory to hold the tables of all contenders."""
    with (
        PrivateMariaDB(folder / "mariadb", {"innodb_buffer_pool_size": "3G"}) as source,
        PrivatePostgres(
            folder / "postgres", {"shared_buffers": "4GB", "max_wal_size": "4GB"}
        ) as target,
    ):
        yield Place(folder=folder, source=source, target=target)


@contextmanager
def with_mysql(place: Place) -> Iterator[Place]:
    """Start a MySQL, and return the same place with it as the source."""
    options = {"innodb-buffer-pool-size": "3G", "innodb-redo-log-capacity": "1G"}
    folder = place.empty("from_mysql")
    with PrivateMySQL(folder / "mysql", options) as source:
        # reladiff needs MD5, which newer versions have only in a component.
        if source.execute("SELECT VERSION() >= '9.6'")[0][0]:
            source.execute("INSTALL COMPONENT 'file://component_classic_hashing'")
        yield structs.replace(place, folder=folder, source=source)


def python() -> str:
    """Return the Python that runs Floodmark."""
    return sys.executable
