"""One client's session: its statements, run in a session of PostgreSQL's that belongs to it."""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from servers.redshift import wire
from servers.redshift.authentication import answer_backend, ask_client
from servers.redshift.copy_command import CopyCommand
from servers.redshift.definitions import VarcharGrowth
from servers.redshift.faults import DropAfter, DropBefore, Fail, Fault
from servers.redshift.lake_files import File
from servers.redshift.parquet_rows import check_fit, rows_as_csv
from servers.redshift.refusals import CopyRefused, Refused
from servers.redshift.statements import Statement, translate
from servers.redshift.wire import Message, Peer

VERSION = "8.0.2"
_IDLE = b"I"
_FRAME_BYTES = 1 << 20

# What PostgreSQL knows of the parameters that Redshift's driver sends.
_KNOWN_PARAMETERS = ("user", "database", "application_name", "client_encoding")
_OPTIONS = (
    r"-c default_transaction_isolation=serializable"
    r" -c search_path=public,redshift -c lock_timeout=60s"
    # A backslash in a literal begins an escape.
    r" -c standard_conforming_strings=off -c escape_string_warning=off"
)


@dataclass(frozen=True)
class Surroundings:
    """What a session needs of the server that it is part of."""

    password: str
    decide: Callable[[str, str], Fault | None]
    define_varbyte: Callable[[int], None]
    read_files: Callable[[CopyCommand], Iterator[File]]
    note_load_error: Callable[[int, CopyRefused], None]


class _Answered(Exception):
    """PostgreSQL answered with an error; these messages are the answer."""

    def __init__(self, messages: list[Message]) -> None:
        super().__init__("PostgreSQL refused")
        self.messages = messages


