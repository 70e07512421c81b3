"""Size a table's windows by what is known of it, of Spark, and of the source's limits."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from floodmark.config.models import ExtractionSettings
from floodmark.model.run import Strategy
from floodmark.model.watermark import Watermark
from floodmark.planning.window_sizes import WindowSize, file_rows, window_size
from floodmark.sync.plan import TablePlan
from floodmark.sync.source import Source

if TYPE_CHECKING:
    from floodmark.sync.extraction import Engine

_MEGABYTE = 1024 * 1024


def window_sizes(
    plan: TablePlan,
    settings: ExtractionSettings,
    source: Source,
    engine: "Engine",
    strategy: Strategy,
    *,
    limit: int | None,
    watermark: Callable[[], Watermark | None],
) -> Callable[[int], WindowSize]:
    """Return a function that sizes the next windows, given the rows planned so far.

    It asks for the `watermark` each time: the files of the chunks before show how large rows are.
    """
    rate = source.connection.max_rows_per_second
    expected = plan.expected_rows if limit is None else min(limit, plan.expected_rows)

    def size(planned: int) -> WindowSize:
        readers = source.readers_at_once(engine.known_slots)
        current = watermark()
        written = current.mysql_state if current else None
        return window_size(
            planned,
            expected=expected,
            file_rows=file_rows(
                settings.file_mb * _MEGABYTE,
                average_row_bytes=plan.source.average_row_bytes,
                rows=written.total_rows if written else 0,
                size=written.s3_bytes if written else 0,
                rate=rate / readers if rate else None,
            ),
            at_once=readers if strategy == "intra-table" else 1,
            slices_per_chunk=settings.windows_per_chunk,
        )

    return size
