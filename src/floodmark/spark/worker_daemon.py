"""A `pyspark.daemon` that starts faster; Spark forks its Python workers from it.

Spark puts archives of PySpark's source first on the path, and modules from an archive are compiled
again at every start. If the archive is inside an installed PySpark, that is used instead. Modules
that all workers need are imported once, before the fork; except those that start a thread on
import, like pyarrow: threads do not survive a fork.
"""

import gc
import os
import runpy
import sys
import traceback
from contextlib import redirect_stdout


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


if __name__ == "__main__":
    path = list(sys.path)
    try:
        sys.path[:] = without_copies(path)
        _import_once()
    except Exception:  # noqa: BLE001 - PySpark's own daemon imports nothing, and workers do later
        sys.path[:] = path
        traceback.print_exc()
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
