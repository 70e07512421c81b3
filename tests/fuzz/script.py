"""A script of random steps: made from a seed, written as one line, run again, and shortened.

A step is an action, a table and a number from which the action draws its choices. It means
something in every state, so a script from which steps were taken out can still be run.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Self


class Failure(Exception):
    """An outcome that is not allowed; `kind` tells failures apart while a script is shortened."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind


@dataclass(frozen=True)
class Step:
    """One action on one table."""

    action: str
    table: int
    number: int

    def __str__(self) -> str:
        return f"{self.action}.{self.table}.{self.number}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` wrote."""
        action, table, number = text.split(".")
        return cls(action, int(table), int(number))


@dataclass(frozen=True)
class Script:
    """The kind of target, the shapes of the tables, and what happens to them."""

    target: str
    shapes: tuple[str, ...]
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return " ".join([self.target, "+".join(self.shapes), *map(str, self.steps)])

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` wrote."""
        target, shapes, *steps = text.split()
        return cls(target, tuple(shapes.split("+")), tuple(map(Step.parse, steps)))


def new_script(
    seed: int, *, target: str, shapes: Sequence[str], actions: Mapping[str, int], steps: int
) -> Script:
    """Draw two tables and some steps; `actions` are names and how often each comes."""
    random = Random(seed)
    names, weights = list(actions), list(actions.values())
    return Script(
        target,
        tuple(random.choice(shapes) for _ in range(2)),
        tuple(
            Step(action, random.randrange(2), random.randrange(1000))
            for action in random.choices(names, weights, k=steps)
        ),
    )


def shortened(
    script: Script, fails: Callable[[Script], str | None], kind: str, *, seconds: float
) -> Script:
    """Take steps out, as long as what is left fails in the same way and there is time."""
    deadline = time.monotonic() + seconds
    size = max(1, len(script.steps) // 2)
    while time.monotonic() < deadline:
        found = False
        at = 0
        while at < len(script.steps) and time.monotonic() < deadline:
            less = replace(script, steps=script.steps[:at] + script.steps[at + size :])
            if fails(less) == kind:
                script, found = less, True
            else:
                at += size
        if size == 1 and not found:
            break
        size = size if found and size == 1 else max(1, size // 2)
    return script
