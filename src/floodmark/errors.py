"""Every error that Floodmark raises on purpose.

FloodmarkError                    exit 1: failed
├── UsageError                    exit 2: wrong usage; nothing was changed
│   └── ConfigError               the configuration is missing or invalid
├── PartialFailure                exit 3: some tables failed, others are done
├── BusyError                     exit 4: another run holds the table
│   ├── LeaseHeld                 another run's lease has not expired
│   ├── LeaseLost                 our lease expired or was taken over; we must not commit
│   └── LostRace                  another writer won every retry
├── DifferenceFound               exit 5: verification found a difference
├── AnotherCursor                 the position belongs to a different cursor
├── AnotherServer                 a connection reached a different server than the plan
├── ServerBehind                  a server lacks transactions before the table's position
├── SparkJobFailed                Spark could not run a job's tasks
├── WrongClock                    the clocks of two machines are too far apart to commit
├── NoLogin                       a server stays unreachable, or refuses the login
├── UnfitValue                    a value does not fit its planned type
├── TooFarAhead                   a window is much larger than planned and must be streamed
├── SchemaConflict                no safe change makes the target's table match the source's
│   └── NameTooLong               the target would truncate the name of a column
├── TargetTaken                   the target's table belongs to another source table
├── UnknownGrantee                a user or group of `grants:` does not exist
├── ConstraintViolated            a statement would have broken a constraint of the target
│   └── DuplicateKey              a key is in the target's table already, or comes twice
├── PassingConflict               the target rolled back the transaction; retry it
├── Unrepresentable               the target refused rows, perhaps for a value
│   └── DataRefused               Redshift refused a value; also a StatementFailed
├── StatementFailed               Redshift refused a statement
│   └── LoginRefused              Redshift refused the user or the password
├── StorageError                  the object store refused or failed
│   ├── ObjectNotFound            no such object
│   ├── WriteConflict             a conditional write found a different object
│   ├── StorageUnavailable        a temporary failure; retry
│   └── AccessDenied              wrong credentials or missing permissions
└── StateError                    the state of a table in the lake is unusable
    ├── CorruptDocument           wrong schema, checksum, table, time or count
    ├── FutureState               the last state, or its position, is in the future
    ├── CorruptLog                a manifest is missing or corrupt
    │   └── AnotherLake           the target's ledger has other manifests than the lake
    ├── StateLost                 no copy and no manifest left to recover from
    ├── MirrorConflict            lake and mirror contradict each other, or do not belong together
    └── IllegalTransition         a change that would break an invariant; always a bug
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of the process."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> "ExitCode":
        """Create a code with its meaning."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    DONE = 0, "done"
    FAILED = 1, "failed"
    USAGE = 2, "wrong usage or configuration; nothing was changed"
    PARTIAL = 3, "some tables failed, others are done"
    BUSY = 4, "another run holds the table"
    DIFFERENCE = 5, "verification found a difference"
    STALE = 6, "a table is older than 'status --older-than' allows"
    INTERRUPTED = 130, "interrupted; committed work is kept"
    TERMINATED = 143, "terminated by SIGTERM; committed work is kept"


class FloodmarkError(Exception):
    """Base class: a message and, where possible, a hint."""

    exit_code = ExitCode.FAILED

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(FloodmarkError):
    """The input was wrong; nothing was changed."""

    exit_code = ExitCode.USAGE


class ConfigError(UsageError):
    """The configuration is missing or invalid."""


class PartialFailure(FloodmarkError):
    """Some tables failed, others are done."""

    exit_code = ExitCode.PARTIAL


class BusyError(FloodmarkError):
    """Another run holds the table."""

    exit_code = ExitCode.BUSY


class LeaseHeld(BusyError):
    """Another run's lease on the table has not expired."""


class LeaseLost(BusyError):
    """Our lease expired or was taken over; we must not commit."""


class LostRace(BusyError):
    """Another writer won every retry."""


