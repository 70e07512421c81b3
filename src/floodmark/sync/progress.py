"""How far the extraction of a table is."""

from msgspec import Struct

_ALMOST = 0.99


class Progress(Struct, frozen=True, kw_only=True):
    """Progress of a table in this run. Rows and bytes are those of committed chunks.

    `chunk_rows` are planned for the chunks that are being read, of whose slices some are done.
    `loaded_rows` are in the target already, while others are read.
    """

    rows: int
    bytes: int
    expected_rows: int
    slices_done: int
    slices: int
    seconds: float
    chunk_rows: int = 0
    loaded_rows: int = 0
    finished: bool = False

    @property
    def read_rows(self) -> int:
        """Rows read so far, including chunks that are not committed yet."""
        return self.rows + self.chunk_rows * self.slices_done // max(1, self.slices)

    @property
    def share(self) -> float:
        """Share of the expected rows that is read; 1.0 only once all is committed."""
        read = self.read_rows / max(1, self.expected_rows)
        return 1.0 if self.finished else min(_ALMOST, read)
