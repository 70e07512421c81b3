"""A window's rows from MySQL, read ahead or as they are wanted.

connectorx is the faster one by far, but it reads on while what it has read is being written, and
without a bound: a worker may hold the whole window. That is right where windows are known to be
small.

A window that is larger, or whose size nobody knows, is streamed: PyMySQL takes a row from the
network when it is asked for one, and the server waits meanwhile. All values come as text, of which
`Conversion` makes exactly what it makes of connectorx's numbers.
"""

import os
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import quote, urlencode

import pyarrow as pa

from floodmark.config.client import connectorx_options, pymysql_options
from floodmark.config.models import MysqlConnection
from floodmark.config.secret import Secret
from floodmark.config.tls_errors import tls_failure
from floodmark.errors import AnotherServer, FloodmarkError
from floodmark.model.extraction import SESSION_SETTINGS, Window
from floodmark.worker.job import BATCH_BYTES, ExtractionJob
from floodmark.worker.login import check_login, final_refusals

# How a server complains about the guard of another one.
_OTHER_SERVER = re.compile(r"out of range in .*~|Unknown system variable 'server_uuid'")
_NO_FOLDER = "/nonexistent"
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


# How connectorx refuses a row that does not fit into one packet of the server's size.
_PACKET_TOO_LARGE = "Packet is larger than max_allowed_packet"


class TooFarAhead(FloodmarkError):
    """A window, or a row of it, proved to be much larger than planned: it must be streamed."""


def read_batches(job: ExtractionJob, window: Window) -> Iterator[pa.RecordBatch]:
    """Read a window's rows from the source; its errors become ours.

    TooFarAhead if the window was not to be streamed and memory grows beyond the job's limit, or a
    row is larger than a packet.
    """
    read = _stream if window.streamed else _read_ahead
    with _translated(job):
        yield from read(job, job.query(window.predicate))


def connectorx_url(connection: MysqlConnection) -> Secret:
    """The address that connectorx reads from. It holds the password, so it is a secret."""
    login = f"{quote(connection.user, safe='')}:{quote(_password(connection), safe='')}"
    host = f"[{connection.host}]" if ":" in connection.host else connection.host
    # By default it changes to the Unix socket that the server names, if the host is this one; and
    # it prepares the query before the session's settings, which some of them come too late for.
    options = {
        "prefer_socket": "false",
        "stmt_cache_size": "0",
        **connectorx_options(connection)[0],
    }
    url = f"mysql://{login}@{host}:{connection.port}/information_schema?{urlencode(options)}"
    return Secret(url)


def _read_ahead(job: ExtractionJob, query: str) -> Iterator[pa.RecordBatch]:
    check_login(job.source)
    # connectorx writes its failures to stderr as well; here they are raised, once.
    os.environ.setdefault("RUST_LOG", "off")
    os.environ["RUST_BACKTRACE"] = "0"
    import connectorx

    before = _resident_bytes()
    with _trusting(connectorx_options(job.source)[1]):
        batches = connectorx.read_sql(
            connectorx_url(job.source).reveal(),
            query,
            return_type="arrow_stream",
            protocol="binary",
            batch_size=job.batch_rows,
            pre_execution_query=list(SESSION_SETTINGS),
        )
    for batch in batches:
        if _resident_bytes() - before > job.most_ahead_bytes:
            raise TooFarAhead(f"{job.table}: rows are far larger than the server's average")
        yield batch


@contextmanager
def _trusting(file: str | None) -> Iterator[None]:
    """Let connectorx connect with these certificates alone: its own `ssl-ca` adds to the system's.

    It connects within `read_sql`, and these variables are how its library is told.
    """
    before = {name: os.environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR")}
    if file is not None:
        os.environ.update({"SSL_CERT_FILE": file, "SSL_CERT_DIR": _NO_FOLDER})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _stream(job: ExtractionJob, query: str) -> Iterator[pa.RecordBatch]:
    import pymysql
    from pymysql.cursors import SSCursor

    class Stream(SSCursor):
        _result: Any

        def close(self) -> None:
            """Leave what was not read to the server; SSCursor would read it to the end."""
            if self._result is not None:
                self._result.unbuffered_active = False
            self.connection = None  # type: ignore[assignment]

        __del__ = close

    with final_refusals(job.source):
        connection = pymysql.connect(
            **pymysql_options(job.source),
            use_unicode=False,
            conv=dict(pymysql.converters.encoders),  # type: ignore[arg-type]
        )
    with closing(connection), connection.cursor(Stream) as cursor:
        for statement in SESSION_SETTINGS:
            connection.query(statement)
        cursor.execute(query)
        rows: list[tuple[bytes | None, ...]] = []
        held = 0
        for row in iter(cursor.fetchone, None):
            rows.append(row)
            held += sum(map(len, filter(None, row)))
            if held >= BATCH_BYTES or len(rows) >= job.batch_rows:
                yield _batch(job, rows)
                rows, held = [], 0
        if rows:
            yield _batch(job, rows)


def _batch(job: ExtractionJob, rows: list[tuple[bytes | None, ...]]) -> pa.RecordBatch:
    kinds = (pa.binary() if column.arrow == "binary" else pa.string() for column in job.columns)
    columns: Any = zip(zip(*rows, strict=True), kinds, strict=True)
    arrays = [pa.array(values, kind) for values, kind in columns]
    return pa.record_batch(arrays, [str(number) for number in range(len(arrays))])


@contextmanager
def _translated(job: ExtractionJob) -> Iterator[None]:
    try:
        yield
    except (FloodmarkError, GeneratorExit, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        # connectorx raises RuntimeError before the first batch, and afterwards its panics, which
        # are no Exceptions.
        reason = str(error).replace(connectorx_url(job.source).reveal(), "***")
        if _OTHER_SERVER.search(reason):
            raise AnotherServer(f"MySQL at {job.source.host}:{job.source.port}") from error
        if _PACKET_TOO_LARGE in reason:
            raise TooFarAhead(f"{job.table}: a row is larger than a packet") from error
        place = f"MySQL at {job.source.host}:{job.source.port}"
        if failure := tls_failure(place, job.source, reason):
            reason = failure.message
        hint = failure.hint if failure else None
        raise FloodmarkError(f"reading {job.table} failed: {reason}", hint=hint) from error


def _password(connection: MysqlConnection) -> str:
    return connection.password.reveal() if connection.password else ""


def _resident_bytes() -> int:
    """The memory that this process has now; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm") as facts:
            return int(facts.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0
