"""Floodmark in one process with one Spark session, for as many commands as are asked for.

Each line on stdin is a command's words in JSON; the answer is a line with its exit code.
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
    """Start Spark, say so, and then do what is asked."""
    with session.spark_session(memory="1g", log_file="/dev/null") as spark:

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


def run(words: list[str]) -> int:
    """Run a command as the shell does."""
    sys.argv = ["floodmark", *words]
    try:
        floodmark()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


if __name__ == "__main__":
    main()
