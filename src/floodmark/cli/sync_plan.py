"""Format the plan of a sync as text and as JSON."""

from collections.abc import Iterator, Sequence

from floodmark.api.planning import LoadPlan, ReadPlan, TablePlan
from floodmark.cli.terminal import fold
from floodmark.model.formatting import counted, since


def show_plan(plan: TablePlan) -> str:
    """Describe what a sync would read and load of a table."""
    lines: list[str] = []
    if plan.read:
        lines += _show_read(plan.table_name, plan.read)
    if plan.adopt:
        lines.append(
            f"adopt {counted(plan.adopt.files, 'file')} of an older system,"
            f" skip {plan.adopt.left_out:,}"
        )
    if plan.load and plan.load.manifests:
        lines.append(f"load {_show_load(plan.load)} already in the lake")
    elif plan.load:
        lines.append("load the rows read" if plan.read else "nothing to load")
    if plan.left_out and plan.left_out.manifests:
        left = _show_load(plan.left_out)
        lines.append(f"skip {left}, outside the manual watermark")
    return "\n".join([f"{plan.table_name}:", *(fold(line, indent=6, first=4) for line in lines)])


def show_schema(plans: Sequence[TablePlan]) -> Iterator[str]:
    """List the columns of all tables that differ, and what the sync would do about them."""
    found = [(plan.table_name, difference) for plan in plans for difference in plan.schema]
    if found:
        yield f"{counted(len(found), 'column')} {'differs' if len(found) == 1 else 'differ'}:"
    for table_name, difference in found:
        yield fold(f"{table_name}: {difference}", indent=6, first=4)
        if difference.hint:
            yield fold(f"hint: {difference.hint}", indent=8, first=6)


def plan_value(plan: TablePlan) -> dict[str, object]:
    """Return the plan as JSON values."""
    value: dict[str, object] = {"table_name": plan.table_name}
    if plan.read:
        value |= {"read": _read_value(plan.read)}
    if plan.adopt:
        value |= {"adopt": plan.adopt}
    if plan.load:
        value |= {"load": plan.load, "left_out": plan.left_out}
    if plan.schema:
        value |= {"schema": plan.schema}
    return value


def _show_read(table_name: str, plan: ReadPlan) -> Iterator[str]:
    cursor = f"({', '.join(plan.cursor)})" if plan.cursor else "none"
    how = f"{plan.route}, cursor {cursor}"
    if plan.error:
        yield f"fail: {plan.error}"
        if plan.hint:
            yield f"hint: {plan.hint}"
    elif plan.held_back:
        yield f"read nothing (held back), {how}"
    elif plan.chunks:
        about = "" if plan.counted else "about "
        size = f"{counted(plan.windows, 'window')} of {counted(plan.chunks, 'chunk')}"
        yield f"read {about}{counted(plan.rows, 'row')} in {size}, {how}"
        yield f"from {since(plan.start)} to {plan.end}"
    else:
        new = "to read" if plan.begins else "new"
        yield f"read nothing: nothing {new} since {since(plan.start)}, {how}"
    if plan.held_by:
        yield f"held back: {plan.held_by}"
    for note in plan.notes:
        yield f"note: {note.removeprefix(f'{table_name}: ')}"


def _read_value(plan: ReadPlan) -> dict[str, object]:
    if not plan.route:  # its position belongs to another cursor
        return {"error": plan.error, "hint": plan.hint}
    names = (
        *("cursor", "route", "start", "end", "rows", "counted", "windows", "chunks", "held_by"),
        *("error", "hint", "before_start", "future_rows", "warnings"),
    )
    return {name: getattr(plan, name) for name in names}


def _show_load(plan: LoadPlan) -> str:
    rows, files = counted(plan.rows, "row"), counted(plan.files, "file")
    return f"{rows} in {files} of {counted(plan.manifests, 'manifest')}"
