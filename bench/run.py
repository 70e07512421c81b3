"""`make bench`: every contender on the same tables in one run, interleaved, medians of each.

The parts "… of MySQL" run on MySQL, the others on MariaDB. FLOODMARK_BENCH_ROWS is the number of
rows of the wide table (2,000,000), FLOODMARK_BENCH_ROUNDS how often everything is measured (3), and
FLOODMARK_BENCH_PARTS which parts are (all); results of other parts are kept. Everything measured
goes to bench/results.json; `report.py` makes the tables, `plot.py` the charts.
"""

import json
import os
import platform
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import structs

import meter
import runs
import tables
from driver import measure_driver
from equality import measure_equality
from everyday import measure_commits, measure_listing, measure_watermark
from meter import Cost
from place import PEERS, Place, open_place, with_mysql
from runs import Contender
from scale import measure_idle, measure_logs
from scaling_points import measure_edges, measure_slots
from servers import REGION
from servers.seaweedfs import SeaweedFS

ROWS = int(os.environ.get("FLOODMARK_BENCH_ROWS", "2000000"))
ROUNDS = int(os.environ.get("FLOODMARK_BENCH_ROUNDS", "3"))
RESULTS = Path(__file__).with_name("results.json")
CHANGED = ROWS // 20
FEW = 1000

OF_MYSQL = " of MySQL"
RELEASE = "Floodmark, last release"
ALONE = "Floodmark, without Spark"
Part = Callable[[Place], dict[str, Any]]

_TENTH = ", a tenth of the rows"  # for contenders that would take too long


def main() -> None:
    """Measure all parts, and save the results after each."""
    meter.adopt_orphans()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # installed packages are compiled
    # Relative paths differ from folder to folder, and a command is only forked for the same paths.
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, filter(None, paths)))
    on_both: dict[str, Part] = {
        "stage 1": stage_one,
        "first load": first_load,
        "changes": changes,
        "DuckDB": duckdb_loads,
        "equality": equality,
        "idle": idle,
    }
    parts: dict[str, Part] = {
        **on_both,
        "narrow": narrow,
        "memory": memory,
        "start": start,
        "everyday": everyday,
        "logs": logs,
        "driver": driver,
        "edges": edges,
        "scaling": scaling,
        **{f"{name}{OF_MYSQL}": part for name, part in on_both.items()},
    }
    chosen = os.environ.get("FLOODMARK_BENCH_PARTS", ",".join(parts)).split(",")
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if results.get("rows") != ROWS:
        results = {"rows": ROWS, "measured": {}}
    results["machine"] = machine()
    with (
        ExitStack() as running,
        tempfile.TemporaryDirectory(prefix="floodmark-bench-") as name,
        open_place(Path(name)) as place,
    ):
        say("making the wide table")
        tables.create(place.source, "wide", tables.WIDE, ROWS)
        runs.warm_up(place)
        mysql: Place | None = None
        for part in chosen:
            if part.endswith(OF_MYSQL) and mysql is None:
                mysql = running.enter_context(with_mysql(place))
                say("making the wide table in MySQL")
                tables.create(mysql.source, "wide", tables.WIDE, ROWS)
            at = mysql if mysql is not None and part.endswith(OF_MYSQL) else place
            before = round(os.getloadavg()[1], 1)
            results[part] = parts[part](at)
            results["measured"][part] = {
                "when": datetime.now(UTC).strftime("%Y-%m-%d"),
                "rounds": ROUNDS,
                "load": [before, round(os.getloadavg()[1], 1)],
            }
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")


