"""Write the page to a file."""

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from tempfile import mkstemp
from typing import Any

import msgspec

from floodmark.api.project import Project
from floodmark.api.status import TableStatus
from floodmark.cli.page.document import Overview, Reader, run_values
from floodmark.cli.page.render import render
from floodmark.errors import UsageError

MOST_TABLES = 200
MOST_TABLE_BYTES = 6_000_000
MOST_RUN_BYTES = 2_000_000
"""How many details a file contains: of the worst tables, and of the newest runs."""


def write_page(
    project: Project, found: Sequence[TableStatus], path: str, *, everything: bool
) -> None:
    """Write a page with these tables, which may be everything there is.

    Nobody sees half of it; a file keeps its mode.
    """
    reader = Reader(project)
    values = collect(reader, reader.overview(found, everything=everything))
    page = render(values, live=False)
    temporary = None
    try:
        descriptor, temporary = mkstemp(".tmp", ".floodmark-", os.path.dirname(path) or ".")
        with open(descriptor, "wb") as file:
            file.write(page)
            with suppress(FileNotFoundError):
                os.fchmod(descriptor, stat.S_IMODE(os.stat(path).st_mode))
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            with suppress(OSError):
                os.unlink(temporary)
        raise UsageError(f"cannot write {path}: {error.strerror}") from error


def collect(reader: Reader, overview: Overview) -> dict[str, Any]:
    """Return the values of a file: the overview, and as many details as the bounds allow."""
    tables: dict[str, Any] = {}
    size = 0
    for name, status in list(overview.statuses.items())[:MOST_TABLES]:
        details = reader.table(status, overview)
        size += len(msgspec.json.encode(details))
        if size > MOST_TABLE_BYTES:
            break
        tables[name] = details
    runs: dict[str, Any] = {}
    size = 0
    for run_id, record in overview.records.items():
        values = run_values(record)
        size += len(msgspec.json.encode(values))
        if size > MOST_RUN_BYTES:
            break
        runs[run_id] = values
    return overview.values | {"table_details": tables, "run_details": runs}
