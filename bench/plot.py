"""Draw the charts of docs/performance.md from bench/results.json.

Runs in the peers' environment.
"""

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt
from matplotlib.lines import Line2D

mpl.rcParams["svg.hashsalt"] = "floodmark"

PARTS = {
    "stage 1": "Stage 1: MySQL to files",
    "first load": "First load into the warehouse",
    "changes": "Later syncs into PostgreSQL",
}


LIMITS = {
    "slots": "#1f77b4",
    "source": "#d62728",
    "source (one connection)": "#ff9896",
    "window edges": "#e377c2",
    "network": "#8c564b",
    "lake": "#2ca02c",
    "warehouse": "#9467bd",
    "warehouse (one connection)": "#c5b0d5",
    "driver": "#ff7f0e",
}
TIMES = {
    1: "1 s",
    10: "10 s",
    30: "30 s",
    60: "1 min",
    300: "5 min",
    900: "15 min",
    3600: "1 h",
    7200: "2 h",
    18000: "5 h",
}
_HERE = Path(__file__).parent
_DOCS = _HERE.parent / "docs"


def main() -> None:
    """Draw the comparison, and the scaling model if `scaling.json` has it."""
    compare(json.loads((_HERE / "results.json").read_text()))
    if (_HERE / "scaling.json").exists():
        scale(json.loads((_HERE / "scaling.json").read_text()))


def scale(curves: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Draw a panel for each simulation: its time by slots; a point's color is what limits it."""
    found = {point["limit"] for curve in curves.values() for point in curve.values()}
    every = [point["seconds"] for curve in curves.values() for point in curve.values()]
    limits = min(every) / 2, max(every) * 1.5
    rows = -(-len(curves) // 2)
    figure, axes = plt.subplots(rows, 2, figsize=(9, 3 * rows), sharex=True, sharey=True)
    for axis, (name, curve) in zip(axes.flat, curves.items(), strict=False):
        slots = [int(number) for number in curve]
        seconds = [point["seconds"] for point in curve.values()]
        ideal = [seconds[0] * slots[0] / number for number in slots]
        axis.plot(slots, ideal, color="#bbbbbb", linewidth=1, linestyle="--", zorder=1)
        axis.plot(slots, seconds, color="#999999", linewidth=1, zorder=2)
        shown = [LIMITS[point["limit"]] for point in curve.values()]
        axis.scatter(slots, seconds, c=shown, s=34, zorder=3)
        axis.set_title(name, loc="left", fontsize=9)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_ylim(*limits)
        axis.set_xticks(slots, curve)
        times = {time: text for time, text in TIMES.items() if limits[0] <= time <= limits[1]}
        axis.set_yticks(list(times), times.values())
        axis.minorticks_off()
        axis.grid(axis="y", color="#eeeeee")
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
        axis.tick_params(labelbottom=True, labelleft=True)
        axis.set_xlabel("slots of Spark", fontsize=8)
    for axis in axes.flat[len(curves) :]:
        axis.set_axis_off()
    marks = [
        Line2D([], [], color=color, marker="o", linestyle="", label=limit)
        for limit, color in LIMITS.items()
        if limit in found
    ]
    marks.append(Line2D([], [], color="#bbbbbb", linestyle="--", label="as if only slots limited"))
    last = axes.flat[len(curves)] if len(curves) % 2 else None
    (last or figure).legend(
        handles=marks,
        title="limited most of the time by",
        loc="center" if last else "lower center",
        fontsize=9,
        title_fontsize=9,
        frameon=False,
    )
    figure.tight_layout()
    figure.savefig(_DOCS / "scaling.svg", metadata={"Date": None})


def compare(results: dict[str, Any]) -> None:
    """Draw one bar a contender, with its slowest and its fastest run."""
    parts = {part: title for part, title in PARTS.items() if part in results}
    heights = [len(results[part]) for part in parts]
    figure, axes = plt.subplots(
        len(parts),
        1,
        figsize=(8, 0.32 * sum(heights) + len(parts)),
        gridspec_kw={"height_ratios": heights},
        squeeze=False,
    )
    for axis, (part, title) in zip(axes[:, 0], parts.items(), strict=True):
        names, costs = list(results[part]), list(results[part].values())
        walls = [cost["wall"] for cost in costs]
        spread = [
            [max(0.0, wall - min(cost["walls"])) for wall, cost in zip(walls, costs, strict=True)],
            [max(0.0, max(cost["walls"]) - wall) for wall, cost in zip(walls, costs, strict=True)],
        ]
        colors = ["#1f77b4" if "Floodmark" in name else "#b0b0b0" for name in names]
        axis.barh(names, walls, xerr=spread, color=colors, ecolor="#555555")
        axis.invert_yaxis()
        axis.set_title(title, loc="left", fontsize=10)
        axis.set_xlabel("seconds, less is better", fontsize=8)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(_DOCS / "performance.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
