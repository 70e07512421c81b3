"""`floodmark serve`: the status page, live and read-only, from the lake alone."""

import os
from threading import Event

import click

from floodmark.cli.app import App, command_options
from floodmark.cli.http_access import Access, find_address, find_token, is_loopback
from floodmark.cli.http_server import LOOPBACK, HttpServer
from floodmark.cli.page.site import Site
from floodmark.cli.signals import Terminated, sigterm_raises
from floodmark.errors import ExitCode
from floodmark.model.notice import Notice

PORT = 8642


@click.command()
@click.option("--host", default=LOOPBACK, show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="Port; 0 takes a free one.",
)
@click.option(
    "--token-file",
    "token_path",
    metavar="FILE",
    help="File with the token that requests must have; or set FLOODMARK_SERVE_TOKEN.",
)
@command_options
def serve(app: App, host: str, port: int, token_path: str | None) -> int:
    """Serve a page with the state and history of every table, until Ctrl-C or SIGTERM.

    It reads the lake and nothing else, and changes nothing: it needs no source, no warehouse, and
    none of their passwords. Without a token it listens on a loopback address only. '/healthz' is
    for probes, '/metrics' for Prometheus, '/status.json' for programs.
    """
    address = find_address(host)
    token = find_token(address, token_path, os.environ)
    site = Site(app.project, Access(token))
    try:
        with sigterm_raises():
            server = HttpServer(address, port, site.answer, "serve")
            try:
                app.report(Notice("info", f"serving {server.address}", "serving"))
                if not is_loopback(address):
                    app.warn("the page and its token are not encrypted; run it behind a TLS proxy")
                Event().wait()
            finally:
                server.stop()
    except (KeyboardInterrupt, Terminated):
        app.report(Notice("info", "stopped serving", "stopped"))
    return ExitCode.DONE
