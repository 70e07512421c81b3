"""Run dlt: a MySQL table to Parquet files, PostgreSQL or DuckDB. Runs in the peers' environment.

    python dlt_peer.py SOURCE_URL TABLE DESTINATION BACKEND MODE DATASET

DESTINATION is a folder, the URL of a PostgreSQL database or the name of a DuckDB file (`….duckdb`),
MODE `replace` or `merge`. dlt keeps its state below the working folder.
"""

import os
import sys

import dlt
from dlt.sources.sql_database import sql_table


def main(source: str, table: str, destination: str, backend: str, mode: str, dataset: str) -> None:
    """Run the pipeline once."""
    if destination.startswith("postgresql:"):
        target = dlt.destinations.postgres(destination)
    elif destination.endswith(".duckdb"):
        target = dlt.destinations.duckdb(destination)
    else:
        target = dlt.destinations.filesystem(bucket_url=f"file://{destination}")
    incremental = dlt.sources.incremental("update_at") if mode == "merge" else None
    rows = sql_table(
        credentials=source,
        table=table,
        backend=backend,
        chunk_size=100_000,
        reflection_level="full_with_precision",
        incremental=incremental,
    )
    rows.apply_hints(primary_key="id")
    pipeline = dlt.pipeline(
        pipeline_name="bench",
        pipelines_dir=os.path.abspath("state"),
        destination=target,
        dataset_name=dataset,
    )
    pipeline.run(rows, write_disposition=mode, loader_file_format=_file_format(target))


def _file_format(target: object) -> str | None:
    # dlt recommends CSV for large loads into PostgreSQL.
    return "csv" if type(target).__name__ == "postgres" else "parquet"


if __name__ == "__main__":
    main(*sys.argv[1:])
