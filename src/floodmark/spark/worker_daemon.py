"""A `pyspark.daemon` that starts faster; Spark forks its Python workers from it.

Spark puts archives of PySpark's source first on the path, and modules from an archive are compiled
again at every start. If the archive is inside an installed PySpark, that is used instead. Modules
that all workers need are imported once, before the fork; except those that start a thread on
import, like pyarrow: threads do not survive a fork. Another process may have done that already
(`daemon_handover`).
"""

import gc
import os
import runpy
import sys
import traceback
from contextlib import redirect_stdout
from socket import socket

from floodmark.spark.daemon_handover import WAITING, hand_over, take_over


def without_copies(path: list[str]) -> list[str]:
    """Return a search path without the archives that are copies of an installed PySpark."""
    return [entry for entry in path if not _is_copy(entry)]


def _is_copy(entry: str) -> bool:
    package, found, _ = entry.rpartition(os.path.join("", "python", "lib", ""))
    return bool(found) and entry.endswith(".zip") and os.path.exists(f"{package}/__init__.py")


def _import_once() -> None:
    with redirect_stdout(sys.stderr):  # Spark reads the daemon's port from stdout
        import connectorx  # noqa: F401
        import msgspec  # noqa: F401
        import obstore  # noqa: F401
        import pymysql  # noqa: F401
        import pyspark.worker  # noqa: F401

        import floodmark.worker.job  # noqa: F401

    gc.freeze()  # PySpark collects garbage after each task; skip these objects


def _become_another(path: list[str]) -> socket:
    """Wait for Java's daemon, to go on in its place; exit if that cannot be."""
    try:
        return take_over(sys.argv[2], path, _import_once)
    except Exception:  # noqa: BLE001 - Java's daemon goes on, and says what is wrong
        sys.exit(1)


if __name__ == "__main__":
    path = list(sys.path)
    sys.path[:] = without_copies(path)
    if sys.argv[1:2] == [WAITING]:
        os.register_at_fork(after_in_child=_become_another(sys.path).close)
    elif hand_over(sys.path):
        sys.exit()
    else:
        try:
            _import_once()
        except Exception:  # noqa: BLE001 - PySpark's own daemon imports nothing; workers do later
            sys.path[:] = path
            traceback.print_exc()
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
