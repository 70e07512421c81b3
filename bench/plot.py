"""Draw docs/performance.svg from bench/results.json. Runs in the peers' environment."""

import json
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt

PARTS = {
    "stage 1": "Stage 1: MySQL to files",
    "first load": "First load into the warehouse",
    "changes": "Later syncs into PostgreSQL",
}


def main() -> None:
    """Draw one bar a contender, with its slowest and its fastest run."""
    here = Path(__file__).parent
    results = json.loads((here / "results.json").read_text())
    parts = {part: title for part, title in PARTS.items() if part in results}
    heights = [len(results[part]) for part in parts]
    mpl.rcParams["svg.hashsalt"] = "floodmark"
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
    figure.savefig(here.parent / "docs" / "performance.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
