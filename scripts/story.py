"""Run the demo, and write its output into the README, between the marks."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
BLOCK = re.compile(r"(<!-- demo -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> None:
    """Run the demo; nothing is written if it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "floodmark", "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    story = f"```text\n{done.stdout.strip()}\n```\n"
    README.write_text(BLOCK.sub(lambda m: m[1] + story + m[2], README.read_text()))


if __name__ == "__main__":
    main()
