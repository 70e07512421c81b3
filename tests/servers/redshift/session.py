"""One client's session: its statements, run in a session of PostgreSQL's that belongs to it."""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from servers.redshift import wire
from servers.redshift.alterations import check_alteration, keep_attributes
from servers.redshift.authentication import answer_backend
from servers.redshift.backend import FAILED, IN_TRANSACTION, Answered, Backend, literal
from servers.redshift.copy_command import CopyCommand
from servers.redshift.definitions import Alteration
from servers.redshift.faults import DropAfter, DropBefore, Fail, Fault
from servers.redshift.lake_files import File
from servers.redshift.parquet_rows import check_fit, rows_as_csv
from servers.redshift.refusals import CopyRefused, Refused
from servers.redshift.statements import Statement, translate
from servers.redshift.unload_command import UnloadCommand, rows_of
from servers.redshift.wire import Message, Peer

VERSION = "8.0.2"

# What PostgreSQL knows of the parameters that Redshift's driver sends.
_KNOWN_PARAMETERS = ("user", "database", "application_name", "client_encoding")
_OPTIONS = (
    r" -c search_path=public,redshift,pg_catalog -c lock_timeout=60s"
    # A backslash in a literal begins an escape.
    r" -c standard_conforming_strings=off -c escape_string_warning=off"
)


@dataclass(frozen=True)
class Surroundings:
    """What a session needs of the server that it is part of."""

    isolation: str
    authenticate: Callable[[Peer, str], tuple[str, str] | None]
    decide: Callable[[str, str], Fault | None]
    define_varbyte: Callable[[int], None]
    read_files: Callable[[CopyCommand], Iterator[File]]
    note_load_error: Callable[[int, CopyRefused], None]
    write_files: Callable[[UnloadCommand, pa.Table], None]
    cursor_bytes: Callable[[], int]


