"""Check that every executor of a cluster reaches MySQL, the lake and the target."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from floodmark.checks.check import Check
from floodmark.config.models import (
    Connection,
    DuckdbConnection,
    LakeSettings,
    MysqlConnection,
    RetrySettings,
)
from floodmark.errors import FloodmarkError, ObjectNotFound
from floodmark.model import lake_layout
from floodmark.model.formatting import counted
from floodmark.storage.objects import ObjectStore

if TYPE_CHECKING:
    from floodmark.spark.self_test import SelfTest

_PATIENCE_SECONDS = 5.0
_SHARED = "the lake must be the same place for all workers and this machine: S3, or a shared folder"


class Problem(Struct, frozen=True):
    """What an executor cannot reach, and what to try."""

    finding: str
    hint: str | None = None


class Reached(Struct, frozen=True):
    """What an executor reached; `wrote` is the key of its file in the lake."""

    places: tuple[str, ...]
    problems: tuple[Problem, ...]
    wrote: str | None = None


class Places(Struct, frozen=True, kw_only=True):
    """What executors must reach. It contains passwords, and is sent like a job.

    `probe` is the key of a file that this machine has written to the lake.
    """

    lake: LakeSettings
    probe: str
    sources: Mapping[str, MysqlConnection]
    targets: Mapping[str, Connection]

    def reach(self) -> str:
        """Try all places from here, and return the answer in JSON."""
        places: list[str] = []
        problems: list[Problem] = []
        wrote = None
        for scope, source in self.sources.items():
            _try(f"source {scope}", partial(_log_in, source), places, problems)
        if _try("lake", partial(_read, self.lake, self.probe), places, problems):
            key = f"{self.probe}.{os.urandom(4).hex()}"
            if _try("lake", partial(_write, self.lake, key), [], problems):
                wrote = key
        for name, target in self.targets.items():
            _try(f"target {name}", partial(_open, target, self.lake), places, problems)
        answer = Reached(tuple(places), tuple(problems), wrote)
        return msgspec.json.encode(answer).decode()


@contextmanager
def places_of(
    objects: ObjectStore,
    lake: LakeSettings,
    sources: Mapping[str, MysqlConnection],
    targets: Mapping[str, Connection],
) -> Iterator[Places]:
    """Write a file to the lake that executors must find; remove it and theirs in the end."""
    probe = f"{lake_layout.LEASES}probe-{os.urandom(4).hex()}"
    objects.put(probe, b"probe")
    # Only this machine opens a DuckDB file.
    opened = {n: t for n, t in targets.items() if not isinstance(t, DuckdbConnection)}
    try:
        yield Places(lake=lake, probe=probe, sources=dict(sources), targets=opened)
    finally:
        with suppress(FloodmarkError):
            for info in list(objects.list_objects(lake_layout.LEASES, after=probe[:-1])):
                if info.key.startswith(probe):
                    objects.delete(info.key)


def report(objects: ObjectStore, test: "SelfTest") -> Iterator[Check]:
    """Yield a line for each host, and one for each place that it does not reach."""
    answers = [(a, msgspec.json.decode(a.text, type=Reached)) for a in test.answers]
    for host in sorted({answer.host for answer, _ in answers}):
        here = [(a, reached) for a, reached in answers if a.host == host]
        number = len({answer.process for answer, _ in here})
        yield from _check_host(objects, host, number, [reached for _, reached in here])
    seen = len({(answer.host, answer.process) for answer, _ in answers})
    yield _check_number(seen, test.executors)


def _check_host(
    objects: ObjectStore, host: str, executors: int, answers: Sequence[Reached]
) -> Iterator[Check]:
    subject = f"executor {host}"
    problems = dict.fromkeys(problem for reached in answers for problem in reached.problems)
    for reached in answers:
        if reached.wrote and not _exists(objects, reached.wrote):
            finding = f"wrote a file to the lake that does not exist here in {objects}"
            problems[Problem(finding, _SHARED)] = None
    for problem in problems:
        yield Check(subject=subject, state="failed", finding=problem.finding, hint=problem.hint)
    if not problems:
        places = dict.fromkeys(place for reached in answers for place in reached.places)
        count = f" ({counted(executors, 'executor')})" if executors > 1 else ""
        yield Check(subject=subject, finding=f"reaches {', '.join(places)}{count}")


def _check_number(seen: int, known: int | None) -> Check:
    if known is None:
        finding = f"{counted(seen, 'executor')} answered; Spark Connect reports no total"
        return Check(subject="Spark", finding=finding)
    if seen >= known:
        return Check(subject="Spark", finding=f"all of {counted(seen, 'executor')} answered")
    return Check(
        subject="Spark",
        state="note",
        finding=f"{seen} of {counted(known, 'executor')} answered: the others were not checked",
        hint="run doctor again when the cluster is idle",
    )


def _try(place: str, reach: Callable[[], None], places: list[str], problems: list[Problem]) -> bool:
    try:
        reach()
    except FloodmarkError as error:
        problems.append(Problem(f"{place}: {error.message}", error.hint))
    except Exception as error:  # noqa: BLE001 - of any library: doctor reports it
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        problems.append(Problem(f"{place}: {reason}"))
    else:
        places.append(place)
        return True
    return False


def _log_in(source: MysqlConnection) -> None:
    from floodmark.worker.login import log_in

    with closing(log_in(source, patience=_PATIENCE_SECONDS)):
        pass


def _read(lake: LakeSettings, key: str) -> None:
    from floodmark.storage.opening import open_lake

    try:
        open_lake(lake, RetrySettings()).get(key)
    except ObjectNotFound as error:
        message = f"a file that this machine wrote does not exist there in {lake.url}"
        raise FloodmarkError(message, hint=_SHARED) from error


def _write(lake: LakeSettings, key: str) -> None:
    from floodmark.worker.lake_writer import open_files

    file = open_files(lake)(key)
    file.write(b"probe")
    file.finish()


def _open(target: Connection, lake: LakeSettings) -> None:
    from floodmark.warehouse.factory import open_reader

    with open_reader(target, lake) as opened:
        opened.encryption()


def _exists(objects: ObjectStore, key: str) -> bool:
    try:
        objects.get(key)
    except ObjectNotFound:
        return False
    return True