def stage_one(place: Place) -> dict[str, Any]:
    """Extract the whole wide table to Parquet (Sling: CSV)."""
    with ExitStack() as running:
        warm, jdbc = runs.WarmFloodmark(place), runs.WarmJdbc(place, ROWS)
        running.callback(warm.stop)
        running.callback(jdbc.stop)
        only = ("sync", "-t", "bench.wide", "--backup-only")
        contenders: dict[str, Contender] = {
            "floor, 1 process": lambda n: runs.floor(place, f"floor1_{n}", ROWS, 1),
            "floor, 2 processes": lambda n: runs.floor(place, f"floor2_{n}", ROWS, 2),
            "Floodmark, warm": lambda n: warm.run(place.floodmark(f"warm1_{n}"), *only)[0],
            "Floodmark, cold": lambda n: runs.floodmark(place.floodmark(f"cold1_{n}"), *only),
            "Spark JDBC, warm": lambda n: jdbc.run(place.folder / f"jdbc_{n}"),
        }
        if PEERS.exists():
            tables.create(place.source, "tenth", tables.WIDE, ROWS // 10)
            contenders |= {
                "dlt, connectorx": lambda n: runs.dlt(
                    place, place.empty(f"dltx_{n}"), "files", "connectorx", "replace"
                ),
                f"Sling, CSV{_TENTH}": lambda n: runs.sling(
                    place, place.empty(f"slingc_{n}"), "files", "tenth"
                ),
                f"dlt, default{_TENTH}": lambda n: runs.dlt(
                    place, place.empty(f"dlts_{n}"), "files", "sqlalchemy", "replace", "tenth"
                ),
            }
        # Warm contenders run once before they are measured.
        return interleaved(place, contenders, unmeasured=("Floodmark, warm", "Spark JDBC, warm"))


def first_load(place: Place) -> dict[str, Any]:
    """Load the whole wide table into an empty warehouse, with the whole command."""
    contenders: dict[str, Contender] = {
        "Floodmark → PostgreSQL, cold": lambda n: runs.floodmark(
            place.floodmark(f"fm_{n}", "postgres"), "sync", "-t", "bench.wide"
        ),
        **with_release(
            place,
            lambda n: runs.last_release(
                place.floodmark(f"old_{n}", "postgres"), "sync", "-t", "bench.wide"
            ),
        ),
    }
    if PEERS.exists():
        contenders |= {
            "dlt → PostgreSQL": lambda n: runs.dlt(
                place, place.empty(f"dlt_{n}"), "postgres", "connectorx", "merge"
            ),
            "Sling → PostgreSQL": lambda n: runs.sling(
                place, place.empty(f"sling_{n}"), "postgres"
            ),
        }
    return interleaved(place, contenders)


def changes(place: Place) -> dict[str, Any]:
    """Merge many, few and no changed rows into the tables of the first loads in PostgreSQL."""
    with ExitStack() as running:
        warm, kept = runs.WarmFloodmark(place), runs.KeptWarm(place)
        running.callback(warm.stop)
        running.callback(kept.stop)
        arguments = ("sync", "-t", "bench.wide")
        cold_folder = place.floodmark("fm_0", "postgres")
        warm_folder = place.floodmark("fm_warm", "postgres")
        kept_folder = place.floodmark("fm_kept", "postgres")
        alone_folder = place.floodmark("fm_alone", "postgres")
        for folder in (cold_folder, warm_folder, alone_folder):
            warm.run(folder, *arguments)
        kept.start(kept_folder, *arguments)
        contenders: dict[str, Contender] = {
            "Floodmark, cold": lambda _: runs.floodmark(cold_folder, *arguments),
            ALONE: lambda _: runs.without_spark(alone_folder, *arguments),
            "Floodmark, kept warm": lambda _: kept.run(kept_folder, *arguments),
            "Floodmark, warm": lambda _: warm.run(warm_folder, *arguments)[0],
        }
        schemas = {
            "Floodmark, cold": "fm_0",
            ALONE: "fm_alone",
            "Floodmark, kept warm": "fm_kept",
            "Floodmark, warm": "fm_warm",
        }
        if runs.has_release(place):
            schemas[RELEASE] = "old_0"
            old_folder = place.floodmark("old_0", "postgres")
            runs.last_release(old_folder, *arguments)
            contenders[RELEASE] = lambda _: runs.last_release(old_folder, *arguments)
        if PEERS.exists():
            schemas |= {"dlt": "dlt_0", "Sling": "sling_0"}
            dlt, sling = (place.folder / schemas[name] for name in ("dlt", "Sling"))
            contenders |= {
                "dlt": lambda _: runs.dlt(place, dlt, "postgres", "connectorx", "merge"),
                "Sling": lambda _: runs.sling(place, sling, "postgres"),
            }
            for name, folder in (("dlt", dlt), ("Sling", sling)):
                folder.mkdir(exist_ok=True)
                contenders[name](0)
        days = iter(range(1000))
        changed = Changed("", 0)

        def change(rows: int) -> Callable[[], None]:
            def now() -> None:
                nonlocal changed
                note = tables.change(place.source, "wide", rows, ROWS, next(days))
                changed = Changed(note, rows)

            return now

        def check(name: str) -> None:
            found = place.rows_noted(place.schema(schemas[name]), changed.note)
            assert found == changed.rows, f"{name} brought {found} of {changed}"

        measured = {
            f"{CHANGED:,} changed": interleaved(
                place, contenders, before=change(CHANGED), after=check
            ),
            f"{FEW:,} changed": interleaved(place, contenders, before=change(FEW), after=check),
            "nothing new": interleaved(place, contenders),
        }
        return {
            f"{what}: {who}": found for what, one in measured.items() for who, found in one.items()
        }


def duckdb_loads(place: Place) -> dict[str, Any]:
    """Load the whole wide table into DuckDB, from a folder and from S3; then merge changed rows.

    Sling needs to download DuckDB's program for this, so it is not among the contenders.
    """
    # Its own default has 30,000 MB; with small volumes, commits wait for new ones.
    with SeaweedFS(place.empty("duck_s3"), volume_mb=30_000) as server:
        server.create_bucket("bench")
        keys = {
            "AWS_ACCESS_KEY_ID": server.access_key,
            "AWS_SECRET_ACCESS_KEY": server.secret_key,
            "AWS_REGION": REGION,
        }
        arguments = ("sync", "-t", "bench.wide")

        def on_s3(name: str) -> Cost:
            lake = f"{{url: s3://bench/{name}, endpoint: '{server.endpoint}'}}"
            return runs.floodmark(place.floodmark(name, lake=lake), *arguments, environment=keys)

        first: dict[str, Contender] = {
            "Floodmark": lambda n: runs.floodmark(place.floodmark(f"duck_{n}"), *arguments),
            ALONE: lambda n: runs.without_spark(place.floodmark(f"duck_alone_{n}"), *arguments),
            "Floodmark, S3 lake": lambda n: on_s3(f"duck_s3_{n}"),
        }
        later: dict[str, Contender] = {
            "Floodmark": lambda _: runs.floodmark(place.floodmark("duck_0"), *arguments),
            ALONE: lambda _: runs.without_spark(place.floodmark("duck_alone_0"), *arguments),
            "Floodmark, S3 lake": lambda _: on_s3("duck_s3_0"),
        }
        if PEERS.exists():

            def dlt(name: str) -> Cost:
                folder = place.folder / name
                folder.mkdir(exist_ok=True)
                return runs.dlt(place, folder, "duckdb", "connectorx", "merge")

            first["dlt"] = lambda n: dlt(f"duck_dlt_{n}")
            later["dlt"] = lambda _: dlt("duck_dlt_0")
        if runs.has_release(place):

            def old(name: str) -> Cost:
                return runs.last_release(place.floodmark(name), *arguments)

            first[RELEASE] = lambda n: old(f"duck_old_{n}")
            later[RELEASE] = lambda _: old("duck_old_0")
        # After those of `changes`, and not in the future, which Floodmark does not read.
        days = iter(range(100, 300))
        changed = Changed("", 0)
        schemas = {"Floodmark": ("duck_0", "main"), "Floodmark, S3 lake": ("duck_s3_0", "main")}
        schemas[ALONE] = ("duck_alone_0", "main")
        schemas["dlt"] = ("duck_dlt_0", place.schema("duck_dlt_0"))
        schemas[RELEASE] = ("duck_old_0", "main")

        def change(rows: int) -> Callable[[], None]:
            def now() -> None:
                nonlocal changed
                note = tables.change(place.source, "wide", rows, ROWS, next(days))
                changed = Changed(note, rows)

            return now

        def check(name: str) -> None:
            folder, schema = schemas[name]
            found = place.rows_noted_in_duckdb(folder, schema, changed.note)
            assert found == changed.rows, f"{name} brought {found} of {changed}"

        measured = {
            "first load": interleaved(place, first),
            **{
                f"{rows:,} changed": interleaved(place, later, before=change(rows), after=check)
                for rows in (CHANGED, FEW)
            },
        }
        return {
            f"{what}: {who}": found for what, one in measured.items() for who, found in one.items()
        }


def equality(place: Place) -> dict[str, Any]:
    """Compare tables with PostgreSQL."""
    return measure_equality(place, ROWS, interleaved)


def with_release(place: Place, contender: Contender) -> dict[str, Contender]:
    """Return the last release as a contender, if it can be measured."""
    return {RELEASE: contender} if runs.has_release(place) else {}


class Changed(NamedTuple):
    """The last change: the note in its rows, and their number."""

    note: str
    rows: int


def narrow(place: Place) -> dict[str, Any]:
    """Extract narrow rows at two sizes: the cost of a row."""
    sizes = make_narrow(place)
    warm = runs.WarmFloodmark(place)
    found: dict[str, Any] = {table: [] for table in sizes}
    try:
        for number in range(ROUNDS + 1):
            for table, rows in sizes.items():
                folder = place.floodmark(f"narrow_{table}_{number}")
                arguments = ("sync", "-t", f"bench.{table}", "--backup-only")
                cost, printed = warm.run(folder, *arguments)
                result = printed["tables"][0]
                assert result["rows"] == rows, result
                if number:
                    found[table].append({**structs.asdict(cost), "rows": rows})
                    say(f"{table}: {cost.wall:.1f} s")
    finally:
        warm.stop()
    return {table: middle(costs) for table, costs in found.items()}


def memory(place: Place) -> dict[str, Any]:
    """Measure the memory of driver and worker at two sizes, with keys and streamed without."""
    make_narrow(place)
    make_narrow(place, suffix="_keyless", keys="")
    made = {"with keys": "", "without a key, streamed": "_keyless"}
    found: dict[str, Any] = {}
    for what, suffix in made.items():
        folder = place.floodmark(f"memory{suffix}")
        found[what] = {size: runs.memory(folder, f"{size}{suffix}") for size in ("small", "large")}
    return found


def make_narrow(place: Place, suffix: str = "", **options: str) -> dict[str, int]:
    """Create two narrow tables, one with ten times the rows of the other, unless they exist."""
    sizes = {f"small{suffix}": ROWS // 2, f"large{suffix}": ROWS * 5}
    for table, rows in sizes.items():
        if not place.source.execute(f"SHOW TABLES FROM bench LIKE '{table}'"):
            say(f"making a narrow table of {rows:,} rows")
            tables.create(place.source, table, tables.NARROW, rows, **options)
    return sizes


def start(_: Place) -> dict[str, Any]:
    """Measure a start of Spark, step by step."""
    found = [runs.cold_start() for _ in range(ROUNDS)]
    return {
        step: {kind: statistics.median(one[step][kind] for one in found) for kind in costs}
        for step, costs in found[0].items()
    }


def everyday(place: Place) -> dict[str, Any]:
    """Measure lists, commits, and the size of a watermark."""
    return {
        "listing": measure_listing(place.empty("listing"), ROUNDS),
        "commit": measure_commits(place.empty("commits")),
        "watermark": measure_watermark(),
    }


def idle(place: Place) -> dict[str, Any]:
    """Sync many tables that have nothing new."""
    return measure_idle(place, ROUNDS)


def logs(place: Place) -> dict[str, Any]:
    """Run commands over tables with few and with many manifests."""
    return measure_logs(place.empty("logs"), ROUNDS)


def driver(place: Place) -> dict[str, Any]:
    """Run windows without rows: what is left is the driver's work."""
    return measure_driver(place, ROUNDS)


def edges(place: Place) -> dict[str, Any]:
    """Find edges of windows of the wide table, for the scaling model."""
    return measure_edges(place, ROWS)


def scaling(place: Place) -> dict[str, Any]:
    """Extract the wide table with one, two and four slots, to check the scaling model."""
    return measure_slots(place, ROWS, interleaved)


def interleaved(
    place: Place,
    contenders: dict[str, Contender],
    *,
    before: Callable[[], None] = lambda: None,
    after: Callable[[str], None] = lambda _: None,
    unmeasured: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Run all contenders in turn, round by round, and return the median of each.

    Each round starts with another one: the first may find caches cold.
    """
    for name in unmeasured:
        contenders[name](ROUNDS)
    costs: dict[str, list[dict[str, Any]]] = {name: [] for name in contenders}
    for number in range(ROUNDS):
        before()
        order = deque(contenders)
        order.rotate(-number)
        for name in order:
            spent = place.databases_cpu()
            cost = contenders[name](number)
            databases = place.databases_cpu() - spent
            after(name)
            costs[name].append({**structs.asdict(cost), "databases": databases})
            say(f"{name}: {cost.wall:.1f} s, {cost.cpu:.1f} s of CPU, databases {databases:.1f} s")
    return {name: middle(found) for name, found in costs.items()}


def middle(costs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the median of each measure, and all wall times."""
    medians = {key: statistics.median(cost[key] for cost in costs) for key in costs[0]}
    return {**medians, "walls": [round(cost["wall"], 2) for cost in costs]}


def machine() -> dict[str, Any]:
    """Describe this machine."""
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def say(text: str) -> None:
    """Print progress."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


if __name__ == "__main__":
    main()
