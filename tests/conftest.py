"""Servers that tests share: each starts on first use and ends with the session."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from floodmark.embedded.mariadb import PrivateMariaDB
from servers.ministack import Ministack
from servers.mysql import MISSING, PrivateMySQL
from servers.postgres import PrivatePostgres
from servers.redshift import RedshiftStandIn
from servers.seaweedfs import SeaweedFS

if TYPE_CHECKING:
    from pipelines import Pipeline
    from synced_table import NewTable
    from warehouses import Loads, Warehouse

# What a shell runs in the background ignores Ctrl-C, and so would all that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# Servers and lakes sync to their disk all the time. In memory that takes no time; what tests
# there leave is removed, unless they fail.
MEMORY = Path("/dev/shm")
MEMORY_BYTES = 8 << 30


def _has_room(folder: Path) -> bool:
    """Whether the data of all servers fits, and programs can be run there."""
    if not os.access(folder, os.W_OK):
        return False
    space = os.statvfs(folder)
    # Half of the memory that the folder may take must be there in truth.
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    free = min(space.f_bavail * space.f_frsize, total // 2)
    return free > MEMORY_BYTES and not space.f_flag & os.ST_NOEXEC


if _has_room(MEMORY):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# Every session with a server would load the hundreds of CA certificates of the system, in 20 ms of
# CPU: a quarter of the suite's time. Tests that need a CA name their own; only a real cluster
# needs those of the system.
if "FLOODMARK_REDSHIFT_URL" not in os.environ:
    os.environ["SSL_CERT_FILE"] = str(Path(__file__).with_name("authority.pem"))
    os.environ.pop("SSL_CERT_DIR", None)

# With this, tests for which one kind of source or warehouse is enough run on all kinds.
ALL_SERVERS = os.environ.get("FLOODMARK_ALL_SERVERS") == "1"

# What takes longest begins first, so that no process is left with it at the end.
LONGEST_FIRST = (
    "integration/test_schema_changes.py",
    "integration/test_replicas.py",
    "contract/test_target.py",
    "faults/test_sync_faults.py",
    "faults/test_load_kills.py",
    "integration/test_verification.py",
    "integration/test_real_mysql.py",
    "integration/test_bounds.py",
    "integration/test_sync_strategies.py",
    "integration/test_init.py",
    "faults/test_sync_kills.py",
    "integration/test_spark_start.py",
    "faults/test_cluster.py",
    "faults/test_cluster_nodes.py",
    "integration/test_reconcile.py",
    "faults/test_redshift_faults.py",
    "faults/test_sync_every.py",
    "faults/test_reconcile_kills.py",
    "faults/test_mirror_storm.py",
    "faults/test_reconcile_storm.py",
    "integration/test_late_commits.py",
    "integration/test_sync.py",
    "integration/test_tls.py",
    "integration/test_spark_security.py",
    "integration/test_target_tables.py",
    "faults/test_watermark_kills.py",
    "integration/test_connect.py",
    "integration/test_demo.py",
    "integration/test_watermark_move.py",
    "integration/test_no_primary_key.py",
    "integration/test_default_start.py",
    "integration/test_hints.py",
    "integration/test_validation.py",
    "integration/test_cursor_changes.py",
    "integration/test_manual_load.py",
    "faults/test_quarantine_kills.py",
    "faults/test_load_storm.py",
    "faults/test_operator_fuzz.py",
    "faults/test_source_storm.py",
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order files by how long they take; the order within a file stays."""
    places = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST_FIRST)}
    if gone := [str(path) for path in places if not path.exists()]:
        raise pytest.UsageError(f"LONGEST_FIRST in tests/conftest.py names no test: {gone}")
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let tests choose the kinds of source and warehouse that they use, perhaps in a fixture."""
    if "server" in metafunc.fixturenames and (kind := _chosen_kind(metafunc.definition)):
        choice = pytest.mark.parametrize("server", [kind], indirect=True)
        metafunc.definition.add_marker(choice)
    enough = metafunc.definition.get_closest_marker("enough_in")
    if enough and not ALL_SERVERS:
        choice = pytest.mark.parametrize("warehouse", list(enough.args), indirect=True)
        metafunc.definition.add_marker(choice)


def _chosen_kind(test: pytest.Item) -> str | None:
    if only := test.get_closest_marker("only_on"):
        return str(only.args[0])
    if (enough := test.get_closest_marker("enough_on")) and not ALL_SERVERS:
        return str(enough.args[0]) if PrivateMySQL.is_available() else "mariadb"
    return None


@pytest.fixture(scope="session")
def server_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """Makes folders for servers, and removes them when the servers have ended."""
    made: list[Path] = []

    def make(name: str) -> Path:
        made.append(tmp_path_factory.mktemp(name))
        return made[-1]

    yield make
    for folder in made:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def mariadb(server_folder: Callable[[str], Path]) -> Iterator[PrivateMariaDB]:
    with PrivateMariaDB(server_folder("mariadb")) as server:
        yield server


@pytest.fixture(scope="session")
def mysql(server_folder: Callable[[str], Path]) -> Iterator[PrivateMySQL]:
    if not PrivateMySQL.is_available():
        pytest.skip(MISSING)
    with PrivateMySQL(server_folder("mysql")) as server:
        yield server


@pytest.fixture(scope="session", params=["mariadb", "mysql"])
def server(request: pytest.FixtureRequest) -> PrivateMariaDB:
    """A source: MariaDB, then MySQL; the markers `only_on` and `enough_on` choose one of them."""
    found: PrivateMariaDB = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="session")
def postgres(server_folder: Callable[[str], Path]) -> Iterator[PrivatePostgres]:
    with PrivatePostgres(server_folder("postgres")) as server:
        yield server


@pytest.fixture(scope="session")
def seaweedfs(server_folder: Callable[[str], Path]) -> Iterator[SeaweedFS]:
    with SeaweedFS(server_folder("seaweedfs")) as server:
        yield server


@pytest.fixture(scope="session")
def ministack(server_folder: Callable[[str], Path]) -> Iterator[Ministack]:
    with Ministack(server_folder("ministack")) as server:
        yield server


@pytest.fixture(scope="session")
def redshift(postgres: PrivatePostgres, ministack: Ministack) -> Iterator[RedshiftStandIn]:
    """A stand-in for Redshift that reads lakes in ministack."""
    with RedshiftStandIn(postgres, ministack) as server:
        yield server


@pytest.fixture(scope="session")
def spark_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Spark says on stderr; its log of events lies beside it."""
    return tmp_path_factory.mktemp("spark") / "spark.log"


