"""How far a table may be read, given the transactions in flight on its server."""

from datetime import datetime, timedelta

from msgspec import Struct

from floodmark.model.position import Position


class Activity(Struct, frozen=True, kw_only=True):
    """In-flight activity on a server, read in the order that `floodmark.planning.bounds` needs.

    now                  the server's clock before anything else was read, in UTC
    oldest_statement     start of the oldest running statement
    oldest_transaction   start of the oldest transaction that may write, to the second
    undated              a transaction whose start is not known; None if there is none
    holder               the session that runs the older of the two
    unseen               why transactions in flight cannot be seen; None if they can
    applied              if unseen: everything committed elsewhere before this time is applied
    held                 why nothing may be read at all; None if something may
    hint                 how to fix that
    offset               current offset of the server's time zone from UTC
    server_offset        smallest offset of the server's time zone since the older of the two
    server_zone          the server's name for its time zone
    gtids                the executed GTIDs, if the server keeps them
    """

    now: datetime
    oldest_statement: datetime | None = None
    oldest_transaction: datetime | None = None
    undated: str | None = None
    holder: str | None = None
    unseen: str | None = None
    applied: datetime | None = None
    held: str | None = None
    hint: str | None = None
    offset: timedelta = timedelta(0)
    server_offset: timedelta = timedelta(0)
    server_zone: str = "UTC"
    gtids: str | None = None


class Ceiling(Struct, frozen=True):
    """The largest id in a table, and the server's clock right after it was read, in UTC."""

    id: int
    read_at: datetime


class Bound(Struct, frozen=True, kw_only=True):
    """How far it is safe to read; without a position, nothing may be read.

    held_by    what holds the bound back, if anything does
    hint       how to fix that
    fresh      the time up to which rows are complete once everything up to the bound is read
    """

    position: Position | None
    held_by: str | None = None
    hint: str | None = None
    fresh: datetime | None = None
