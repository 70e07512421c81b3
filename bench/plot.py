"""Draw the charts of docs/performance.md from bench/results.json.

Runs in the peers' environment.
"""

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt

mpl.rcParams["svg.hashsalt"] = "floodmark"

PARTS = {
    "stage 1": "Stage 1: MySQL to files",
    "first load": "First load into the warehouse",
    "changes": "Later syncs into PostgreSQL",
}


_HERE = Path(__file__).parent
_DOCS = _HERE.parent / "docs"


def main() -> None:
    """Draw the comparison, and the scaling model if `scaling.json` has it."""
    compare(json.loads((_HERE / "results.json").read_text()))
    if (_HERE / "scaling.json").exists():
        scale(json.loads((_HERE / "scaling.json").read_text()))


def scale(curves: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Draw the seconds of each simulation by slots; the color of a point is what limits it."""
    limits = sorted({point["limit"] for curve in curves.values() for point in curve.values()})
    colors = dict(zip(limits, mpl.colormaps["tab10"].colors, strict=False))
    figure, axis = plt.subplots(figsize=(8, 5))
    for name, curve in curves.items():
        slots = [int(number) for number in curve]
        seconds = [point["seconds"] for point in curve.values()]
        axis.plot(slots, seconds, color="#999999", linewidth=1, zorder=1)
        shown = [colors[point["limit"]] for point in curve.values()]
        axis.scatter(slots, seconds, c=shown, s=28, zorder=2)
        axis.annotate(name, (slots[0], seconds[0]), (4, 6), textcoords="offset points", fontsize=8)
    for limit, color in colors.items():
        axis.scatter([], [], color=[color], label=limit)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xticks(slots, [str(number) for number in slots])
    axis.minorticks_off()
    axis.set_xlabel("slots of Spark", fontsize=8)
    axis.set_ylabel("seconds", fontsize=8)
    axis.legend(title="limited by", fontsize=8, title_fontsize=8, frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=8)
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