class Session:
    """Passes messages on, up to a Sync at a time, and does itself what PostgreSQL cannot."""

    def __init__(self, client: Peer, backend: Peer, surroundings: Surroundings) -> None:
        self._client = client
        self._backend = Backend(backend)
        self._surroundings = surroundings
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
        login = self._surroundings.authenticate(self._client, given["user"])
        if login is None:
            return False
        given["user"], password = login
        parameters = {name: given[name] for name in _KNOWN_PARAMETERS if name in given}
        isolation = f"-c default_transaction_isolation={self._surroundings.isolation}"
        backend = self._backend.peer
        backend.send_startup({**parameters, "options": isolation + _OPTIONS})
        if (refused := answer_backend(backend, given["user"], password)) is not None:
            self._client.send(refused)
            return False
        return self._greet(backend)

    def _greet(self, backend: Peer) -> bool:
        while True:
            message = backend.read()
            if message.kind == wire.PARAMETER and message.body.startswith(b"server_version\0"):
                message = Message(wire.PARAMETER, b"server_version\0" + VERSION.encode() + b"\0")
            if message.kind == wire.KEY_DATA:
                self._pid = struct.unpack_from("!i", message.body)[0]
            if message.kind == wire.READY:
                self._backend.find_types()
            self._client.send(message)
            if message.kind in (wire.ERROR, wire.READY):
                return message.kind == wire.READY

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
            answer = self._backend.fail(refusal.message, refusal.code, refusal.detail)
            self._client.send(*answer)
        except Answered as refused:
            self._client.send(*refused.messages)
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
            self._client.send(*self._backend.ask(*passed))
            return True
        return self._execute(*executed, passed)

    def _parse(self, message: Message) -> Message:
        name, sql = wire.texts(message.body, 2)
        statement = translate(sql, in_transaction=not self._backend.idle)
        self._statements[name] = statement, sql
        for size in statement.definition.varbytes:
            self._surroundings.define_varbyte(size)
        if isinstance(statement.definition, Alteration):
            check_alteration(self._backend, statement.definition)
        # These are ours; PostgreSQL is given something without parameters or rows to prepare.
        ours = statement.copy or statement.unload
        text = "DO $$ BEGIN END $$" if ours else statement.sql
        rest = message.body.split(b"\0", 2)[2]
        return Message(wire.PARSE, f"{name}\0{text}\0".encode() + rest)

    def _bound(self, message: Message) -> tuple[Statement, str]:
        _, name = wire.texts(message.body, 2)
        return self._statements[name]

    def _simple(self, message: Message) -> tuple[Statement, str]:
        """A statement of another client than the driver, such as a person's."""
        (sql,) = wire.texts(message.body, 1)
        statement = translate(sql, in_transaction=not self._backend.idle)
        if statement.copy or statement.unload or statement.definition.varbytes:
            raise Refused("the stand-in takes this by the extended protocol only")
        return statement, sql

    def _execute(self, statement: Statement, sql: str, messages: list[Message]) -> bool:
        fault = self._surroundings.decide(statement.kind, sql)
        if isinstance(fault, Fail):
            raise Refused(fault.message, fault.code, fault.detail)
        if isinstance(fault, DropBefore):
            self._client.reset()
            return False
        self._lock_written(statement)
        made = statement.definition
        existed = statement.kind == "CREATE" and made.table and self._exists(made.table)
        if statement.kind == "DECLARE":
            self._check_cursor(statement)
        if statement.copy:
            answer = self._copy(statement.copy)
        elif statement.unload:
            answer = self._unload(statement)
        else:
            answer = self._backend.ask(*messages)
        if not existed and not any(message.kind == wire.ERROR for message in answer):
            keep_attributes(self._backend, made)
        if statement.kind == "TRUNCATE" and self._backend.status == IN_TRANSACTION:
            answer[-1:] = [self._backend.ask(wire.query("COMMIT"))[-1]]
        if isinstance(fault, DropAfter):
            self._client.reset()
            return False
        self._client.send(*answer)
        return True

    def _lock_written(self, statement: Statement) -> None:
        """Who writes to a table keeps other writers out until the transaction ends."""
        if statement.written and self._backend.status == IN_TRANSACTION:
            self._backend.rows(f"LOCK TABLE {statement.written} IN SHARE ROW EXCLUSIVE MODE")

    def _exists(self, table: str) -> bool:
        return self._backend.rows(f"SELECT to_regclass({literal(table)})") != [[None]]

    def _check_cursor(self, statement: Statement) -> None:
        """One cursor at a time, whose rows the leader node can hold: by their size as text."""
        if self._backend.status == IN_TRANSACTION:
            if self._backend.rows("SELECT 1 FROM pg_cursors WHERE name LIKE 'floodmark%'"):
                raise Refused("Only one cursor at a time can be open", "42P03")
            query = statement.sql.partition(" FOR ")[2]
            size = f"SELECT coalesce(sum(octet_length(q::text)), 0) FROM ({query}) AS q"
            if int(str(self._backend.rows(size)[0][0])) > self._surroundings.cursor_bytes():
                raise Refused("exceeded the maximum size of the result set of cursors", "53400")

    def _unload(self, statement: Statement) -> list[Message]:
        assert statement.unload is not None
        if self._backend.status == FAILED:
            raise Refused("current transaction is aborted", "25P02")
        answer = self._backend.ask(wire.query(statement.sql))
        if any(message.kind == wire.ERROR for message in answer):
            raise Answered(answer)
        rows = rows_of(answer)
        self._surroundings.write_files(statement.unload, rows)
        self._backend.rows(f"SELECT set_config('redshift.unload_count', '{rows.num_rows}', false)")
        return [
            Message(wire.BIND_COMPLETE),
            wire.notice(f"UNLOAD completed, {rows.num_rows} record(s) unloaded successfully."),
            Message(wire.COMMAND_COMPLETE, b"UNLOAD\0"),
            Message(wire.READY, self._backend.status),
        ]

    def _copy(self, command: CopyCommand) -> list[Message]:
        if self._backend.status == FAILED:
            raise Refused("current transaction is aborted", "25P02")
        found = self._backend.columns(command.table)
        columns = {name: found[name] for name in command.columns or found}
        files = list(self._surroundings.read_files(command))
        for file in files:
            check_fit(file, columns)
        pieces = [piece for file in files for piece in rows_as_csv(file, columns)]
        self._backend.stream(command.target, [data for _, data in pieces])
        count = sum(number for number, _ in pieces)
        self._backend.rows(f"SELECT set_config('redshift.copy_count', '{count}', false)")
        said = f"Load into table {command.table} completed, {count} record(s) loaded successfully."
        return [
            Message(wire.BIND_COMPLETE),
            wire.notice(said),
            Message(wire.COMMAND_COMPLETE, b"COPY\0"),
            Message(wire.READY, self._backend.status),
        ]
