"""Read a window's rows from MySQL, ahead or streamed.

connectorx is faster by far, but reads ahead without a limit while rows are written: a worker may
hold the whole window. It is used for windows that are known to be small.

A window that is larger, or of unknown size, is streamed: PyMySQL reads a row from the network when
it is needed, and the server waits meanwhile. All values are text, which `Conversion` converts to
exactly the same values as connectorx's numbers.
"""

import os
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import quote, urlencode

import pyarrow as pa

from floodmark.config.client import connectorx_options
from floodmark.config.models import MysqlConnection
from floodmark.config.secret import Secret
from floodmark.config.tls_errors import tls_failure
from floodmark.errors import AnotherServer, FloodmarkError, TooFarAhead
from floodmark.model.extraction import SESSION_SETTINGS, Window
from floodmark.worker.job import BATCH_BYTES, ExtractionJob
from floodmark.worker.login import check_login, log_in

# The errors of a server that the guard does not match.
_OTHER_SERVER = re.compile(r"out of range in .*~|Unknown system variable 'server_uuid'")
_NO_FOLDER = "/nonexistent"
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


# connectorx's error for a row larger than the server's packet size.
_PACKET_TOO_LARGE = "Packet is larger than max_allowed_packet"


def read_batches(job: ExtractionJob, window: Window) -> Iterator[pa.RecordBatch]:
    """Read a window's rows from the source, and translate errors.

    TooFarAhead if the window is not streamed and memory grows beyond the job's limit, or a row is
    larger than a packet.
    """
    read = _stream if window.streamed else _read_ahead
    with _translated(job):
        yield from read(job, job.query(window.predicate))


def connectorx_url(connection: MysqlConnection) -> Secret:
    """Return the URL for connectorx. It contains the password, so it is a secret."""
    login = f"{quote(connection.user, safe='')}:{quote(_password(connection), safe='')}"
    host = f"[{connection.host}]" if ":" in connection.host else connection.host
    # By default it switches to the Unix socket that a local server reports; and it prepares the
    # query before the session's settings are in force, which is too early for some of them.
    options = {
        "prefer_socket": "false",
        "stmt_cache_size": "0",
        **connectorx_options(connection)[0],
    }
    url = f"mysql://{login}@{host}:{connection.port}/information_schema?{urlencode(options)}"
    return Secret(url)


def _read_ahead(job: ExtractionJob, query: str) -> Iterator[pa.RecordBatch]:
    check_login(job.source)
    # connectorx also writes its errors to stderr; here they are only raised.
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
    """Have connectorx trust these certificates only: its own `ssl-ca` adds to the system's.

    It connects within `read_sql`, and its TLS library reads these variables.
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
            """Close without reading the remaining rows, as SSCursor would."""
            if self._result is not None:
                self._result.unbuffered_active = False
            self.connection = None  # type: ignore[assignment]

        __del__ = close

    connection = log_in(job.source, use_unicode=False, conv=dict(pymysql.converters.encoders))
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
        # connectorx raises RuntimeError before the first batch, and panics afterwards, which are
        # not Exceptions.
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
    """Return the resident memory of this process; 0 if unknown."""
    try:
        with open("/proc/self/statm") as facts:
            return int(facts.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0
