"""Every error that Floodmark raises on purpose.

FloodmarkError                    exit 1: failed
├── UsageError                    exit 2: wrong usage, refused before anything was touched
│   └── ConfigError               the configuration file is missing, malformed or contradictory
├── PartialFailure                exit 3: some tables failed, others are done
├── BusyError                     exit 4: another run holds the table
│   ├── LeaseHeld                 somebody else's lease is still running
│   ├── LeaseLost                 our lease ran out or was taken over; nothing more may be committed
│   └── LostRace                  another writer was faster, again and again
├── DifferenceFound               exit 5: verification found a difference
├── AnotherCursor                 a position belongs to another cursor than the table has now
├── AnotherServer                 a connection reached another server than the one planned with
├── ServerBehind                  a server lacks what a table's position stands on
├── SparkJobFailed                Spark could not run a job's tasks
├── StorageError                  the object store refused or failed
│   ├── ObjectNotFound            no such object
│   ├── WriteConflict             a conditional write met another object than it expected
│   ├── StorageUnavailable        a passing fault: worth another try
│   └── AccessDenied              credentials or permissions
└── StateError                    what the lake holds about a table is not usable
    ├── CorruptDocument           not what was written: wrong schema, checksum, table, time or count
    ├── CorruptLog                a manifest is missing or not what was written
    ├── StateLost                 no copy and no manifest is left to recover from
    └── IllegalTransition         a change that would break an invariant; always a bug
"""

from enum import IntEnum
from typing import Self


class ExitCode(IntEnum):
    """What the process tells the shell."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> Self:
        """Make a code that knows what it means."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    DONE = 0, "done"
    FAILED = 1, "failed"
    USAGE = 2, "wrong usage or configuration; nothing was touched"
    PARTIAL = 3, "some tables failed, others are done"
    BUSY = 4, "another run holds the table"
    DIFFERENCE = 5, "verification found a difference"
    INTERRUPTED = 130, "interrupted; what was committed stays"
    TERMINATED = 143, "ended by SIGTERM; what was committed stays"


class FloodmarkError(Exception):
    """Something went wrong; says what, and where possible what to try."""

    exit_code = ExitCode.FAILED

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(FloodmarkError):
    """The input was wrong; nothing was touched."""

    exit_code = ExitCode.USAGE


class ConfigError(UsageError):
    """The configuration is missing, malformed or contradictory."""


class PartialFailure(FloodmarkError):
    """Some tables failed, others are done."""

    exit_code = ExitCode.PARTIAL


class BusyError(FloodmarkError):
    """Another run holds the table."""

    exit_code = ExitCode.BUSY


class LeaseHeld(BusyError):
    """Somebody else's lease on the table is still running."""


class LeaseLost(BusyError):
    """Our lease ran out or was taken over; nothing more may be committed."""


class LostRace(BusyError):
    """Another writer was faster, again and again."""


class DifferenceFound(FloodmarkError):
    """Verification found a difference."""

    exit_code = ExitCode.DIFFERENCE


class AnotherCursor(FloodmarkError):
    """A position belongs to another cursor than the table has now."""


class AnotherServer(FloodmarkError):
    """A connection reached another server than the one that was planned with."""

    def __init__(self, server: str) -> None:
        super().__init__(
            f"this was planned on {server}, but a connection reached another server behind the same"
            " address; nothing of it was committed",
            hint="name one server in the connection, not a proxy or reader endpoint that spreads"
            " connections over several",
        )


class ServerBehind(FloodmarkError):
    """A server lacks transactions that a table's position stands on."""


class SparkJobFailed(FloodmarkError):
    """Spark could not run a job's tasks."""


class WrongClock(FloodmarkError):
    """This machine's clock and another are too far apart to write anything by it."""


class StorageError(FloodmarkError):
    """The object store refused or failed."""


class ObjectNotFound(StorageError):
    """There is no object under this key."""


class WriteConflict(StorageError):
    """A conditional write met another object than it expected."""


class StorageUnavailable(StorageError):
    """A passing fault of the object store: worth another try."""


class AccessDenied(StorageError):
    """The object store does not accept the credentials, or they lack a permission."""


class StateError(FloodmarkError):
    """What the lake holds about a table is not usable."""


class CorruptDocument(StateError):
    """A document is not what was written: schema, checksum, table, time or count."""


class FutureState(StateError):
    """The last state was written in the future, by the clock here, or its position lies there."""


class CorruptLog(StateError):
    """A manifest is missing or not what was written."""


class StateLost(StateError):
    """No copy and no manifest is left to recover from."""


class IllegalTransition(StateError):
    """A change that would break an invariant; always a bug."""
