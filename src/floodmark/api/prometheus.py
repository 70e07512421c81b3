"""Metrics in Prometheus' text format."""

import re
from collections.abc import Iterable
from threading import Lock

# Type and help text of each metric; docs/metrics.md has the details.
FAMILIES = {
    "floodmark_lag_seconds": ("gauge", "Age of the moment up to which a stage is complete."),
    "floodmark_fresh_timestamp_seconds": ("gauge", "Moment up to which a stage is complete."),
    "floodmark_held_back_seconds": ("gauge", "How long a table has been held back."),
    "floodmark_failing_seconds": ("gauge", "How long a table has been failing."),
    "floodmark_differs_seconds": ("gauge", "How long source and target are known to differ."),
    "floodmark_last_success_timestamp_seconds": ("gauge", "Time of the last success of a table."),
    "floodmark_rows_total": ("counter", "Rows processed by a stage."),
    "floodmark_files_total": ("counter", "Data files in the lake."),
    "floodmark_file_bytes_total": ("counter", "Bytes of data files in the lake."),
    "floodmark_quarantined_rows_total": ("counter", "Rows that the target cannot hold."),
    "floodmark_work_seconds_total": ("counter", "Time that a stage was running."),
    "floodmark_reconciled_timestamp_seconds": ("gauge", "End of the last full reconciliation."),
    "floodmark_reconciled_deletes_total": ("counter", "Rows deleted by reconciliations."),
    "floodmark_reconciled_repairs_total": ("counter", "Rows repaired by reconciliations."),
    "floodmark_reconciled_left_rows": (
        "gauge",
        "Rows known to be deleted in the source and not here.",
    ),
    "floodmark_recoveries_total": ("counter", "Damaged or lost watermarks that were repaired."),
    "floodmark_conflicts_total": (
        "counter",
        "Lost races with other writers, and tables held by other runs.",
    ),
    "floodmark_failures_total": ("counter", "Rounds in which a table failed."),
    "floodmark_mirror_behind_seconds": ("gauge", "How long the mirror has lacked something."),
    "floodmark_mirror_behind_tables": ("gauge", "Tables that the mirror does not have completely."),
    "floodmark_last_drill_timestamp_seconds": (
        "gauge",
        "Time of the oldest last drill of a table.",
    ),
    "floodmark_drill_failed_rehearsals": ("gauge", "Rehearsals of the last drill that failed."),
    "floodmark_unconfigured_tables": ("gauge", "Tables in the lake that are not configured."),
    "floodmark_rounds_total": ("counter", "Rounds, including failed ones."),
    "floodmark_last_round_timestamp_seconds": ("gauge", "End of the last round."),
}
# Not in the watermark or the lake; kept from one run to the next in the metrics file.
KEPT = {
    "floodmark_last_success_timestamp_seconds",
    "floodmark_work_seconds_total",
    "floodmark_conflicts_total",
    "floodmark_failures_total",
    "floodmark_rounds_total",
}
_SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? ([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]{1,2})?)")


class Metrics:
    """The last value of each series. Thread-safe."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, float]] = {family: {} for family in FAMILIES}
        self._lock = Lock()

    def set(self, family: str, value: float, **labels: str) -> None:
        """Set a value."""
        with self._lock:
            self._values[family][_write_labels(labels)] = value

    def add(self, family: str, amount: float, **labels: str) -> None:
        """Add to a value, initially zero."""
        with self._lock:
            series, key = self._values[family], _write_labels(labels)
            series[key] = series.get(key, 0.0) + amount

    def recall(self, text: str, tables: Iterable[str]) -> None:
        """Restore the values of these tables that only an earlier run's file has."""
        known = {"", *(_write_labels({"table": table}) for table in tables)}
        for line in text.splitlines():
            found = _SAMPLE.fullmatch(line)
            if found and found[1] in KEPT:
                labels = found[2] or ""
                if labels.partition(',stage="')[0] in known:
                    self._values[found[1]][labels] = float(found[3])

    def write(self, now: float) -> str:
        """Return all values as text, with the lag as of now."""
        with self._lock:
            fresh = self._values["floodmark_fresh_timestamp_seconds"]
            lag = {labels: max(0.0, now - moment) for labels, moment in fresh.items()}
            values = self._values | {"floodmark_lag_seconds": lag}
            lines: list[str] = []
            for family, (kind, text) in FAMILIES.items():
                lines += [f"# HELP {family} {text}", f"# TYPE {family} {kind}"]
                for labels, value in values[family].items():
                    lines.append(
                        f"{family}{{{labels}}} {value!r}" if labels else f"{family} {value!r}"
                    )
        return "\n".join(lines) + "\n"


def _write_labels(labels: dict[str, str]) -> str:
    return ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items())


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
