"""Build the page: one HTML document without any external resource.

Its style and its script are allowed by their hashes, and nothing else is. Values occur only in a
JSON block, in which no character can end it, and the script writes them only as text.
"""

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from typing import Any

import msgspec

SCRIPTS = ("format.js", "update.js", "charts.js", "list.js", "table.js", "runs.js", "main.js")


def render(values: dict[str, Any], *, live: bool) -> bytes:
    """Return the page with these values; a live one fetches newer values by itself."""
    assets = files("floodmark.cli.page") / "assets"
    css = (assets / "page.css").read_text(encoding="utf-8")
    script = "\n".join((assets / name).read_text(encoding="utf-8") for name in SCRIPTS)
    js = f'(() => {{\n"use strict";\n{script}}})();\n'
    head, _, tail = (assets / "page.html").read_text(encoding="utf-8").partition("{{data}}")
    for name, text in (("csp", policy(css, js, live=live)), ("css", css), ("js", js)):
        head, tail = (part.replace(f"{{{{{name}}}}}", text) for part in (head, tail))
    return head.encode() + embedded(values | {"live": live}) + tail.encode()


def policy(css: str, js: str, *, live: bool) -> str:
    """Return the content security policy: this style, this script, and at most this server."""
    return (
        f"default-src 'none'; style-src '{_digest(css)}'; script-src '{_digest(js)}';"
        f" img-src data:; connect-src '{'self' if live else 'none'}';"
        " base-uri 'none'; form-action 'none'"
    )


def embedded(values: dict[str, Any]) -> bytes:
    """Return JSON that can stand in an HTML element: nothing in it looks like markup."""
    data = msgspec.json.encode(values)
    for sign in b"<>&":
        data = data.replace(bytes([sign]), b"\\u%04x" % sign)
    return data


def _digest(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
