"""Every alert of the example fires when it should, and only then, by Prometheus' own promtool."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from floodmark.api.prometheus import FAMILIES

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "prometheus"
PROMTOOL = ROOT / ".promtool" / "promtool"
RULES: list[dict[str, Any]] = yaml.safe_load((EXAMPLES / "alerts.yml").read_text())["groups"][0][
    "rules"
]
BAD, GOOD = {"table": "P:s.bad"}, {"table": "P:s.good"}
STAGE, READ = {"stage": "load"}, {"stage": "extract"}

Series = tuple[str, dict[str, str], str]

# Time between two values of a series, if it is not a minute.
LONG = {"ReconciliationOverdue": "1h", "DrillOverdue": "1d"}
# Series, the times at which the alert is silent and at which it fires, for whom.
CASES: dict[str, tuple[list[Series], str, str, dict[str, str]]] = {
    "TableFails": (
        [
            ("floodmark_failing_seconds", BAD, "0x10 1+60x60"),
            ("floodmark_failing_seconds", GOOD, "0x70"),
        ],
        "15m",
        "30m",
        BAD,
    ),
    "TableNeverSucceeded": (
        [
            ("floodmark_held_back_seconds", BAD, "0x120"),
            ("floodmark_held_back_seconds", GOOD, "0x120"),
            ("floodmark_fresh_timestamp_seconds", GOOD | STAGE, "0+60x120"),
        ],
        "30m",
        "90m",
        BAD,
    ),
    "TableNeverLoaded": (
        [
            ("floodmark_fresh_timestamp_seconds", BAD | READ, "0+60x240"),
            ("floodmark_fresh_timestamp_seconds", GOOD | READ, "0+60x240"),
            ("floodmark_fresh_timestamp_seconds", GOOD | STAGE, "0+60x240"),
        ],
        "90m",
        "150m",
        BAD | READ,
    ),
    "TableHeldBack": (
        [
            ("floodmark_held_back_seconds", BAD, "0+60x120"),
            ("floodmark_held_back_seconds", GOOD, "0x120"),
        ],
        "15m",
        "30m",
        BAD,
    ),
    "TableDiffers": (
        [
            ("floodmark_differs_seconds", BAD, "0x10 1+60x30"),
            ("floodmark_differs_seconds", GOOD, "0x40"),
        ],
        "5m",
        "20m",
        BAD,
    ),
    "TableStale": (
        [
            ("floodmark_fresh_timestamp_seconds", BAD | STAGE, "0x240"),
            ("floodmark_fresh_timestamp_seconds", GOOD | STAGE, "0+60x240"),
        ],
        "100m",
        "150m",
        BAD | STAGE,
    ),
    "RunOverdue": (
        [
            ("floodmark_last_round_timestamp_seconds", {"instance": "dead"}, "0x240"),
            ("floodmark_last_round_timestamp_seconds", {"instance": "alive"}, "0+60x240"),
        ],
        "100m",
        "150m",
        {"instance": "dead"},
    ),
    "NoMetrics": (
        [("floodmark_last_round_timestamp_seconds", {}, "1x20 stale")],
        "20m",
        "60m",
        {},
    ),
    "ReconciliationOverdue": (
        [
            ("floodmark_reconciled_timestamp_seconds", BAD, "0x60"),
            ("floodmark_reconciled_timestamp_seconds", GOOD, "0+3600x60"),
        ],
        "47h",
        "49h",
        BAD,
    ),
    "RowsInQuarantine": (
        [
            ("floodmark_quarantined_rows_total", BAD, "0x30 1x60"),
            ("floodmark_quarantined_rows_total", GOOD, "7x90"),
        ],
        "20m",
        "60m",
        BAD,
    ),
    "MirrorBehind": ([("floodmark_mirror_behind_seconds", {}, "0+60x120")], "50m", "70m", {}),
    "DrillFailed": ([("floodmark_drill_failed_rehearsals", {}, "0x10 2x20")], "5m", "20m", {}),
    "DrillOverdue": (
        [("floodmark_last_drill_timestamp_seconds", {}, "0x100")],
        "89d",
        "91d",
        {},
    ),
}


def test_every_alert_has_a_case_and_known_metrics() -> None:
    assert [rule["alert"].removeprefix("Floodmark") for rule in RULES] == list(CASES)
    for file in ("alerts.yml", "dashboard.json"):
        named = set(re.findall(r"\bfloodmark_\w+", (EXAMPLES / file).read_text()))
        assert named <= FAMILIES.keys()


def test_the_dashboard_shows_what_the_critical_alerts_of_tables_and_drills_fire_on() -> None:
    dashboard = json.loads((EXAMPLES / "dashboard.json").read_text())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    shown = [target["expr"] for panel in panels for target in panel["targets"]]
    for rule in RULES:
        name = rule["alert"].removeprefix("Floodmark")
        if rule["labels"]["severity"] == "critical" and name.startswith(("Table", "Drill")):
            fires_on = rule["expr"].removesuffix(" > 0")
            assert any(fires_on in expression for expression in shown), name


@pytest.mark.skipif(not PROMTOOL.exists(), reason="promtool is missing: run 'make promtool'")
def test_every_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    files = []
    for name, case in CASES.items():
        step = LONG.get(name, "1m")
        test = {
            "rule_files": [str(EXAMPLES / "alerts.yml")],
            "evaluation_interval": step,
            "tests": [_test(name, step, *case)],
        }
        files.append(tmp_path / f"{name}.yml")
        files[-1].write_text(yaml.safe_dump(test))
    done = subprocess.run(
        [PROMTOOL, "test", "rules", *files], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _test(
    name: str, step: str, series: list[Series], silent: str, firing: str, labels: dict[str, str]
) -> dict[str, Any]:
    """Describe a test for promtool."""
    alert = f"Floodmark{name}"
    (rule,) = (rule for rule in RULES if rule["alert"] == alert)
    return {
        "interval": step,
        "input_series": [
            {"series": _shown(metric, own), "values": values} for metric, own, values in series
        ],
        "promql_expr_test": [
            {
                "expr": f"count by (alertname, severity, table, instance, stage)"
                f' (ALERTS{{alertname="{alert}", alertstate="firing"}})',
                "eval_time": when,
                "exp_samples": samples,
            }
            for when, samples in (
                (silent, []),
                (firing, [_sample({"alertname": alert, **rule["labels"], **labels})]),
            )
        ],
    }


def _sample(labels: dict[str, str]) -> dict[str, Any]:
    return {"labels": _shown("", labels), "value": 1}


def _shown(metric: str, labels: dict[str, str]) -> str:
    return metric + "{" + ", ".join(f'{key}="{value}"' for key, value in labels.items()) + "}"
