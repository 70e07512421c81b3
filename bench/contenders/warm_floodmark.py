"""Run Floodmark commands in one process with one Spark session: `warm_floodmark.py MASTER`.

Each line on stdin has a command's arguments in JSON; the answer is a line with its exit code.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any

from floodmark.cli.main import main as floodmark
from floodmark.spark import session


def main() -> None:
    """Start Spark, report it, and then run commands."""
    master = sys.argv[1]
    with session.spark_session(
        master=master,
        memory="1g",
        log_file="/dev/null",
        allow_insecure=master.startswith("local-cluster"),  # all of it is on this machine
    ) as spark:

        @contextmanager
        def running(**_: Any) -> Iterator[Any]:
            yield spark

        session.spark_session = running
        print(json.dumps("ready"), flush=True)
        for line in sys.stdin:
            with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as error:
                code = run(json.loads(line))
            answer = {"code": code, "output": out.getvalue(), "error": error.getvalue()}
            print(json.dumps(answer), flush=True)


def run(arguments: list[str]) -> int:
    """Run a command as a shell would."""
    sys.argv = ["floodmark", *arguments]
    try:
        floodmark()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


if __name__ == "__main__":
    main()
