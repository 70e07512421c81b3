"""Run work for many tables, one after another or in parallel."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from floodmark.errors import ExitCode, FloodmarkError
from floodmark.model.run import WorkStage
from floodmark.model.table import TableName
from floodmark.model.timestamps import utc_now
from floodmark.sync.result import TableResult, done_before

Work = Callable[[TableName], TableResult]


def run_tables(
    tables: Sequence[TableName],
    work: Work,
    *,
    stage: WorkStage = "extract",
    at_once: int = 1,
    stop: Callable[[], None] = lambda: None,
    failed: Callable[[Exception], None] = lambda _error: None,
    finished: Callable[[TableName, TableResult, datetime], None] = lambda _t, _r, _began: None,
    clock: Callable[[], datetime] = utc_now,
) -> list[TableResult]:
    """Run the work for each table; a failure is passed to `failed` and does not stop the others.

    An error counts as one of the `stage`, unless the work says otherwise. `finished` is called with
    each result, and when the work began.

    Work runs in threads, so that this one only waits and can be interrupted: then `stop` ends what
    is running, and the other tables are not started.
    """

    def run_one(table: TableName) -> TableResult:
        began = clock()
        result = _guarded(table, work, stage, failed)
        finished(table, result, began)
        return result

    with ThreadPoolExecutor(max_workers=at_once) as pool:
        try:
            return list(pool.map(run_one, tables))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            stop()
            raise


def exit_code(results: Sequence[TableResult]) -> int:
    """Return the exit code of the run."""
    failures = {result.exit_code for result in results if result.failed}
    if not failures:
        return ExitCode.DONE
    if failures == {ExitCode.DIFFERENCE}:  # everything ran, and differences were found
        return ExitCode.DIFFERENCE
    if any(not result.failed for result in results):
        return ExitCode.PARTIAL
    return failures.pop() if len(failures) == 1 else ExitCode.FAILED


def _guarded(
    table: TableName, work: Work, stage: WorkStage, failed: Callable[[Exception], None]
) -> TableResult:
    nothing = TableResult(table_name=str(table))
    try:
        return work(table)
    except FloodmarkError as error:
        failed(error)
        return done_before(error, nothing).with_failure(error, stage)
    except Exception as error:  # noqa: BLE001 - a bug with one table must not stop the others
        failed(error)
        message = f"unexpected {type(error).__name__}: {error}"
        unexpected = FloodmarkError(message, hint="run it with --debug to see where")
        return done_before(error, nothing).with_failure(unexpected, stage)
