"""Strategies over tables: one after another, or several at once."""

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
) -> list[TableResult]:
    """Do the work for each table; one that fails leaves the others alone.

    The work is done in threads, so that an interruption comes while nothing is done here but wait:
    then `stop` ends what is running, and what waits does not begin.
    """
    with ThreadPoolExecutor(max_workers=at_once) as pool:
        try:
            return list(pool.map(lambda table: _guarded(table, work), tables))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            stop()
            raise


def exit_code(results: Sequence[TableResult]) -> int:
    """What the run as a whole tells the shell."""
    failures = {result.exit_code for result in results if result.failed}
    if not failures:
        return ExitCode.DONE
    if any(not result.failed for result in results):
        return ExitCode.PARTIAL
    return failures.pop() if len(failures) == 1 else ExitCode.FAILED


def _guarded(table: TableName, work: Work) -> TableResult:
    try:
        return work(table)
    except FloodmarkError as error:
        return TableResult(
            table_name=str(table),
            status="failed",
            error=error.message,
            hint=error.hint,
            exit_code=error.exit_code,
        )
