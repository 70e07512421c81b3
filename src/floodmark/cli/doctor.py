"""`floodmark doctor`: check what can be checked, and say how to mend what is wrong."""

from collections.abc import Callable
from secrets import token_hex

import click

from floodmark.cli.app import App, command_options, table_option
from floodmark.errors import FloodmarkError, WriteConflict
from floodmark.model.timestamps import stamped
from floodmark.state import layout
from floodmark.state.lease import break_lease, read_lease
from floodmark.storage.objects import ObjectStore


@click.command()
@table_option(required=False)
@click.option("--break-lease", "break_it", is_flag=True, help="End the leases on the -t tables.")
@command_options
def doctor(app: App, names: tuple[str, ...], *, break_it: bool) -> None:
    """Check the configuration and the lake, and show who is at work."""
    objects = app.store.objects
    checks = [
        {"check": "configuration", "ok": True, "note": app.config.path},
        {"check": "lake", **_check_lake(objects)},
    ]
    failed = not checks[-1]["ok"]
    for table in app.tables(names) if names else app.config.tables:
        if break_it and names:
            break_lease(objects, table)
        lease = None if failed else read_lease(objects, table)
        if lease is not None and lease.held(app.run.clock()):
            note = (
                f"held by {lease.owner}, session {lease.session_id},"
                f" until {stamped(lease.expires_at)};"
                f" if that run is dead: floodmark doctor -t {table} --break-lease"
            )
            checks.append({"check": f"lease of {table}", "ok": True, "note": note})
    lines = [f"{'✓' if check['ok'] else '✗'} {check['check']}: {check['note']}" for check in checks]
    app.print("\n".join(lines), checks)
    if failed:
        raise FloodmarkError("the lake cannot be used")


def _check_lake(objects: ObjectStore) -> dict[str, object]:
    """Write a probe, and see that conditional writes are refused when they must be."""
    key = f"{layout.LEASES}probe-{token_hex(4)}.json"
    try:
        etag = objects.put_if_absent(key, b"1")
        if _accepts(lambda: objects.put_if_absent(key, b"2")):
            return {"ok": False, "note": f"{objects} overwrites objects that must not be"}
        objects.put_if_match(key, b"3", etag)
        if _accepts(lambda: objects.put_if_match(key, b"4", etag)):
            return {"ok": False, "note": f"{objects} ignores If-Match"}
        objects.delete(key)
    except FloodmarkError as error:
        return {"ok": False, "note": error.message + (f"; {error.hint}" if error.hint else "")}
    return {"ok": True, "note": f"{objects} is writable and honours conditional writes"}


def _accepts(write: Callable[[], str]) -> bool:
    try:
        write()
    except WriteConflict:
        return False
    return True
