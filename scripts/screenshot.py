"""Draw the pictures of the status page in the documentation, from the lake that tests use."""

import sys
import tempfile
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests"))

from browser import chromium  # noqa: E402
from floodmark.cli.main import run  # noqa: E402
from sample_lake import SampleLake  # noqa: E402

ORDERS = "#table=PROD%3Ashop.orders"
PICTURES: dict[str, tuple[str, int, int, Literal["light", "dark"]]] = {
    "status.png": ("", 1280, 980, "light"),
    "status-table.png": (ORDERS, 1280, 1130, "light"),
    "status-phone.png": ("", 390, 844, "dark"),
}


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
        for name, (place, width, height, theme) in PICTURES.items():
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=theme)
            page.goto(f"{path.as_uri()}{place}")
            page.wait_for_selector(".row, rect.oldest")
            page.screenshot(path=ROOT / "docs" / "images" / name)


if __name__ == "__main__":
    main()
