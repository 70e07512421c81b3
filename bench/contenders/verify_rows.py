"""Run a command of Floodmark that compares every row, and no checksums: the way before them."""

import sys

from floodmark.api import verification
from floodmark.cli.main import run
from floodmark.sync.verify import Verification


class RowByRow(Verification, frozen=True, kw_only=True):
    """A verification without checksums."""

    by_checksum: bool = False


if __name__ == "__main__":
    vars(verification)["Verification"] = RowByRow
    sys.exit(run(sys.argv[1:]))
