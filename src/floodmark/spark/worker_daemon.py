"""What Spark forks its Python workers from: `pyspark.daemon`, ready sooner.

Spark puts archives of PySpark's source in front of the path, and whatever is imported from those is
compiled anew at every start. Where the archive lies inside an installed PySpark, that is taken
instead. What all workers need is imported once, before they are forked; but nothing that starts a
thread when it is imported, as pyarrow does: a fork would leave it behind.
"""

import gc
import os
import sys


def without_copies(path: list[str]) -> list[str]:
    """A search path without the archives that are copies of what is installed beside them."""
    return [entry for entry in path if not _is_copy(entry)]


def _is_copy(entry: str) -> bool:
    package, found, _ = entry.rpartition(os.path.join("", "python", "lib", ""))
    return bool(found) and entry.endswith(".zip") and os.path.exists(f"{package}/__init__.py")


if __name__ == "__main__":
    sys.path[:] = without_copies(sys.path)

    import connectorx  # noqa: F401
    import msgspec  # noqa: F401
    import obstore  # noqa: F401
    import pymysql  # noqa: F401
    import pyspark.worker  # noqa: F401
    from pyspark.daemon import manager

    import floodmark.worker.job  # noqa: F401

    gc.freeze()  # PySpark collects garbage after each task, and all of this is none
    manager()
