"""Run work for many tables, one after another or in parallel."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from floodmark.errors import ExitCode, FloodmarkError
from floodmark.model.table import TableName
from floodmark.sync.result import TableResult

Work = Callable[[TableName], TableResult]


def run_tables(
    tables: Sequence[TableName],
    work: Work,
    *,
    at_once: int = 1,
    stop: Callable[[], None] = lambda: None,
    failed: Callable[[Exception], None] = lambda _error: None,
) -> list[TableResult]:
    """Run the work for each table; a failure is passed to `failed` and does not stop the others.

    Work runs in threads, so that this one only waits and can be interrupted: then `stop` ends what
    is running, and the other tables are not started.
    """
    with ThreadPoolExecutor(max_workers=at_once) as pool:
        try:
            return list(pool.map(lambda table: _guarded(table, work, failed), tables))
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


def _guarded(table: TableName, work: Work, failed: Callable[[Exception], None]) -> TableResult:
    try:
        return work(table)
    except FloodmarkError as error:
        failed(error)
        return TableResult(table_name=str(table)).with_failure(error)
    except Exception as error:  # noqa: BLE001 - a bug with one table must not stop the others
        failed(error)
        message = f"unexpected {type(error).__name__}: {error}"
        unexpected = FloodmarkError(message, hint="run it with --debug to see where")
        return TableResult(table_name=str(table)).with_failure(unexpected)
