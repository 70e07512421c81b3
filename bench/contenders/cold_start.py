"""A start of Spark, step by step: a line of JSON with the wall and CPU seconds of each."""

import json
import os
import time
from collections.abc import Callable
from typing import Any

from meter import tree_cpu

_steps: dict[str, dict[str, float]] = {}
_last = {"wall": time.monotonic(), "cpu": tree_cpu(os.getpid())}


def done(step: str) -> None:
    """Note what was spent since the step before."""
    now = {"wall": time.monotonic(), "cpu": tree_cpu(os.getpid())}
    _steps[step] = {kind: now[kind] - _last[kind] for kind in now}
    _last.update(now)


def telling(step: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, noted when it is through."""

    def told(*words: Any, **named: Any) -> Any:
        result = function(*words, **named)
        done(step)
        return result

    return told


def work(number: int) -> str:
    """What a worker has to import before it can read."""
    import floodmark.engine.task  # noqa: F401

    return str(number)


def main() -> None:
    """Start, run tasks twice, and stop."""
    from floodmark.engine import session

    done("import PySpark")
    vars(session)["start_java"] = telling("start Java", vars(session)["start_java"])
    with session.spark_session(log_file=os.devnull) as spark:
        done("start Spark")
        spark.run("first", work, 2, None)
        done("first tasks: daemon, workers, imports")
        spark.run("second", work, 2, None)
        done("next tasks")
    done("stop")
    print(json.dumps(_steps))


if __name__ == "__main__":
    main()