class DifferenceFound(FloodmarkError):
    """Verification found a difference."""

    exit_code = ExitCode.DIFFERENCE


class AnotherCursor(FloodmarkError):
    """The position belongs to a different cursor than the table has now."""


class AnotherServer(FloodmarkError):
    """A connection reached a different server than the plan was made on."""

    def __init__(self, server: str) -> None:
        super().__init__(
            f"planned on {server}, but a connection to the same address reached a different server;"
            " nothing was committed",
            hint="use the address of one server, not a proxy or reader endpoint that balances"
            " connections across several",
        )


class ServerBehind(FloodmarkError):
    """A server lacks transactions before the table's position."""


class SparkJobFailed(FloodmarkError):
    """Spark could not run a job's tasks."""


class WrongClock(FloodmarkError):
    """The clocks of this machine and of another are too far apart to commit."""


class NoLogin(FloodmarkError):
    """A server stays unreachable, or refuses the login; an immediate retry would not help."""


class UnfitValue(FloodmarkError):
    """A value does not fit its planned type, or policy forbids it; a retry would not help."""


class TooFarAhead(FloodmarkError):
    """A window, or one of its rows, is much larger than planned and must be streamed."""


class SchemaConflict(FloodmarkError):
    """The target's table does not match the source's, and no safe change can fix it."""


class NameTooLong(SchemaConflict):
    """The target would truncate the name of a column."""

    def __init__(self, message: str, column: str) -> None:
        super().__init__(message)
        self.column = column


class TargetTaken(FloodmarkError):
    """The target's table belongs to another source table, or this one's rows are in another."""


class UnknownGrantee(FloodmarkError):
    """The configuration grants something to a user or group that the target does not have."""


class ConstraintViolated(FloodmarkError):
    """A statement would have broken a constraint of the target."""


class DuplicateKey(ConstraintViolated):
    """A key is in the target's table already, or comes twice."""


class PassingConflict(FloodmarkError):
    """The target rolled back the transaction because of another one; retry it as a whole."""


class Unrepresentable(FloodmarkError):
    """The target refused rows, perhaps for a value that it cannot hold."""


class StatementFailed(FloodmarkError):
    """Redshift refused a statement. `code` is its SQLSTATE, which is rarely specific."""

    def __init__(self, message: str, code: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = code


class LoginRefused(StatementFailed):
    """Redshift refused the user or the password."""


class DataRefused(StatementFailed, Unrepresentable):
    """Redshift refused a statement because of a value."""


class StorageError(FloodmarkError):
    """The object store refused or failed."""


class ObjectNotFound(StorageError):
    """There is no object under this key."""


class WriteConflict(StorageError):
    """A conditional write found a different object than expected."""


class StorageUnavailable(StorageError):
    """A temporary failure of the object store; retry."""


class AccessDenied(StorageError):
    """The object store rejected the credentials, or they lack a permission."""


class StateError(FloodmarkError):
    """The state of a table in the lake is unusable."""


class CorruptDocument(StateError):
    """A document has a wrong schema, checksum, table, time or count."""


class FutureState(StateError):
    """The last state, or its position, is in the future by this machine's clock."""


class CorruptLog(StateError):
    """A manifest is missing or corrupt."""


class AnotherLake(CorruptLog):
    """The target's ledger has other manifests than the lake: another lake was loaded.

    Most likely an older copy of the lake was restored. Loading everything under a new load epoch is
    always right: rows with the same key replace each other, and a table without a key is emptied
    first.
    """

    def __init__(self, table_name: str, what: str) -> None:
        super().__init__(
            f"{what}: the lake was restored to an older state, or the target was loaded from"
            " another lake",
            hint=f"run 'floodmark watermark reset -t {table_name} --load-only', then sync, to load"
            " everything in this lake again",
        )


class StateLost(StateError):
    """No copy and no manifest left to recover from."""


class MirrorConflict(StateError):
    """Lake and mirror contradict each other, or do not belong together."""


class IllegalTransition(StateError):
    """A change that would break an invariant; always a bug."""