class Session:
    """Passes messages on, up to a Sync at a time, and does itself what PostgreSQL cannot."""

    def __init__(self, client: Peer, backend: Peer, surroundings: Surroundings) -> None:
        self._client = client
        self._backend = backend
        self._surroundings = surroundings
        self._status = _IDLE
        self._pid = 0
        self._statements: dict[str, tuple[Statement, str]] = {}

    def run(self) -> None:
        """Serve the client until it leaves."""
        if not self._start():
            return
        while (group := self._read_group()) is not None:
            if not self._serve(group):
                return

    def _start(self) -> bool:
        """Log the client in; returns whether it may stay."""
        given = self._client.read_startup()
        user, password = given["user"], self._surroundings.password
        if not ask_client(self._client, user, password):
            return False
        parameters = {name: given[name] for name in _KNOWN_PARAMETERS if name in given}
        self._backend.send_startup({**parameters, "options": _OPTIONS})
        if (refused := answer_backend(self._backend, user, password)) is not None:
            self._client.send(refused)
            return False
        while True:
            message = self._backend.read()
            if message.kind == wire.PARAMETER and message.body.startswith(b"server_version\0"):
                message = Message(wire.PARAMETER, b"server_version\0" + VERSION.encode() + b"\0")
            if message.kind == wire.KEY_DATA:
                self._pid = struct.unpack_from("!i", message.body)[0]
            self._client.send(message)
            if message.kind == wire.ERROR:
                return False
            if message.kind == wire.READY:
                return True

    def _read_group(self) -> list[Message] | None:
        """Messages up to a Sync, or one simple query; None when the client says goodbye."""
        group: list[Message] = []
        while True:
            message = self._client.read()
            if message.kind == wire.TERMINATE:
                return None
            group.append(message)
            if message.kind in (wire.SYNC, wire.QUERY):
                return group

    def _serve(self, group: list[Message]) -> bool:
        """Answer a group; returns whether the connection stays open."""
        try:
            return self._run(group)
        except Refused as refusal:
            if isinstance(refusal, CopyRefused):
                self._surroundings.note_load_error(self._pid, refusal)
            self._client.send(*self._raise(refusal.message, refusal.code, refusal.detail))
        except _Answered as answer:
            self._client.send(*answer.messages)
        return True

    def _run(self, group: list[Message]) -> bool:
        executed: tuple[Statement, str] | None = None
        passed: list[Message] = []
        for message in group:
            match message.kind:
                case wire.PARSE:
                    message = self._parse(message)
                case wire.BIND:
                    executed = self._bound(message)
                case wire.QUERY:
                    executed = self._simple(message)
                    message = wire.query(executed[0].sql)
            passed.append(message)
        if executed is None:
            self._client.send(*self._ask(*passed))
            return True
        return self._execute(*executed, passed)

    def _parse(self, message: Message) -> Message:
        name, sql = wire.texts(message.body, 2)
        statement = translate(sql, in_transaction=self._status != _IDLE)
        self._statements[name] = statement, sql
        for size in statement.definition.varbytes:
            self._surroundings.define_varbyte(size)
        if isinstance(statement.definition, VarcharGrowth):
            self._check_growth(statement.definition)
        # A COPY is ours; PostgreSQL is given something without parameters or rows to prepare.
        text = "DO $$ BEGIN END $$" if statement.copy else statement.sql
        rest = message.body.split(b"\0", 2)[2]
        return Message(wire.PARSE, f"{name}\0{text}\0".encode() + rest)

    def _bound(self, message: Message) -> tuple[Statement, str]:
        _, name = wire.texts(message.body, 2)
        return self._statements[name]

    def _simple(self, message: Message) -> tuple[Statement, str]:
        """A statement of another client than the driver, such as a person's."""
        (sql,) = wire.texts(message.body, 1)
        statement = translate(sql, in_transaction=self._status != _IDLE)
        if statement.copy or statement.definition.varbytes:
            raise Refused("the stand-in takes this by the extended protocol only")
        return statement, sql

    def _execute(self, statement: Statement, sql: str, messages: list[Message]) -> bool:
        fault = self._surroundings.decide(statement.kind, sql)
        if isinstance(fault, Fail):
            raise Refused(fault.message, fault.code, fault.detail)
        if isinstance(fault, DropBefore):
            self._client.reset()
            return False
        answer = self._copy(statement.copy) if statement.copy else self._ask(*messages)
        if statement.kind == "TRUNCATE" and self._status == b"T":
            answer[-1:] = [self._ask(wire.query("COMMIT"))[-1]]
        if isinstance(fault, DropAfter):
            self._client.reset()
            return False
        self._client.send(*answer)
        return True

    def _copy(self, command: CopyCommand) -> list[Message]:
        if self._status == b"E":
            raise Refused("current transaction is aborted", "25P02")
        rows = self._rows(
            "SELECT attname, redshift.format_type(atttypid, atttypmod) FROM pg_attribute"
            f" WHERE attrelid = {_literal(command.table)}::regclass AND attnum > 0"
            " AND NOT attisdropped ORDER BY attnum"
        )
        columns = {str(name): str(kind) for name, kind in rows}
        files = list(self._surroundings.read_files(command))
        for file in files:
            check_fit(file, columns)
        pieces = [piece for file in files for piece in rows_as_csv(file, columns)]
        self._stream(command.table, [data for _, data in pieces])
        count = sum(number for number, _ in pieces)
        self._rows(f"SELECT set_config('redshift.copy_count', '{count}', false)")
        said = f"Load into table {command.table} completed, {count} record(s) loaded successfully."
        return [
            Message(wire.BIND_COMPLETE),
            wire.notice(said),
            Message(wire.COMMAND_COMPLETE, b"COPY\0"),
            Message(wire.READY, self._status),
        ]

    def _stream(self, table: str, pieces: list[bytes]) -> None:
        self._backend.send(wire.query(f"COPY {table} FROM STDIN (FORMAT csv)"))
        message = self._backend.read()
        if message.kind == wire.COPY_IN:
            for piece in pieces:
                for start in range(0, len(piece), _FRAME_BYTES):
                    frame = piece[start : start + _FRAME_BYTES]
                    self._backend.send(Message(wire.COPY_DATA, frame))
            self._backend.send(Message(wire.COPY_DONE))
            self._checked(self._replies())
        else:
            self._checked([message, *self._replies()])

    def _check_growth(self, growth: VarcharGrowth) -> None:
        rows = self._rows(
            "SELECT redshift.format_type(atttypid, atttypmod) FROM pg_attribute"
            f" WHERE attrelid = {_literal(growth.table)}::regclass"
            f" AND attname = {_literal(growth.column)}"
        )
        kind = str(rows[0][0]) if rows else ""
        if not kind.startswith("character varying"):
            raise Refused("ALTER COLUMN TYPE is only supported for VARCHAR columns")

    def _raise(self, message: str, code: str, detail: str) -> list[Message]:
        """Have PostgreSQL raise the error, which ends the transaction as an error does."""
        return self._ask(
            wire.query(
                "DO $x$ BEGIN RAISE EXCEPTION USING"
                f" ERRCODE = {_literal(code)}, MESSAGE = {_literal(message)},"
                f" DETAIL = {_literal(detail)}; END $x$"
            )
        )

    def _rows(self, sql: str) -> list[list[str | None]]:
        answer = self._checked(self._ask(wire.query(sql)))
        return [wire.row(message.body) for message in answer if message.kind == wire.DATA_ROW]

    def _checked(self, answer: list[Message]) -> list[Message]:
        if any(message.kind == wire.ERROR for message in answer):
            raise _Answered(answer)
        return answer

    def _ask(self, *messages: Message) -> list[Message]:
        self._backend.send(*messages)
        return self._replies()

    def _replies(self) -> list[Message]:
        """Everything up to the point where PostgreSQL is ready again."""
        answer = [self._backend.read()]
        while answer[-1].kind != wire.READY:
            answer.append(self._backend.read())
        self._status = answer[-1].body
        return answer


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
