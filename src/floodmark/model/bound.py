"""How far a table may be read: what is known of a server's transactions, and what follows."""

from datetime import datetime, timedelta

from msgspec import Struct

from floodmark.model.position import Position


class Activity(Struct, frozen=True, kw_only=True):
    """What was in flight on a server, read in the order that `floodmark.planning.bounds` needs.

    now                  the server's clock before anything else was read, in UTC
    oldest_statement     when the oldest statement still running began
    oldest_transaction   when the oldest transaction that may write began, to the second
    undated              a transaction whose beginning is not known; None if there is none
    holder               who runs the older of the two
    unseen               why transactions in flight cannot be seen; None if they can
    applied              if unseen: everything committed elsewhere before this moment is applied
    held                 why nothing may be read at all; None if something may
    hint                 what to do about that
    offset               the offset of the server's zone from UTC now
    server_offset        the least offset of the server's zone from UTC since the older of the two
    server_zone          what the server calls its zone
    gtids                the GTIDs that were executed, if the server keeps them
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
    """The greatest id that was there, and the server's clock right after it was read, in UTC."""

    id: int
    read_at: datetime


class Bound(Struct, frozen=True, kw_only=True):
    """How far it is safe to read: not at all without a position.

    held_by    what holds the bound back, if anything does
    hint       what to do about that
    fresh      the moment up to which rows are complete once they are read to the bound
    """

    position: Position | None
    held_by: str | None = None
    hint: str | None = None
    fresh: datetime | None = None
