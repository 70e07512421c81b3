"""The status page in a real Chromium: what is shown is what the lake says."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
import pytest
from msgspec import structs

from browser import CHROMIUM, chromium, opened
from floodmark.api.opening import open_project
from floodmark.api.status import STATES
from floodmark.cli.http_access import Access
from floodmark.cli.http_server import LOOPBACK, HttpServer
from floodmark.cli.main import run
from floodmark.cli.page.render import render
from floodmark.cli.page.site import Site
from floodmark.model import lake_layout
from floodmark.model.failure import Failure
from floodmark.model.formatting import brief
from floodmark.model.run_record import RunRecord
from floodmark.model.timestamps import utc_now
from floodmark.state.lease import record_failure
from sample_lake import DIFFERENCE, HELD, HOUR, PASSWORD, SHOP, Sample, SampleLake

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: make setup")

HOSTILE = "shop.</script><script>alert(1)</script><img src=x onerror=alert(2)>'\"&{{js}}"
LOOK_AGAIN = "dispatchEvent(new Event('visibilitychange'))"
ATTACK = '"><svg onload=alert(3)></script><script>alert(4)</script>&lt;b&gt;'


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> SampleLake:
    folder = tmp_path_factory.mktemp("sample")
    made = SampleLake(folder, [*SHOP, Sample(name=HOSTILE, rows=7)], days=4)
    made.fill(every=12 * HOUR)
    now = utc_now()
    failure = Failure(stage="load", error=ATTACK, hint=ATTACK, since=now, at=now, session_id="x")
    record_failure(made.objects, made.table(made.samples[-1]), failure, owner=ATTACK, began=now)
    return made


@pytest.fixture(scope="module")
def url(sample: SampleLake) -> str:
    path = sample.config.with_name("status.html")
    assert run(["status", "--config", str(sample.config), "--html", str(path)]) == 0
    return path.as_uri()


@pytest.fixture
def tables(sample: SampleLake, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """What `status --json` prints, worst first."""
    assert run(["status", "--config", str(sample.config), "--json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def names(page: "Page") -> list[str]:
    """The names in the rows that are drawn."""
    return page.locator(".row .name a").evaluate_all("all => all.map((one) => one.title)")  # type: ignore[no-any-return]


def state_of(table: dict[str, Any]) -> str:
    """A table that is no longer configured is counted as such alone."""
    return str(table["state"]) if table["configured"] else "not configured"


def test_tables_are_shown_as_the_lake_has_them(
    browser: "Browser", url: str, tables: list[dict[str, Any]]
) -> None:
    with opened(browser, url) as page:
        page.set_viewport_size({"width": 1280, "height": 1200})
        assert names(page) == [table["table_name"] for table in tables]
        rows = page.locator(".row").all()
        for row, table in zip(rows, tables, strict=True):
            shown = {
                key: row.locator(f".{key}").inner_text()
                for key in ("condition", "name", "fresh", "today", "why")
            }
            assert shown["condition"] == state_of(table)
            assert shown["name"] == table["table_name"]
            assert (shown["fresh"] == "unknown") == (table["fresh"] is None)
            assert shown["today"] == f"{table['rows_today']:,}"
            assert shown["why"] == (table["reason"] or "")
        facts = page.locator(".fact").all_inner_texts()
        in_step = sum(table["state"] == "in step" for table in tables if table["configured"])
        assert (
            page.locator("h1").inner_text() == f"{in_step} of {len(tables) - 1} tables are in step"
        )
        assert facts[1].endswith("oldest data; 1 unknown")
        last = page.locator(".fact a.partial")
        style = "one => [getComputedStyle(one).color, getComputedStyle(one).textDecorationLine]"
        assert last.evaluate(style) == ["rgb(154, 103, 0)", "underline"]
        assert (
            facts[2]
            == f"{sum(t['rows_today'] for t in tables if t['configured']):,}\nrows read today"
        )
        assert page.locator(".chip").all_inner_texts() == [
            f"{state}{sum(state_of(table) == state for table in tables)}"
            for state in (*STATES, "not configured")
        ]
        assert re.fullmatch(r"complete\nmirror", facts[4])
        assert facts[5].endswith("last drill: 176 rehearsals recovered in 16 of 16 tables")


def test_a_first_day_that_is_not_read_whole_is_marked(
    browser: "Browser", url: str, tmp_path: Path
) -> None:
    with opened(browser, url) as page:
        values = page.evaluate("JSON.parse(document.getElementById('data').textContent)")
    details = values["table_details"]["PROD:shop.orders"]
    first, *_ = details["history_days"] = details["history_days"][-2:]
    first["partial"] = True
    details["since"] = f"{first['day']}T15:20:00Z"
    path = tmp_path / "busy.html"
    path.write_bytes(render(values, live=False))
    with opened(browser, f"{path.as_uri()}#table=PROD%3Ashop.orders") as page:
        page.wait_for_selector(f"text=since {first['day']} 15:20 (UTC): of the first day only")
        bars = page.locator("rect.column title").all_text_contents()
        assert bars[0].startswith(f"{first['day']} (from 15:20:00): {first['rows']:,} rows")
        assert page.locator("rect.column.part").count() >= 1


def oldest_each_day(page: "Page", table: str) -> list[str]:
    """The greatest age of the data on each day, from the runs in the page."""
    values = page.evaluate("JSON.parse(document.getElementById('data').textContent)")
    runs = values["table_details"][table]["runs"]
    points = [(parsed(run["ended_at"]), parsed(run["table"]["fresh"])) for run in runs]
    end = parsed(values["as_of"])
    ages: dict[str, timedelta] = {}
    for (begin, fresh), (until, _) in pairwise([*points, (end, end)]):
        days = (begin.date() + timedelta(days=n) for n in range((until - begin).days + 2))
        for day in days:
            midnight = datetime.combine(day + timedelta(days=1), time(), UTC)
            if midnight - timedelta(days=1) <= until:
                age = min(until, midnight) - fresh
                ages[str(day)] = max(age, ages.get(str(day), age))
    return [f"{day}: at most {brief(age)} old" for day, age in ages.items()]


def parsed(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_a_table_shows_its_stages_history_and_problems(
    browser: "Browser", url: str, tables: list[dict[str, Any]]
) -> None:
    known = {table["table_name"]: table for table in tables}

    def read(page: "Page", name: str) -> str:
        page.goto(f"{url}#table=PROD%3Ashop.{name}")
        page.wait_for_selector(f"h1:has-text('shop.{name}')")
        return page.locator("main").inner_text()

    with opened(browser, url) as page:
        orders = read(page, "orders")
        assert DIFFERENCE in orders
        assert "set by hand" in orders
        assert page.locator("tr.hand").count() == 1
        position = page.locator(".stages .position").first.inner_text()
        assert re.fullmatch(r"\d{4}-\d\d-\d\d [\d:.]+ ?\nid \d+", position)
        rows = f"{known['PROD:shop.orders']['rows_read']:,}"
        assert page.locator(".stages dd").first.inner_text() == rows
        assert f"{rows} rows in 30 days" in orders
        bars = page.locator("rect.column title").all_text_contents()
        read_a_day = [re.search(r": ([\d,]+) rows", bar) for bar in bars]
        counts = [int(found[1].replace(",", "")) for found in read_a_day if found]
        assert (len(counts), f"{sum(counts):,}") == (30, rows)
        assert page.locator(".limit-text").text_content() == "behind after 24 h"
        ticks = page.locator(".chart").first.locator("text[text-anchor=end]").all_text_contents()
        assert ticks == ["0", "6 h", "12 h", "18 h", "24 h"]
        oldest = page.locator("rect.oldest title").all_text_contents()
        assert oldest == oldest_each_day(page, "PROD:shop.orders")
        payments = read(page, "payments")
        assert "extract fails, since" in payments
        assert PASSWORD in payments
        assert "check 'user' and 'password' of the connection PROD" in payments
        assert page.locator(".stages .state").all_inner_texts()[:2] == ["failed", "success"]
        held = read(page, "stock_movements")
        assert HELD in held
        assert "Newer rows are read by the first run after this has ended." in held
        assert page.locator(".stages .state").first.inner_text() == "held back"
        assert "37 deleted, 2 stale" in read(page, "customers")
        deliveries = read(page, "deliveries")
        assert "rows in the lake are not loaded yet" in deliveries
        assert "watermarks/backups/" in deliveries
        cards = read(page, "gift_cards")
        assert "Unknown: no recorded run has read this table to its end." in cards
        assert "Unknown: source and target were never compared." in cards
        assert "Nothing was committed yet." in cards
        page.goto(f"{url}#table=PROD%3Ashop.nothing")
        page.wait_for_selector("text=There is no such table here.")


def test_runs_are_shown_with_their_stages(browser: "Browser", url: str) -> None:
    with opened(browser, f"{url}#runs") as page:
        runs = page.evaluate("JSON.parse(document.getElementById('data').textContent).runs")
        shown = page.locator("tbody tr td:first-child").all_inner_texts()
        assert shown == [run["started_at"][:19].replace("T", " ") for run in runs]
        assert page.locator(".strip a, .chart a").count() == len(runs)
        assert page.locator(".spare:visible").count() > len(runs)
        page.locator(".chip.failed").click()
        assert page.locator("tbody tr").count() == sum(run["failed"] > 0 for run in runs) == 2
        assert page.url.endswith("#runs=&failed=1")
        page.reload()
        page.wait_for_selector(".chip.failed[aria-pressed=true]")
        page.locator("tbody a").first.click()
        page.wait_for_selector(f"h1:has-text('{runs[0]['run_id']}')")
        text = page.locator("main").inner_text()
        assert f"{runs[0]['rows']:,}\nrows read" in text
        assert PASSWORD in text
        assert page.locator("svg.stagebar .seg.load").count() > 5
        page.keyboard.press("Escape")
        page.wait_for_selector("h1:text-is('Runs')")
        assert page.url.endswith("#runs=&failed=1")
        page.set_viewport_size({"width": 390, "height": 800})
        heads = page.locator("th:visible").all_inner_texts()
        assert heads[:4] == ["Started (UTC)", "Status", "Lasted", "Failed"]
        page.set_viewport_size({"width": 1280, "height": 800})
        page.keyboard.press("/")
        page.keyboard.type("prices")
        assert names(page) == ["PROD:shop.prices"]


def test_what_a_killed_run_read_is_unknown(browser: "Browser", sample: SampleLake) -> None:
    key = next(iter(sample.objects.list_objects(lake_layout.RUNS))).key
    data = sample.objects.get(key).data
    record = msgspec.json.decode(data, type=RunRecord)
    killed = structs.replace(record, status="running", ended_at=None, tables=(), unchanged={})
    sample.objects.put(key, msgspec.json.encode(killed))
    path = sample.config.with_name("killed.html")
    try:
        assert run(["status", "--config", str(sample.config), "--html", str(path)]) == 0
    finally:
        sample.objects.put(key, data)
    with opened(browser, f"{path.as_uri()}#runs") as page:
        cells = page.locator("tbody tr").last.locator("td").all_inner_texts()
    assert cells[1:3] == ["did not finish", "unknown"]
    assert cells[5:7] == ["unknown", "unknown"]


def test_runs_of_a_pipeline(browser: "Browser", url: str, tmp_path: Path) -> None:
    with opened(browser, url) as page:
        values = page.evaluate("JSON.parse(document.getElementById('data').textContent)")
    values["runs"][1]["pipelines"] = ["stock"]
    path = tmp_path / "pipelines.html"
    path.write_bytes(render(values, live=False))
    with opened(browser, f"{path.as_uri()}#runs") as page:
        page.locator("#pipeline").select_option("stock")
        assert page.locator("tbody tr").count() == 1
        assert page.locator("#pipeline").input_value() == "stock"
        page.goto(f"{path.as_uri()}#runs&pipeline=none")
        page.wait_for_selector("text=No run matches.")


def test_the_same_cause_is_shown_once_and_filters(browser: "Browser", url: str) -> None:
    with opened(browser, url) as page:
        causes = page.locator(".cause")
        first = causes.first.inner_text()
        assert first.startswith("3 tables\nfailing")
        assert f"extract failed: {PASSWORD}" in first
        assert "hint: check 'user' and 'password' of the connection PROD" in first
        assert causes.count() == 4  # two single tables, and the one with an attack
        page.get_by_role("button", name="3 tables").click()
        assert names(page) == [f"PROD:shop.{name}" for name in ("payments", "refunds", "vouchers")]
        page.reload()
        assert len(names(page)) == 3  # the address has it
        page.keyboard.press("Escape")
        assert len(names(page)) > 3
        page.locator(".chip.not_configured").click()
        assert names(page) == ["PROD:shop.old_carts"]


def test_a_command_in_a_hint_can_be_copied(browser: "Browser", url: str) -> None:
    command = "floodmark sync -t PROD:shop.orders --verify-data --repair"
    read = "navigator.clipboard.readText()"
    with opened(browser, url, permissions=["clipboard-read", "clipboard-write"]) as page:
        assert page.locator(".command code").all_inner_texts() == [command]
        page.locator(".copy").click()
        page.wait_for_selector(".copy:has-text('Copied')")
        assert page.evaluate(read) == command
        page.evaluate("navigator.clipboard.writeText('')")
        page.evaluate("navigator.clipboard.writeText = () => Promise.reject(); 0")  # without TLS
        page.wait_for_selector(".copy:text-is('Copy')")
        page.locator(".copy").click()
        page.wait_for_selector(".copy:has-text('Copied')")
        assert page.evaluate(read) == command


def test_what_a_shell_would_change_is_not_offered_as_a_command(
    browser: "Browser", url: str, tmp_path: Path
) -> None:
    with opened(browser, url) as page:
        values = page.evaluate("JSON.parse(document.getElementById('data').textContent)")
    arguments = ("-t A:x; reboot", "-t A:$(reboot)", "-t A:`x`", "-t 'A:x", "-t A:x|y", "-t …")
    hints = [f"'floodmark sync {argument}' helps" for argument in arguments]
    hints.append("'floodmark watermark set -t A:x --timestamp \"2025-01-01 00:00:00\"' helps")
    table = values["tables"][0]
    values["tables"] = [
        {**table, "table_name": f"A:t{at}", "cause": str(at), "hint": hint}
        for at, hint in enumerate(hints)
    ]
    path = tmp_path / "hints.html"
    path.write_bytes(render(values, live=False))
    with opened(browser, path.as_uri()) as page:
        page.get_by_role("button", name="Show 3 more causes").click()
        assert page.locator(".hint").all_inner_texts()[:6] == [
            f"hint: {hint}" for hint in hints[:6]
        ]
        assert page.locator(".command code").all_inner_texts() == [hints[6].split("'")[1]]


def test_focus_goes_to_the_heading_and_back_to_the_row(browser: "Browser", url: str) -> None:
    focused = "document.activeElement.tagName + document.activeElement.textContent"
    with opened(browser, url) as page:
        assert page.evaluate("document.activeElement.tagName") == "BODY"
        assert all(page.locator(".heads button").evaluate_all("all => all.map((one) => one.title)"))
        page.locator(".row .name a").nth(5).click()
        page.wait_for_selector("h1:has-text('PROD:')")
        name = page.locator("h1").inner_text()
        assert page.evaluate(focused) == f"H1{name}"
        page.keyboard.press("Escape")
        page.wait_for_selector(".row")
        assert page.evaluate(focused) == f"A{name}"
        page.keyboard.press("j")
        assert page.evaluate("document.activeElement.title") == names(page)[6]
        page.locator("#nav-runs").click()
        page.wait_for_selector("h1:text-is('Runs')")
        assert page.evaluate(focused) == "H1Runs"


def test_filter_sort_and_keyboard(browser: "Browser", url: str) -> None:
    with opened(browser, url) as page:
        page.set_viewport_size({"width": 1280, "height": 1200})
        page.keyboard.press("/")
        page.keyboard.type("ORDER step")
        assert names(page) == ["PROD:shop.order_items"]
        assert page.locator("#shown").inner_text() == "1 of 16"
        page.keyboard.press("Enter")
        page.wait_for_selector("h1:has-text('order_items')")
        page.keyboard.press("Escape")
        page.wait_for_selector("#filter")
        assert page.locator("#filter").input_value() == "ORDER step"  # back to where we were
        page.keyboard.press("Escape")
        assert len(names(page)) == 16
        page.locator(".chip.behind").click()
        assert names(page) == ["PROD:shop.deliveries"]
        assert page.url.endswith("#state=behind")
        page.locator(".chip.behind").click()
        page.get_by_role("button", name="Rows today").click()
        by_rows = names(page)
        assert by_rows[0] == "PROD:shop.order_items"
        assert page.locator("[aria-sort=ascending]").inner_text().startswith("Rows today")
        page.get_by_role("button", name="Table", exact=True).click()
        assert names(page) == sorted(names(page))
        page.get_by_role("button", name="Table", exact=True).click()
        assert names(page) == sorted(names(page), reverse=True)
        for key in ("j", "j", "ArrowDown", "k"):
            page.keyboard.press(key)
        focused = page.evaluate("document.activeElement.title")
        assert focused == names(page)[1]
        page.keyboard.press("Enter")
        page.wait_for_selector(f"h1:has-text('{focused}')")
        assert page.title().startswith(focused)
        page.go_back()
        page.wait_for_selector("#filter")
        assert names(page) == sorted(names(page), reverse=True)
    with opened(browser, f"{url}#q=shop.ord&sort=name") as page:
        assert names(page) == ["PROD:shop.order_items", "PROD:shop.orders"]


def test_light_and_dark_and_a_phone(browser: "Browser", url: str) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    with opened(browser, url, color_scheme="dark") as page:
        dark = page.evaluate(ground)
        page.locator("#theme").click()
        light = page.evaluate(ground)
        assert (dark, light) == ("rgb(20, 24, 27)", "rgb(251, 251, 250)")
        page.reload()
        assert page.evaluate(ground) == light  # the choice is kept
        page.locator("#theme").click()
        assert page.evaluate(ground) == dark
        page.set_viewport_size({"width": 390, "height": 800})
        for place in ("", "#runs", "#table=PROD%3Ashop.orders"):
            page.goto(f"{url}{place}")
            page.wait_for_selector("h1, #filter")
            assert page.evaluate("document.documentElement.scrollWidth") == 390, place
        page.goto(url)
        assert page.locator(".row").first.locator(".why").is_visible()
        assert not page.locator(".heads").is_visible()


def test_a_reason_that_is_cut_off_has_a_tooltip(browser: "Browser", url: str) -> None:
    with opened(browser, url) as page:
        box = page.locator(".row .why").first.bounding_box()
        assert box
        at = f"{box['x'] + 30}, {box['y'] + box['height'] / 2}"
        title = page.evaluate(f"document.elementFromPoint({at}).closest('[title]').title")
        assert PASSWORD in title
        page.locator(".row .why a").first.click()  # and opens the table, as the rest of the row
        page.wait_for_selector("h1:has-text('payments')")


def test_dark_pages_are_printed_dark_on_white(browser: "Browser", url: str) -> None:
    colors = (
        "[document.body, document.querySelector('.fact b')].map((one) => getComputedStyle(one))"
    )
    read = f"{colors}.map((style) => style.backgroundColor + style.color)"
    with opened(browser, url, color_scheme="dark") as page:
        for _theme in ("auto", "light", "dark"):
            page.emulate_media(media="print", color_scheme="dark")
            body, fact = page.evaluate(read)
            assert body == "rgb(255, 255, 255)rgb(29, 35, 39)"
            assert fact.endswith("rgb(29, 35, 39)")
            page.emulate_media(media="screen", color_scheme="dark")
            page.locator("#theme").click()
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.locator(".row").count() == 16


def test_hostile_names_and_errors_stay_text(browser: "Browser", url: str) -> None:
    name = f"PROD:{HOSTILE}"
    with opened(browser, url) as page:
        assert name in names(page)
        page.goto(f"{url}#table={quote(name, safe='')}")
        page.wait_for_selector("h1")
        assert page.locator("h1").inner_text() == name
        assert page.locator(".note").first.inner_text().count(ATTACK) == 2
        assert (
            page.locator("main svg[onload], main img, main script, main b:text('x')").count() == 0
        )
        page.goto(f"{url}#q={quote('<img src=x onerror=alert(5)>', safe='')}")
        page.wait_for_selector("#filter")
        assert page.locator("main img").count() == 0


def test_ten_thousand_tables_are_drawn_in_part(
    browser: "Browser", url: str, tmp_path: Path
) -> None:
    with opened(browser, url) as page:
        values = page.evaluate("JSON.parse(document.getElementById('data').textContent)")
    kinds = values["tables"]
    values["tables"] = [
        {**kinds[at % len(kinds)], "table_name": f"PROD:shop.t{at:05}", "cause": f"cause {at}"}
        for at in range(10_000)
    ]
    values |= {"table_details": {}, "run_details": {}}
    path = tmp_path / "many.html"
    path.write_bytes(render(values, live=False))
    with opened(browser, path.as_uri()) as page:
        assert 10 < page.locator(".row").count() < 60
        page.get_by_role("button", name="more causes").click()
        assert page.locator(".cause").count() == 50
        assert page.evaluate("document.querySelectorAll('*').length") < 3000
        page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
        page.wait_for_selector("[title='PROD:shop.t09999']")
        assert page.locator(".row").count() < 60
        page.keyboard.press("/")
        page.keyboard.type("t0421")
        assert names(page) == [f"PROD:shop.t0421{digit}" for digit in range(10)]
        assert page.locator("#shown").inner_text() == "10 of 10,000"
        page.keyboard.press("Enter")
        page.wait_for_selector("text=This file has the details of 0 tables")


def test_a_live_page_follows_the_lake(browser: "Browser", sample: SampleLake) -> None:
    customers = sample.table(sample.samples[5])
    lake, away = Path(str(sample.lake.folder)), Path(f"{sample.lake.folder}-away")
    with open_project(sample.config, environment={}) as project:
        site = Site(project, Access(None), pause=lambda _took: 0)
        server = HttpServer(LOOPBACK, 0, site.answer, "serve")
        with opened(browser, server.address) as page:
            assert page.locator("#asof").inner_text().startswith("live, as of ")
            page.goto(f"{server.address}#table={customers}")
            page.wait_for_selector("rect.oldest")
            page.keyboard.press("Escape")
            page.locator("#filter").fill("customers")
            assert page.locator(".row .state").all_inner_texts() == ["in step"]
            now = utc_now()
            failure = Failure(stage="extract", error="gone", since=now, at=now, session_id="x")
            record_failure(sample.objects, customers, failure, owner="me@here", began=now)
            page.evaluate(LOOK_AGAIN)
            page.wait_for_selector(".row .state.failing")
            assert page.locator("#filter").input_value() == "customers"
            assert page.evaluate("document.activeElement.id") == "filter"
            lake.rename(away)
            try:
                page.evaluate(LOOK_AGAIN)
                page.wait_for_selector("#alarm:has-text('The lake cannot be read: the folder')")
            finally:
                away.rename(lake)
            page.evaluate(LOOK_AGAIN)
            page.wait_for_selector("#alarm", state="hidden")
        server.stop()


def test_a_live_page_keeps_what_the_reader_does(browser: "Browser", sample: SampleLake) -> None:
    """Elements stay, and with them focus, selected text and an open menu."""
    prices = sample.table(next(each for each in sample.samples if each.name == "shop.prices"))
    selected = "getSelection().toString()"

    def refresh() -> None:
        with page.expect_response("**/status.json*"):
            page.evaluate(LOOK_AGAIN)
        page.wait_for_timeout(100)

    def fail(error: str) -> None:
        now = utc_now()
        failure = Failure(stage="extract", error=error, since=now, at=now, session_id="x")
        record_failure(sample.objects, prices, failure, owner="me@here", began=now)

    with open_project(sample.config, environment={}) as project:
        server = HttpServer(
            LOOPBACK, 0, Site(project, Access(None), pause=lambda _took: 0).answer, "serve"
        )
        with opened(browser, server.address) as page:
            for place in (".chip.in_step", ".heads .name button", "#sorts", ".row a"):
                page.set_viewport_size({"width": 390 if place == "#sorts" else 1280, "height": 800})
                page.locator(place).first.focus()
                page.evaluate("document.activeElement.mine = true")
                fail(f"gone {place}")
                refresh()
                page.wait_for_selector(f".row [title*='gone {place}']", state="attached")
                assert page.evaluate("document.activeElement.mine"), place
            page.evaluate("getSelection().selectAllChildren(document.querySelector('.facts'))")
            before = page.evaluate(selected)
            refresh()
            assert page.evaluate(selected) == before != ""
            page.evaluate(
                "window.made = 0; new MutationObserver((all) => { made +="
                " all.filter((one) => one.type === 'childList').length; })"
                ".observe(document.getElementById('view'), { childList: true, subtree: true })"
            )
            refresh()
            assert page.evaluate("made") == 0  # nothing has changed
            page.goto(f"{server.address}#table={prices}")
            page.wait_for_selector("td a")
            page.evaluate("getSelection().selectAllChildren(document.querySelector('h1'))")
            page.locator("td a").first.focus()
            page.evaluate("document.activeElement.mine = true")
            fail("something else")
            refresh()
            page.wait_for_selector(".note.failing:has-text('something else')")
            assert page.evaluate(selected) == str(prices)
            assert page.evaluate("document.activeElement.mine")
        server.stop()
    sample.objects.delete(lake_layout.lease(prices))


def test_a_server_that_does_not_answer_is_named(browser: "Browser", sample: SampleLake) -> None:
    with open_project(sample.config, environment={}) as project:
        server = HttpServer(LOOPBACK, 0, Site(project, Access(None)).answer, "serve")
        with opened(browser, f"{server.address}#runs", expected="ERR_CONNECTION_REFUSED") as page:
            page.wait_for_selector("tbody a")
            server.stop()
            page.locator("tbody a").first.click()
            page.wait_for_selector("text=The run cannot be read: the server does not answer.")
            page.goto(f"{server.address}#table=PROD%3Ashop.prices")
            page.wait_for_selector("text=The history cannot be read: the server does not answer")


def test_a_browser_logs_in_with_the_token(browser: "Browser", sample: SampleLake) -> None:
    token = "a-token-of-25-characters!"
    with open_project(sample.config, environment={}) as project:
        server = HttpServer(LOOPBACK, 0, Site(project, Access(token)).answer, "serve")
        login = {"username": "", "password": token}
        with opened(
            browser, f"{server.address}#table=PROD%3Ashop.prices", http_credentials=login
        ) as page:
            page.wait_for_selector("rect.oldest")  # which is fetched by itself
        server.stop()
