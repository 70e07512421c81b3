"""Draw the pictures of the status page in the documentation, from the lake that tests use."""

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests"))

from browser import chromium  # noqa: E402
from floodmark.cli.main import run  # noqa: E402
from sample_lake import SampleLake  # noqa: E402

PICTURES = {"status.png": ("", 690), "status-table.png": ("#table=PROD%3Ashop.orders", 1150)}


def main() -> None:
    """Write a page, and draw it."""
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        lake = SampleLake(Path(folder))
        lake.fill()
        path = Path(folder) / "status.html"
        if run(["status", "--config", str(lake.config), "--html", str(path)]) != 0:
            sys.exit(1)
        # The lake's place is of no interest.
        path.write_text(path.read_text().replace(str(lake.lake.folder), "s3://shop-lake/floodmark"))
        for name, (place, height) in PICTURES.items():
            page = browser.new_page(viewport={"width": 1280, "height": height})
            page.goto(f"{path.as_uri()}{place}")
            page.wait_for_selector(".row, polyline.edge")
            page.screenshot(path=ROOT / "docs" / "images" / name)


if __name__ == "__main__":
    main()
