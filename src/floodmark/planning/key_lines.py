"""Compare rows that both sides sent as text: a line of key and version for each.

Databases write and send such text faster than they compute fingerprints of many segments, so this
pays where differences are spread over a table.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from floodmark.planning.segments import joined_ranges


def differing_numbers(source: Iterable[str], target: str) -> list[int]:
    """Return the keys of lines that one side lacks, or that the target has twice, in order."""
    here = {line for text in source for line in text.splitlines()}
    lines = target.splitlines()
    more = [line for line in lines if line not in here]
    missing = here.difference(lines)
    found = missing.union(more)
    if len(lines) - len(more) > len(here) - len(missing):
        found |= {line for line, times in Counter(lines).items() if times > 1}
    return sorted({int(line.partition(",")[0]) for line in found})


def number_batches(numbers: list[int], most: int) -> Iterator[list[tuple[int, int]]]:
    """Divide keys into batches of so many, each as ranges; at least one batch."""
    for at in range(0, max(1, len(numbers)), most):
        yield joined_ranges((number, number) for number in numbers[at : at + most])
