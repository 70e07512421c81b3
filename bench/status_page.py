"""Measure the status page with ten thousand tables: written, served, and in Chromium.

PYTHONPATH=tests .venv/bin/python bench/status_page.py [TABLES]
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from browser import chromium
from floodmark.api.opening import open_project
from floodmark.cli.page.document import Reader
from floodmark.cli.page.file import collect, write_page
from floodmark.cli.page.render import render
from sample_lake import SHOP, Sample, SampleLake

FATES = [sample.fate for sample in SHOP]

# From a key press to the frame after it.
UNTIL_DRAWN = """(act) => new Promise((done) => {
  const began = performance.now();
  eval(act);
  requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
})"""


def timed(what: str, work: Callable[[], Any]) -> Any:
    """Do the work, and print how long it took."""
    began = time.perf_counter()
    result = work()
    print(f"{what:<48} {(time.perf_counter() - began) * 1000:9,.0f} ms", flush=True)
    return result


def main(count: int) -> None:
    """Make a lake, and measure."""
    with tempfile.TemporaryDirectory() as folder:
        samples = [
            Sample(name=f"shop.t{at:05}", rows=1 + at % 900, fate=FATES[at % len(FATES)])
            for at in range(count)
        ]
        lake = SampleLake(Path(folder), samples, days=1)
        timed(f"make a lake of {count:,} tables", lambda: lake.run(samples, fates=True))
        page = Path(folder) / "status.html"
        with open_project(lake.config, environment={}) as project:
            found = timed("read the state of all tables", project.status)
            timed("the same again", project.status)
            timed("write the page", lambda: write_page(project, found, str(page), everything=True))
            reader = Reader(project)
            overview = timed("read the runs", lambda: reader.overview(found))
            body = timed("render the live page", lambda: render(overview.values, live=True))
            print(f"{'size of the file':<48} {page.stat().st_size / 1e6:9,.1f} MB")
            print(f"{'size of the live page':<48} {len(body) / 1e6:9,.1f} MB")
            details = collect(reader, overview)["table_details"]
            print(f"{'details in the file':<48} {len(msgspec.json.encode(details)) / 1e6:9,.1f} MB")
        with chromium() as browser:
            tab = browser.new_page(viewport={"width": 1280, "height": 800})
            timed("open the file in Chromium", lambda: tab.goto(page.as_uri()))
            loaded = tab.evaluate("performance.getEntriesByType('navigation')[0].domComplete")
            print(f"{'of which until the page is complete':<48} {loaded:9,.0f} ms")
            for what, act in {
                "filter by name": "filter.value = 't042'; filter.dispatchEvent(new Event('input'))",
                "filter again": "filter.value = 't04'; filter.dispatchEvent(new Event('input'))",
                "clear the filter": "filter.value = ''; filter.dispatchEvent(new Event('input'))",
                "sort by rows": "document.querySelector('.today button').click()",
                "filter by state": "document.querySelector('.chip.failing').click()",
                "scroll to the end": "scrollTo(0, 1e9)",
            }.items():
                print(f"{what:<48} {tab.evaluate(UNTIL_DRAWN, act):9,.0f} ms")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
