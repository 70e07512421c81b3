"""Metrics in Prometheus' text format."""

import re
from collections.abc import Iterable
from threading import Lock

# A family's type and help; docs/metrics.md says more of each.
FAMILIES = {
    "floodmark_lag_seconds": ("gauge", "How old the moment is up to which a stage has everything."),
    "floodmark_fresh_timestamp_seconds": ("gauge", "Up to when a stage has everything."),
    "floodmark_held_back_seconds": ("gauge", "For how long a table has been held back."),
    "floodmark_last_success_timestamp_seconds": ("gauge", "When a table last went well."),
    "floodmark_rows_total": ("counter", "Rows that went through a stage."),
    "floodmark_files_total": ("counter", "Data files in the lake."),
    "floodmark_file_bytes_total": ("counter", "Their bytes."),
    "floodmark_quarantined_rows_total": ("counter", "Rows that the target cannot hold."),
    "floodmark_work_seconds_total": ("counter", "Seconds that a stage was at work."),
    "floodmark_recoveries_total": ("counter", "Watermarks that were damaged or lost, and mended."),
    "floodmark_conflicts_total": ("counter", "Races lost to other writers, and tables they held."),
    "floodmark_failures_total": ("counter", "Rounds in which a table failed."),
    "floodmark_rounds_total": ("counter", "Rounds, also those that failed."),
    "floodmark_last_round_timestamp_seconds": ("gauge", "When the last round ended."),
}
# What neither the watermark nor the lake remembers. A metrics file does, from one run to the next.
KEPT = {
    "floodmark_last_success_timestamp_seconds",
    "floodmark_work_seconds_total",
    "floodmark_conflicts_total",
    "floodmark_failures_total",
    "floodmark_rounds_total",
}
_SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? ([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]{1,2})?)")


class Metrics:
    """The last value of each series. May be read and written by several threads."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, float]] = {family: {} for family in FAMILIES}
        self._lock = Lock()

    def set(self, family: str, value: float, **labels: str) -> None:
        """Set a value."""
        with self._lock:
            self._values[family][_write_labels(labels)] = value

    def add(self, family: str, amount: float, **labels: str) -> None:
        """Add to a value, which begins at zero."""
        with self._lock:
            series, key = self._values[family], _write_labels(labels)
            series[key] = series.get(key, 0.0) + amount

    def recall(self, text: str, tables: Iterable[str]) -> None:
        """Take up what an earlier run wrote of these tables and only it could know."""
        known = {"", *(_write_labels({"table": table}) for table in tables)}
        for line in text.splitlines():
            found = _SAMPLE.fullmatch(line)
            if found and found[1] in KEPT:
                labels = found[2] or ""
                if labels.partition(',stage="')[0] in known:
                    self._values[found[1]][labels] = float(found[3])

    def write(self, now: float) -> str:
        """All that is known, with the lag as of now."""
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
