"""Start Spark step by step, and print wall and CPU seconds of each step as JSON."""

import json
import os
import time
from typing import Any

from meter import tree_cpu

_steps: dict[str, dict[str, float]] = {}
_last = {"wall": time.monotonic(), "cpu": tree_cpu(os.getpid())}


def done(step: str) -> None:
    """Record the time since the previous step."""
    now = {"wall": time.monotonic(), "cpu": tree_cpu(os.getpid())}
    _steps[step] = {kind: now[kind] - _last[kind] for kind in now}
    _last.update(now)


def work(number: int) -> str:
    """Import what a worker needs before it can read."""
    import floodmark.worker.extract_window  # noqa: F401

    return str(number)


def main() -> None:
    """Start, run tasks twice, and stop."""
    from floodmark.spark.jvm_launcher import StartingJava
    from floodmark.spark.session import spark_session

    reach = StartingJava.reach

    def reached(starting: StartingJava) -> Any:
        done("start Java, import PySpark meanwhile")
        gateway = reach(starting)
        done("wait for Java")
        return gateway

    StartingJava.reach = reached  # type: ignore[assignment, method-assign]
    with spark_session(log_file=os.devnull) as spark:
        done("start Spark")
        spark.run("first", work, 2, None)
        done("first tasks: daemon, workers, imports")
        spark.run("second", work, 2, None)
        done("next tasks")
    done("stop")
    print(json.dumps(_steps))


if __name__ == "__main__":
    main()
