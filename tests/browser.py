"""Debian's Chromium, driven by Playwright."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium")


@contextmanager
def chromium() -> "Iterator[Browser]":
    """Start the browser, without its sandbox: it shows only pages of ours, perhaps as root."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, chromium_sandbox=False)
        yield browser
        browser.close()


@contextmanager
def opened(
    browser: "Browser", url: str, *, expected: str | None = None, **settings: Any
) -> "Iterator[Page]":
    """Open a page in a new context.

    Fail if it logs anything that is not `expected`, or asks for anything elsewhere.
    """
    problems: list[str] = []
    context = browser.new_context(viewport={"width": 1280, "height": 800}, **settings)
    page = context.new_page()
    page.set_default_timeout(15_000)
    page.on(
        "console",
        lambda message: (
            problems.append(f"console: {message.text}")
            if expected is None or expected not in message.text
            else None
        ),
    )
    page.on("pageerror", lambda error: problems.append(f"error: {error}"))
    page.on("dialog", lambda dialog: problems.append(f"dialog: {dialog.message}"))
    origin = "/".join(url.split("/", 3)[:3])
    page.on(
        "request",
        lambda request: (
            problems.append(f"request: {request.url}")
            if not request.url.startswith((origin, "data:"))
            else None
        ),
    )
    page.goto(url)
    yield page
    context.close()
    assert not problems
