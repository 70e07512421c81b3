"""Format the result of a sync as text."""

from floodmark.api.results import HELD_BACK, TableResult, reason_of
from floodmark.cli.terminal import entry
from floodmark.cli.verification import show_agreement, show_differences
from floodmark.model.formatting import counted, since, size


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
        parts.append(f"{counted(result.loaded_rows, 'row')} loaded in {result.load_seconds:.1f} s")
    elif result.start is None and not result.failed:
        parts.append("nothing to load")
    if (verified := result.verification) and not result.failed:
        parts.append(show_agreement(verified))
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
