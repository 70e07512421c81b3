"""The floor: connectorx drained into pyarrow's Parquet writer, in one process or several.

python floor.py SOURCE_URL ROWS FOLDER PROCESSES
"""

import sys
from itertools import pairwise
from multiprocessing import Pool
from pathlib import Path


def drain(url: str, first: int, last: int, path: str) -> None:
    """Write the rows of a range of ids to a file."""
    import connectorx
    import pyarrow.parquet as pq

    batches = connectorx.read_sql(
        url,
        f"SELECT * FROM bench.wide WHERE id BETWEEN {first} AND {last}",
        return_type="arrow_stream",
        protocol="binary",
        batch_size=16_384,
    )
    with pq.ParquetWriter(path, batches.schema, compression="zstd", compression_level=1) as writer:
        for batch in batches:
            writer.write_batch(batch)


def main(url: str, rows: int, folder: Path, processes: int) -> None:
    """Divide the table evenly among processes."""
    folder.mkdir(parents=True)
    edges = [rows * n // processes for n in range(processes + 1)]
    parts = [
        (url, first + 1, last, str(folder / f"{first}.parquet")) for first, last in pairwise(edges)
    ]
    if processes == 1:
        drain(*parts[0])
        return
    with Pool(processes) as pool:
        pool.starmap(drain, parts)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
