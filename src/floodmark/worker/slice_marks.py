"""Mark in a file each slice that was read, so that progress is seen before a task ends.

Only for display: workers on other machines do not have the file, and a retried task marks again.
"""

import os
from contextlib import suppress


def mark_done(path: str | None) -> None:
    """Add a mark to a file that exists."""
    if path is not None:
        with suppress(OSError):
            file = os.open(path, os.O_WRONLY | os.O_APPEND)
            try:
                os.write(file, b".")
            finally:
                os.close(file)
