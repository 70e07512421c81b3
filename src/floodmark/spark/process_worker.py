"""What a process of `spark.processes` runs: tasks from stdin, answered on stdout."""

import gc
import os
import pickle
import sys
from contextlib import suppress
from traceback import format_exception_only, print_exc

from floodmark.spark.runner import Attempt


def main() -> None:
    """Run tasks until stdin ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # for what libraries print
    with suppress(Exception):  # the first task raises it
        _import_once()
    while True:
        try:
            task, number, attempt = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our parent
        except EOFError:
            os._exit(0)
        pickle.dump(_answer(task, number, attempt), answers)
        answers.flush()


def _import_once() -> None:
    """Import what tasks need, while the command still plans."""
    import connectorx  # noqa: F401

    import floodmark.spark.extract
    import floodmark.worker.extract_window  # noqa: F401

    gc.freeze()


def _answer(task: bytes, number: int, attempt: Attempt) -> tuple[bool, str]:
    """Return whether a task succeeded, and its answer or why it failed."""
    try:
        return True, pickle.loads(task)(number, attempt)  # noqa: S301 - from our parent
    except BaseException as error:  # noqa: BLE001 - connectorx's panics are no Exceptions
        print_exc()  # only shown with --debug
        return False, format_exception_only(error)[-1].strip()
