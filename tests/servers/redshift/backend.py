"""The session of PostgreSQL's behind a client: what it is asked, and how its answers change."""

import json
from typing import Any

from servers.redshift import wire
from servers.redshift.long_names import restored_in
from servers.redshift.wire import Message, Peer

_IDLE, IN_TRANSACTION, FAILED = b"I", b"T", b"E"
_FRAME_BYTES = 1 << 20
_BYTEA = 17
# Numbers of Redshift's types, as its drivers know them.
_VARCHAR, _VARBYTE = 1043, 6551
_NOT_SERIALIZABLE = b"C40001\0"
# What Redshift says when PostgreSQL says that.
_VIOLATION = Message(
    wire.ERROR,
    b"SERROR\0CXX000\0M1023\0DSerializable isolation violation on table - 100, transactions"
    b" forming the cycle are: 1, 2 (pid:3)\0\0",
)


class Answered(Exception):
    """PostgreSQL answered with an error; these messages are the answer."""

    def __init__(self, messages: list[Message]) -> None:
        super().__init__("PostgreSQL refused")
        self.messages = messages


class Backend:
    """Asks PostgreSQL, one question at a time."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.status = _IDLE
        self._types: dict[int, int] = {}
        self._bytes: set[int] = set()
        self._ours = False  # then names stay as PostgreSQL keeps them

    @property
    def idle(self) -> bool:
        """Whether no transaction is open."""
        return self.status == _IDLE

    def ask(self, *messages: Message) -> list[Message]:
        """Send messages, and return everything up to the point where PostgreSQL is ready again."""
        self.peer.send(*messages)
        return self._replies()

    def rows(self, sql: str) -> list[list[str | None]]:
        """Run a query of our own; Answered if that fails."""
        kept, self._ours = self._bytes, True
        try:
            answer = _checked(self.ask(*wire.named_query(sql)))
        finally:
            self._bytes, self._ours = kept, False
        return [wire.row(message.body) for message in answer if message.kind == wire.DATA_ROW]

    def fail(self, message: str, code: str, detail: str) -> list[Message]:
        """Have PostgreSQL raise an error, which ends the transaction as an error does."""
        return self.ask(
            wire.query(
                "DO $x$ BEGIN RAISE EXCEPTION USING"
                f" ERRCODE = {literal(code)}, MESSAGE = {literal(message)},"
                f" DETAIL = {literal(detail)}; END $x$"
            )
        )

    def stream(self, into: str, pieces: list[bytes]) -> None:
        """Copy rows in CSV into a table; Answered if PostgreSQL does not take them."""
        self.peer.send(wire.query(f"COPY {into} FROM STDIN (FORMAT csv)"))
        message = self.peer.read()
        if message.kind == wire.COPY_IN:
            for piece in pieces:
                for start in range(0, len(piece), _FRAME_BYTES):
                    frame = piece[start : start + _FRAME_BYTES]
                    self.peer.send(Message(wire.COPY_DATA, frame))
            self.peer.send(Message(wire.COPY_DONE))
            _checked(self._replies())
        else:
            _checked([message, *self._replies()])

    def columns(self, table: str) -> dict[str, str]:
        """The columns of a table with their types, as Redshift shows them."""
        found = self.rows(
            "SELECT attname, redshift.format_type(atttypid, atttypmod) FROM pg_attribute"
            f" WHERE attrelid = {literal(table)}::regclass AND attnum > 0"
            " AND NOT attisdropped ORDER BY attnum"
        )
        return {str(name): str(kind) for name, kind in found}

    def attributes(self, table: str) -> dict[str, dict[str, Any]]:
        """What is kept of a table's columns beside their types: DISTKEY, SORTKEY, ENCODE, keys."""
        found = self.rows(
            "SELECT attname, coalesce(col_description(attrelid, attnum), '{}') FROM pg_attribute"
            f" WHERE attrelid = {literal(table)}::regclass AND attnum > 0 AND NOT attisdropped"
        )
        return {str(name): json.loads(str(kept)) for name, kept in found}

    def keep(self, table: str, column: str, attributes: dict[str, Any]) -> None:
        """Keep something of a column in place of what was kept before."""
        name = column.replace('"', '""')
        text = literal(json.dumps(attributes))
        self.rows(f'COMMENT ON COLUMN {table}."{name}" IS {text}')

    def keep_style(self, table: str, style: str) -> None:
        """Keep how a table is distributed."""
        self.rows(f"COMMENT ON TABLE {table} IS {literal(style)}")

    def _replies(self) -> list[Message]:
        answer = [self._translated(self.peer.read())]
        while answer[-1].kind != wire.READY:
            answer.append(self._translated(self.peer.read()))
        self.status = answer[-1].body
        return answer

    def _translated(self, message: Message) -> Message:
        if message.kind == wire.ERROR and _NOT_SERIALIZABLE in message.body:
            return _VIOLATION
        if self._ours:
            return message
        if message.kind == wire.ROW_DESCRIPTION:
            body, kinds = wire.with_types(message.body, self._types)
            self._bytes = {place for place, kind in enumerate(kinds) if kind == _BYTEA}
            return Message(message.kind, wire.with_names(body))
        if message.kind == wire.DATA_ROW and (self._bytes or b"~" in message.body):
            return Message(message.kind, wire.with_hex(message.body, self._bytes))
        if message.kind == wire.ERROR:
            return Message(message.kind, restored_in(message.body))
        return message

    def find_types(self) -> None:
        """Learn the number of the type that stands for VARCHAR, which clients do not know."""
        ((number,),) = self.rows("""SELECT 'redshift."character varying"'::regtype::oid""")
        self._types = {int(str(number)): _VARCHAR, _BYTEA: _VARBYTE}


def _checked(answer: list[Message]) -> list[Message]:
    if any(message.kind == wire.ERROR for message in answer):
        raise Answered(answer)
    return answer


def literal(text: str) -> str:
    """A text as a literal, in which a backslash begins an escape."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
