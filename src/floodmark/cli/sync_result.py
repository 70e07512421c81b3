"""Print the result of a sync: each table as it finishes, then a summary."""

from collections.abc import Sequence
from threading import Lock

from floodmark.api.results import HELD_BACK, TableResult, failure_of, notices_of, reason_of
from floodmark.api.schedule import Round
from floodmark.cli.app import App
from floodmark.cli.terminal import entry, name_some, print_text
from floodmark.cli.verification import show_agreement, show_differences
from floodmark.errors import ExitCode
from floodmark.model.formatting import counted, since, size
from floodmark.model.notice import Notice


class ResultPrinter:
    """Prints each table's line as it finishes. The same error again is only counted.

    With `quiet`, prints problems only; a table that another run holds is not one, and of tables
    that are held back by the same cause only the first has a line.
    """

    def __init__(self, app: App, *, quiet: bool) -> None:
        self._app = app
        self._quiet = quiet
        self._lock = Lock()
        self._errors = Errors()
        self._held = HeldBack()

    def show(self, result: TableResult) -> None:
        """Print a table's line, its notices and its hint; called from any thread."""
        if self._app.as_json:
            return
        with self._lock:
            self._app.progress.clear()
            if not self._is_shown(result):
                return
            if result.failed and not self._errors.add(result):
                if self._app.log.as_json:
                    self._report(result)
                return
            if self._quiet and result.status == HELD_BACK and not self._held.add(result):
                self._report(result)
                return
            print_text(show_result(result))
            self._report(result)
            if result.hint and not (result.failed and self._app.log.as_json):
                self._app.log.hint(result.hint)

    def finish(self, results: Sequence[TableResult], seconds: float) -> None:
        """Print how many tables had the same error, and a summary of several tables."""
        if self._app.as_json:
            for result in results:
                self._report(result)
            self._held.report(self._app)
            return
        for reason, names in self._errors.repeated():
            print_text(entry("failed", f"{names}: {reason}"))
        self._held.report(self._app)
        failed = any(result.failed for result in results)
        if len(results) > 1 and (not self._quiet or (failed and self._errors)):
            print_text(str(Round(session_id="", seconds=seconds, tables=results)))

    def _is_shown(self, result: TableResult) -> bool:
        """Report the notices of a table without a line; return whether its line is printed."""
        busy = result.exit_code == ExitCode.BUSY
        if not self._quiet or (result.failed and not busy) or result.status == HELD_BACK:
            return True
        if not busy:
            self._report(result)
        return False

    def _report(self, result: TableResult) -> None:
        for notice in notices_of(result):
            shown = notice.event == result.status == HELD_BACK  # in the table's line
            if not self._app.log.as_json and notice.event == HELD_BACK:
                shown = shown or not self._held.add(result)
            if self._app.log.as_json or not shown:
                self._app.report(notice)
        if result.failed and self._app.log.as_json:
            self._app.report(failure_of(result))


class Errors:
    """The errors of tables, and which tables had the same one."""

    def __init__(self) -> None:
        self._tables: dict[tuple[str, int], list[TableResult]] = {}

    def add(self, result: TableResult) -> bool:
        """Add a failed table, and return whether its error is new."""
        # Errors that differ only in the name of the table are the same.
        reason = reason_of(result).replace(result.table_name, "it")
        reason = reason.replace(result.table_name.partition(":")[2], "it")
        same = self._tables.setdefault((reason, result.exit_code), [])
        same.append(result)
        return len(same) == 1 or result.verification is not None

    def repeated(self) -> list[tuple[str, str]]:
        """Return the errors of several tables, with the names of all but the first."""
        return [
            (reason_of(same[0]), name_some([result.table_name for result in same[1:]]))
            for same in self._tables.values()
            if len(same) > 1
        ]

    def __bool__(self) -> bool:
        return bool(self._tables)


class HeldBack:
    """What holds tables back, and which tables have the same cause."""

    def __init__(self) -> None:
        self._tables: dict[str, list[str]] = {}

    def add(self, result: TableResult) -> bool:
        """Add a table, and return whether its cause is new."""
        same = self._tables.setdefault(result.held_back or "", [])
        same.append(result.table_name)
        return len(same) == 1

    def report(self, app: App) -> None:
        """Report each cause of several tables once more, with the names of all but the first."""
        for cause, names in self._tables.items():
            if len(names) > 1:
                text = f"{name_some(names[1:])}: held back: {cause}"
                app.report(Notice("warning", text, HELD_BACK))


def show_result(result: TableResult) -> str:
    """Describe the result for a table in one line."""
    parts = []
    if result.chunks:
        parts.append(
            f"{counted(result.rows, 'row')} in {counted(result.files, 'file')}"
            f" ({size(result.bytes)})"
            f" in {result.seconds:.1f} s, now at {result.end}"
        )
    elif result.status == HELD_BACK and result.start is not None:
        parts.append(f"held back at {since(result.start)}: {result.held_back}")
    elif result.start is not None:
        new = "to read" if result.before_start else "new"
        parts.append(f"nothing {new} since {since(result.start)}")
    if result.before_start:
        parts.append(f"{result.before_start} left out")
    if result.future_rows:
        parts.append(f"{result.future_rows} in the future not read yet")
    if result.adopted_files:
        rows, files = counted(result.adopted_rows, "row"), counted(result.adopted_files, "file")
        parts.append(f"{rows} in {files} adopted")
    if result.loaded_manifests:
        took = f" in {result.load_seconds:.1f} s" if result.load_seconds else ""
        parts.append(f"{counted(result.loaded_rows, 'row')} loaded{took}")
        if result.deleted_rows:
            parts.append(f"{counted(result.deleted_rows, 'row')} deleted")
    elif result.start is None and not result.failed:
        parts.append("nothing to load")
    if (verified := result.verification) and not result.failed:
        parts.append(show_agreement(verified))
    if (reconciled := result.reconciliation) and not result.failed:
        parts.append(str(reconciled))
    if result.quarantined_rows:
        parts.append(f"{counted(result.quarantined_rows, 'row')} quarantined")
    if result.failed:
        parts.append(reason_of(result))
    waiting = result.status == HELD_BACK or result.before_start or result.future_rows
    state = "failed" if result.failed else "note" if waiting else "ok"
    lines = [entry(state, f"{result.table_name}: {'; '.join(parts)}")]
    if verified and verified.differences:
        lines += show_differences(verified)
    return "\n".join(lines)
