#!/usr/bin/env python3
"""Build what depends on the tables that a run of floodmark has loaded: a hook for `on_success`.

    hooks:
      on_success:
        - {command: [python3, /etc/floodmark/dbt/build.py], timeout_seconds: 3600, tries: 1}

The message of the run is read from stdin. Of the tables that it loaded, those that are sources of
this project are tested, and all models after them are built. What dbt prints goes to stderr, of
which floodmark shows the last line if dbt fails.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parent
SOURCE = "settlement"


def main() -> int:
    """Check the freshness of the loaded tables, and build what depends on them."""
    names = json.load(sys.stdin)["tables"]  # such as PROD:settlement.partner_info
    if not names:
        return 0  # without a selection, dbt would build everything
    sources = [f"source:{SOURCE}.{name.rpartition('.')[2]}" for name in names]
    fresh = dbt("source", "freshness", "--select", *sources)
    built = dbt("build", "--select", *(f"{source}+" for source in sources))
    return built or fresh


def dbt(*arguments: str) -> int:
    """Run dbt in this project, with its own profile."""
    folder = str(PROJECT)
    return subprocess.run(
        [
            *(os.environ.get("DBT", "dbt"), "--no-use-colors", *arguments),
            *("--project-dir", folder, "--profiles-dir", folder),
        ],
        stdout=sys.stderr,
        check=False,
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
