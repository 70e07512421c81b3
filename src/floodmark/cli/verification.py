"""Format the result of a comparison as text."""

from floodmark.api.results import describe_not_compared
from floodmark.cli.terminal import fold
from floodmark.model.formatting import counted
from floodmark.model.verification import VerificationResult


def show_agreement(verified: VerificationResult) -> str:
    """Summarize what was compared and is equal."""
    left = describe_not_compared(verified)
    if not verified.windows:
        return f"nothing compared; {left}" if left else "nothing new to compare"
    equal = (
        f"{counted(verified.rows, 'row')} compared in {verified.seconds:.1f} s:"
        " source and target are equal"
    )
    return f"{equal}; {left}" if left else equal


def show_differences(verified: VerificationResult) -> list[str]:
    """Return lines for the rows that differ: key, and values of both sides."""
    lines = []
    for row in verified.shown:
        key = ", ".join(f"{name} = {_value(value)}" for name, value in row.key.items())
        lines.append(fold(f"{row.kind}: {key}", first=4, indent=8))
        lines += [
            fold(
                f"{value.column}: {_value(value.source)} in the source,"
                f" {_value(value.target)} in the target",
                first=8,
                indent=12,
            )
            for value in row.values
        ]
    total = sum(verified.differences.values())
    if total > len(verified.shown):
        lines.append(f"    … the first {len(verified.shown):,} of {total:,} rows")
    return lines


def _value(value: str | None) -> str:
    return "NULL" if value is None else repr(value)
