"""Write the tables of docs/performance.md from bench/results.json, and print them."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import scaling

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).with_name("results.json")
CURVES = Path(__file__).with_name("scaling.json")
PAGE = ROOT / "docs" / "performance.md"
_COMPARING = ("Floodmark", "reladiff", "full reload", "Floodmark, without JSON")
_RELEASE = "Floodmark, last release"
_ALONE = "Floodmark, without Spark"
_SOURCES = {"MariaDB": "", "MySQL": " of MySQL"}
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def main() -> None:
    """Update the page, and print its tables."""
    results = json.loads(RESULTS.read_text())
    text = report(results)
    print(text)
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")
    if scaling.is_measured(results):
        curves = {
            name: {
                slots: {"seconds": one.seconds, "limit": one.limit} for slots, one in found.items()
            }
            for name, found in scaling.curves(results).items()
        }
        CURVES.write_text(json.dumps(curves, indent=1) + "\n")  # for plot.py


def report(results: dict[str, Any]) -> str:
    """Return all tables as Markdown."""
    machine, measured = results["machine"], results["measured"]
    heading = (
        f"{machine['cores']} cores, Python {machine['python']}, {results['rows']:,} wide rows. Each"
        " part was measured in one run, with the number of rounds below; the medians are shown. The"
        " load is the machine's before and after it: above the number of cores, other processes"
        " were running."
    )
    dates = table(
        ("part", "measured", "rounds", "load"),
        (
            (name, one["when"], str(one["rounds"]), ", ".join(map(str, one["load"])))
            for name, one in measured.items()
        ),
    )
    parts = [heading, dates]
    for name, title in (
        ("stage 1", "Stage 1: the whole wide table to files"),
        ("first load", "First load: the whole wide table into an empty warehouse"),
        ("changes", "Later syncs into PostgreSQL, with merge"),
        ("DuckDB", "DuckDB: a first load, and a later sync, cold"),
        ("equality", "Source and PostgreSQL compared"),
        ("scaling", "Stage 1 with one, two and four slots on two cores, warm"),
    ):
        for source, part in _SOURCES.items():
            if found := results.get(name + part):
                parts += [f"### {title}: {source}", costs(found)]
    if "narrow" in results:
        parts += ["### Ten times the rows", sizes(results["narrow"])]
    if "memory" in results:
        parts += ["### Memory at ten times the rows", memory(results["memory"])]
    if "start" in results:
        parts += ["### A start of Spark", steps(results["start"])]
    if "everyday" in results:
        parts += ["### Everyday costs", everyday(results["everyday"])]
    for source, part in _SOURCES.items():
        if found := results.get(f"idle{part}"):
            parts += [f"### Tables with nothing new: {source}", idle(found)]
    if "driver" in results:
        parts += ["### A window with hardly any rows", window(results["driver"])]
    if scaling.is_measured(results):
        parts += ["### The scaling model", scaling_points(results), scaling_curves(results)]
    if "logs" in results:
        parts += ["### A log of 100 manifests and one of 10,000", logs(results["logs"])]
    parts += ["### Targets", targets(results)]
    return "\n\n".join(parts)


def costs(found: dict[str, Any]) -> str:
    """Return one line a contender."""
    return table(
        ("contender", "wall s", "all runs", "CPU s", "databases' CPU s", "peak MB", "MB written"),
        (
            (
                name,
                f"{cost['wall']:.1f}",
                ", ".join(f"{wall:.1f}" for wall in cost["walls"]),
                f"{cost['cpu']:.1f}",
                f"{cost['databases']:.1f}",
                f"{cost['memory'] / 1e6:,.0f}",
                f"{cost['bytes'] / 1e6:,.0f}" if cost["bytes"] else "",
            )
            for name, cost in found.items()
        ),
    )


def sizes(found: dict[str, Any]) -> str:
    """Return the cost of narrow rows at two sizes."""
    return table(
        ("rows", "wall s", "µs a row"),
        (
            (
                f"{cost['rows']:,.0f}",
                f"{cost['wall']:.1f}",
                f"{cost['wall'] / cost['rows'] * 1e6:.2f}",
            )
            for cost in found.values()
        ),
    )


def memory(found: dict[str, Any]) -> str:
    """Return the memory of driver and workers at two sizes."""
    return table(
        ("table", "rows", "seconds", "driver's Python, MB", "a worker, MB"),
        (
            (
                what,
                f"{cost['rows']:,}",
                f"{cost['seconds']:.1f}",
                f"{cost['driver'] / 1e6:.0f}",
                f"{cost['worker'] / 1e6:.0f}",
            )
            for what, sizes in found.items()
            for cost in sizes.values()
        ),
    )


def steps(found: dict[str, Any]) -> str:
    """Return the time of each step of a start. The CPU time of ended processes is not included."""
    return table(
        ("step", "wall s", "CPU s"),
        (
            (name, f"{cost['wall']:.2f}", f"{cost['cpu']:.2f}" if name != "stop" else "")
            for name, cost in found.items()
        ),
    )


def everyday(found: dict[str, Any]) -> str:
    """Return the costs of lists, commits and watermarks."""
    listing, watermark = found["listing"], found["watermark"]
    lines = [
        (f"`watermark list` of {listing['tables']:,} tables", f"{listing['wall']:.1f} s"),
        *(
            (f"a watermark {when} manifests, {what}", f"{size:,}")
            for when, sizes in watermark.items()
            for what, size in sizes.items()
        ),
    ]
    for where, cost in found["commit"].items():
        lines.append((f"a commit, {where}", f"{cost['seconds'] * 1000:.0f} ms"))
        for what in ("a commit", "taking the lease", "giving it back"):
            requests = cost[f"requests of {what}"]
            text = ", ".join(f"{count} {name}" for name, count in requests.items())
            lines.append((f"requests of {what}, {where}", f"{sum(requests.values())}: {text}"))
    return table(("what", "cost"), lines)


def idle(found: dict[str, Any]) -> str:
    """Return the cost of a table with nothing new."""
    return table(
        ("lake and strategy", "wall ms a table", "CPU ms a table"),
        (
            (name, f"{cost['wall'] * 1000:.1f}", f"{cost['cpu'] * 1000:.1f}")
            for name, cost in found.items()
        ),
    )


def logs(found: dict[str, Any]) -> str:
    """Return the cost of commands over a short and a long log."""
    return table(
        ("command", "100 manifests, s", "10,000 manifests, s", "ratio"),
        (
            (name, f"{cost['few']:.2f}", f"{cost['many']:.2f}", f"{cost['ratio']:.2f}")
            for name, cost in found.items()
        ),
    )


def window(found: dict[str, float]) -> str:
    """Return the CPU time of driver and workers for a window."""
    costs = {name: cost for name, cost in found.items() if name.startswith("CPU")}
    return table(("what", "ms"), ((name, f"{cost * 1000:.1f}") for name, cost in costs.items()))


def scaling_points(results: dict[str, Any]) -> str:
    """Compare the scaling model with what was measured here."""
    found = scaling.check(results)
    return table(
        ("slots, on this machine", "measured s", "simulated s", "ratio"),
        (
            (name, f"{measured:.1f}", f"{simulated:.1f}", f"{simulated / measured:.2f}")
            for name, (measured, simulated) in found.items()
        ),
    )


def scaling_curves(results: dict[str, Any]) -> str:
    """Return how long the model takes with more slots, and what limits it."""
    found = scaling.curves(results)
    return table(
        ("simulated", *(f"{slots} slots" for slots in scaling.SLOTS)),
        (
            (name, *(f"{_duration(one.seconds)}, {one.limit}" for one in outcomes.values()))
            for name, outcomes in found.items()
        ),
    )


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def targets(results: dict[str, Any]) -> str:
    """Compare the results with the targets."""
    rows: list[tuple[str, ...]] = []

    def cost(part: str, name: str) -> dict[str, float]:
        return results.get(part, {}).get(name) or {}

    def faster(what: str, ours: dict[str, float], other: dict[str, float], least: float) -> None:
        if ours and other:
            wall, cpu = (other[kind] / ours[kind] for kind in ("wall", "cpu"))
            reached = "yes" if wall >= least else "no"
            rows.append((what, f"at least {least:g}", f"{wall:.2f}", reached, f"{cpu:.2f}"))

    def at_most(what: str, ours: float, other: float, most: float, cpu: str = "") -> None:
        reached = "yes" if ours / other <= most else "no"
        rows.append((what, f"at most {most:g}", f"{ours / other:.2f}", reached, cpu))

    def slower(what: str, ours: dict[str, float], other: dict[str, float], most: float) -> None:
        if ours and other:
            cpu = f"{ours['cpu'] / other['cpu']:.2f}"
            at_most(what, ours["wall"], other["wall"], most, cpu)

    for source, part in _SOURCES.items():
        one, first, later = (f"{name}{part}" for name in ("stage 1", "first load", "changes"))
        duckdb, equality = f"DuckDB{part}", f"equality{part}"
        changed = f"{results['rows'] // 20:,} changed"
        start = f"{source}: "
        warm, floor = cost(one, "Floodmark, warm"), cost(one, "floor, 2 processes")
        slower(f"{start}stage 1, warm, against the floor of two processes", warm, floor, 1.15)
        faster(f"{start}stage 1, warm, than Spark JDBC", warm, cost(one, "Spark JDBC, warm"), 2.5)
        dlt = cost(one, "dlt, connectorx")
        faster(f"{start}stage 1, warm, than dlt with connectorx", warm, dlt, 1.3)
        cold = cost(first, "Floodmark → PostgreSQL, cold")
        for peer in ("dlt", "Sling"):
            other = cost(first, f"{peer} → PostgreSQL")
            faster(f"{start}first load, cold, than {peer}", cold, other, 1.5)
        for peer in ("dlt", "Sling"):
            other = cost(later, f"{changed}: {peer}")
            for kind, least in (("cold", 1), ("without Spark", 1), ("warm", 3), ("kept warm", 3)):
                ours = cost(later, f"{changed}: Floodmark, {kind}")
                faster(f"{start}{changed}, {kind}, than {peer}", ours, other, least)
        few, other = "1,000 changed", cost(later, "1,000 changed: Sling")
        for kind, least in (("cold", 1), ("without Spark", 1), ("kept warm", 3)):
            ours = cost(later, f"{few}: Floodmark, {kind}")
            faster(f"{start}{few}, {kind}, than Sling", ours, other, least)
        for what in ("first load", changed):
            local = cost(duckdb, f"{what}: Floodmark")
            other = cost(duckdb, f"{what}: dlt")
            faster(f"{start}DuckDB, {what}, cold, than dlt", local, other, 2)
            remote = cost(duckdb, f"{what}: Floodmark, S3 lake")
            slower(f"{start}DuckDB, {what}, S3 lake against a folder", remote, local, 1.15)
        for what in ("first load", changed, few):
            alone, other = cost(duckdb, f"{what}: {_ALONE}"), cost(duckdb, f"{what}: dlt")
            faster(f"{start}DuckDB, {what}, without Spark, than dlt", alone, other, 2)
        if local := cost(duckdb, "first load: Floodmark"):
            what = f"{start}DuckDB, memory of a first load, in units of 1 GB"
            at_most(what, local["memory"], 1e9, 1)
        nothing = cost(later, "nothing new: Floodmark, cold")
        slower(f"{start}nothing new, against Sling", nothing, cost(later, "nothing new: Sling"), 2)
        equal, deleted, compared = (
            {who: cost(equality, f"{what}: {who}") for who in _COMPARING}
            for what in ("equal", "1,000 deleted", "all columns")
        )
        us, peer, reload, no_json = _COMPARING
        old = cost(equality, f"all columns: {_RELEASE}")
        faster(f"{start}equal tables, than reladiff", equal[us], equal[peer], 2)
        slower(f"{start}equal tables, against a reload", equal[us], equal[reload], 0.1)
        faster(f"{start}1,000 deletes, than reladiff", deleted[us], deleted[peer], 5)
        faster(f"{start}all columns, than the last release", compared[us], old, 5)
        what = f"{start}all columns that reladiff can compare, than reladiff"
        faster(what, compared[no_json], compared[peer], 1)
        for name, found in results.get(f"idle{part}", {}).items():
            cpu = f"{found['cpu'] / 0.01:.2f}"
            at_most(f"{start}nothing new, {name}, in 10 ms a table", found["wall"], 0.01, 1, cpu)
        for part_name, ours_name, release in (
            (first, "Floodmark → PostgreSQL, cold", _RELEASE),
            (later, f"{changed}: Floodmark, cold", f"{changed}: {_RELEASE}"),
            (later, f"{few}: Floodmark, cold", f"{few}: {_RELEASE}"),
            (later, "nothing new: Floodmark, cold", f"nothing new: {_RELEASE}"),
            (duckdb, "first load: Floodmark", f"first load: {_RELEASE}"),
            (duckdb, f"{changed}: Floodmark", f"{changed}: {_RELEASE}"),
        ):
            what = f"{start}{ours_name}, against the last release"
            slower(what, cost(part_name, ours_name), cost(part_name, release), 1.05)
    for name, found in results.get("logs", {}).items():
        at_most(f"`{name}`, 10,000 manifests against 100", found["many"], found["few"], 1.5)
    if driver := results.get("driver"):
        at_most("driver's CPU for a window, in 2 ms", driver["CPU of a window"], 0.002, 1)
    if scaling.is_measured(results):
        for name, (measured, simulated) in scaling.check(results).items():
            what = f"scaling model, {name}: the longer of measured and simulated, against the other"
            at_most(what, max(measured, simulated), min(measured, simulated), 1.2)
    if narrow := results.get("narrow"):
        row = {name: found["wall"] / found["rows"] for name, found in narrow.items()}
        at_most("cost of a row at ten times the rows", row["large"], row["small"], 1.1)
    for what, sizes in results.get("memory", {}).items():
        for who in ("driver", "worker"):
            most = sizes["large"][who]
            at_most(
                f"memory of a {who} at ten times the rows, {what}", most, sizes["small"][who], 1.1
            )
            at_most(f"memory of a {who}, {what}, in units of 500 MB", most, 500e6, 1)
    if everyday := results.get("everyday"):
        few, many = (found["bytes but numbers"] for found in everyday["watermark"].values())
        at_most("a watermark after 10,000 manifests against 10, but for numbers", many, few, 1)
    return table(("target", "goal", "measured", "reached", "by CPU"), rows)


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    main()
