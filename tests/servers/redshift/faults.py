"""What can go wrong between a client and Redshift, statement by statement."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class DropBefore:
    """Break the connection before the statement is run."""


@dataclass(frozen=True)
class DropAfter:
    """Run the statement, then break the connection: done, and no answer."""


@dataclass(frozen=True)
class Fail:
    """Answer with an error."""

    message: str
    code: str = "XX000"
    detail: str = ""


Fault = DropBefore | DropAfter | Fail

SERIALIZATION_VIOLATION = Fail(
    "1023",
    detail="Serializable isolation violation on table - 100, transactions forming the cycle are:"
    " 1, 2 (pid:3)",
)
CONFLICT = Fail("could not complete because of conflict with concurrent transaction")
NO_RELATION = Fail("1018", detail="Relation does not exist.")
NO_OID = Fail("could not open relation with OID 123456")
CANCELLED = Fail("Query (100) cancelled on user's request", "57014")
S3_FORBIDDEN = Fail("S3ServiceException:Access Denied,Status 403,Error AccessDenied,Rid 1")
ELSEWHERE = Fail(
    "S3ServiceException:The bucket you are attempting to access must be addressed using the"
    " specified endpoint. Please send all future requests to this endpoint.,Status 301,"
    "Error PermanentRedirect"
)
DENIED = Fail("permission denied for schema lake", "42501")
NOT_SERIALIZABLE = (SERIALIZATION_VIOLATION, CONFLICT, NO_RELATION, NO_OID)
"""What goes away when the transaction is tried again."""


@dataclass(frozen=True)
class Execution:
    """A statement that is about to run; `number` counts from 1, `kind` is its first word."""

    number: int
    kind: str
    sql: str


Plan = Callable[[Execution], Fault | None]


def no_faults(_: Execution) -> None:
    """Let every statement pass."""


def at(number: int, fault: Fault) -> Plan:
    """Let the statement with this number go wrong."""
    return lambda execution: fault if execution.number == number else None


def first(times: int, kind: str, fault: Fault) -> Plan:
    """Let statements of a kind go wrong, so many times."""
    left = times

    def plan(execution: Execution) -> Fault | None:
        nonlocal left
        if execution.kind == kind and left > 0:
            left -= 1
            return fault
        return None

    return plan
