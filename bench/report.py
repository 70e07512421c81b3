"""Write the tables of docs/performance.md from bench/results.json, and print them."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).with_name("results.json")
PAGE = ROOT / "docs" / "performance.md"
_COMPARING = ("Floodmark", "reladiff", "full reload", "Floodmark, row by row")
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def main() -> None:
    """Update the page, and print its tables."""
    text = report(json.loads(RESULTS.read_text()))
    print(text)
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


def report(results: dict[str, Any]) -> str:
    """Return all tables as Markdown."""
    machine = results["machine"]
    load = ", ".join(map(str, machine["load"]))
    cores = machine["cores"]
    heading = (
        f"Measured on {machine['when']}: {cores} cores, Python {machine['python']},"
        f" {results['rows']:,} wide rows, medians of {results['rounds']}. The machine's load before"
        f" and after each part: {load} (above {cores}, other processes were running)."
    )
    parts = [heading]
    for name, title in (
        ("stage 1", "Stage 1: the whole wide table from MySQL to files"),
        ("first load", "First load: the whole wide table into an empty warehouse"),
        ("changes", "Later syncs into PostgreSQL, with merge"),
        ("DuckDB", "DuckDB: a first load, and a later sync, cold"),
        ("equality of MySQL", "Source and target compared: MySQL and PostgreSQL"),
        ("equality of MariaDB", "Source and target compared: MariaDB and PostgreSQL"),
    ):
        if name in results:
            parts += [f"### {title}", costs(results[name])]
    if "narrow" in results:
        parts += ["### Ten times the rows", sizes(results["narrow"])]
    if "memory" in results:
        parts += ["### Memory at ten times the rows", memory(results["memory"])]
    if "start" in results:
        parts += ["### A start of Spark", steps(results["start"])]
    if "everyday" in results:
        parts += ["### Everyday costs", everyday(results["everyday"])]
    if "idle" in results:
        parts += ["### Tables with nothing new", idle(results["idle"])]
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

    one, first, later = "stage 1", "first load", "changes"
    changed = f"{results['rows'] // 20:,} changed"
    warm, floor = cost(one, "Floodmark, warm"), cost(one, "floor, 2 processes")
    slower("stage 1, warm, against the floor of two processes", warm, floor, 1.15)
    faster("stage 1, warm, than Spark JDBC", warm, cost(one, "Spark JDBC, warm"), 2.5)
    faster("stage 1, warm, than dlt with connectorx", warm, cost(one, "dlt, connectorx"), 1.3)
    cold = cost(first, "Floodmark → PostgreSQL, cold")
    for peer in ("dlt", "Sling"):
        faster(f"first load, cold, than {peer}", cold, cost(first, f"{peer} → PostgreSQL"), 1.5)
    for peer in ("dlt", "Sling"):
        other = cost(later, f"{changed}: {peer}")
        ours = {name: cost(later, f"{changed}: Floodmark, {name}") for name in ("cold", "warm")}
        faster(f"{changed}, cold, than {peer}", ours["cold"], other, 1)
        faster(f"{changed}, warm, than {peer}", ours["warm"], other, 3)
        faster(f"incremental with merge, warm, than {peer}", ours["warm"], other, 2)
    few, other = "1,000 changed", cost(later, "1,000 changed: Sling")
    faster(f"{few}, cold, than Sling", cost(later, f"{few}: Floodmark, cold"), other, 1)
    faster(f"{few}, kept warm, than Sling", cost(later, f"{few}: Floodmark, kept warm"), other, 3)
    kept = cost(later, f"{changed}: Floodmark, kept warm")
    faster(f"{changed}, kept warm, than Sling", kept, cost(later, f"{changed}: Sling"), 3)
    for what in ("first load", changed):
        local = cost("DuckDB", f"{what}: Floodmark")
        faster(f"DuckDB: {what}, cold, than dlt", local, cost("DuckDB", f"{what}: dlt"), 2)
        remote = cost("DuckDB", f"{what}: Floodmark, S3 lake")
        slower(f"DuckDB: {what}, S3 lake against a folder", remote, local, 1.15)
    if local := cost("DuckDB", "first load: Floodmark"):
        at_most("DuckDB: memory of a first load, in units of 1 GB", local["memory"], 1e9, 1)
    nothing = cost(later, "nothing new: Floodmark, cold")
    slower("nothing new, against Sling", nothing, cost(later, "nothing new: Sling"), 2)
    for source in ("MySQL", "MariaDB"):
        part = f"equality of {source}"
        equal, deleted, compared = (
            {who: cost(part, f"{what}: {who}") for who in _COMPARING}
            for what in ("equal", "1,000 deleted", "all columns")
        )
        us, peer, reload, by_row = _COMPARING
        faster(f"{source}: equal tables, than reladiff", equal[us], equal[peer], 2)
        slower(f"{source}: equal tables, against a reload", equal[us], equal[reload], 0.1)
        faster(f"{source}: 1,000 deletes, than reladiff", deleted[us], deleted[peer], 5)
        faster(f"{source}: all columns, than row by row", compared[us], compared[by_row], 5)
        faster(f"{source}: all columns, than reladiff", compared[us], compared[peer], 1)
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