@pytest.fixture(scope="session")
def spark(spark_log: Path) -> Iterator[Any]:
    """One Spark for all tests: a process can have but one."""
    from floodmark.spark.session import spark_session
    from scenarios import use_test_keys

    events = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{spark_log.parent}",
    }
    with ExitStack() as running:
        with pytest.MonkeyPatch.context() as patched:
            use_test_keys(patched)  # the workers inherit them
            start = spark_session(
                master="local[2,4]",
                memory="1g",
                options=events,
                log_file=str(spark_log),
                fast_start="off" not in os.environ.get("FLOODMARK_SPARK", ""),
            )
            session = running.enter_context(start)
        yield session


@pytest.fixture
def settings_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take Spark's settings from the file of a test: the variable would replace all of them."""
    monkeypatch.delenv("FLOODMARK_SPARK", raising=False)


@pytest.fixture
def pipeline(
    server: PrivateMariaDB,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> "Iterator[Callable[..., Pipeline]]":
    """Makes pipelines: an empty schema, an empty lake (`local` or a server's name), a config."""
    from pipelines import new_pipeline
    from scenarios import new_lake, use_test_keys

    use_test_keys(monkeypatch)
    made: list[Pipeline] = []

    def make(tables: dict[str, str], *, lake: str = "local", **options: Any) -> "Pipeline":
        folder = tmp_path / str(len(made))
        source = options.pop("server", server)
        made.append(
            new_pipeline(source, new_lake(lake, request, folder), folder, tables, **options)
        )
        return made[-1]

    yield make
    for one in made:
        server.execute(f"DROP DATABASE IF EXISTS {one.schema}")


@pytest.fixture
def new_table(
    pipeline: "Callable[..., Pipeline]", request: pytest.FixtureRequest, tmp_path: Path
) -> "NewTable":
    """Makes a table `t` that is synced to a warehouse of a kind."""
    from dataclasses import replace

    from pipelines import ask_once
    from synced_table import COLUMNS, CURSOR, Synced
    from warehouses import name_target, new_warehouse

    def make(
        kind: str = "duckdb", columns: str = COLUMNS, settings: str = CURSOR, run_settings: str = ""
    ) -> Synced:
        (tmp_path / "target").mkdir(exist_ok=True)
        lake = "ministack" if kind == "redshift" else "local"
        it = pipeline({"t": settings}, lake=lake, settings=run_settings)
        warehouse = replace(new_warehouse(kind, request, tmp_path / "target"), lake=it.lake)
        name_target(it.config, warehouse.connection)
        ask_once(it, f"CREATE TABLE t ({columns})")
        return Synced(it, warehouse)

    return make


@pytest.fixture
def people(
    redshift: RedshiftStandIn,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> "Loads":
    """Loads of a small table into the Redshift stand-in."""
    from scenarios import new_lake, use_test_keys
    from warehouses import PEOPLE, Loads, new_redshift

    use_test_keys(monkeypatch)
    return Loads(new_redshift(redshift, new_lake("ministack", request, tmp_path)), PEOPLE)


@pytest.fixture(params=["duckdb", "postgres", "redshift"])
def warehouse(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> "Warehouse":
    """An empty warehouse of each kind, with a lake that it can read."""
    from scenarios import use_test_keys
    from warehouses import new_warehouse

    use_test_keys(monkeypatch)
    return new_warehouse(request.param, request, tmp_path)
