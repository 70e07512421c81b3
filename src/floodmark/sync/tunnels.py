"""The SSH tunnels of a run, opened before any table is touched."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from floodmark.config.models import Connection, SparkSettings, Tunnelled
from floodmark.errors import ConfigError
from floodmark.tunnels.tunnel import Tunnels


@contextmanager
def open_tunnels(
    for_workers: Iterable[Connection],
    for_us: Iterable[Connection],
    spark: SparkSettings,
    *,
    folder: str,
) -> Iterator[Tunnels]:
    """Open the tunnels that the connections name, and close them after the run.

    ConfigError if Spark's workers could not reach what is for them. `folder` is where relative
    paths begin.
    """
    with Tunnels(folder) as tunnels:
        open_for_workers(tunnels, for_workers, spark)
        for connection in for_us:
            if isinstance(connection, Tunnelled):
                tunnels.open(connection)
        yield tunnels


def open_for_workers(
    tunnels: Tunnels, connections: Iterable[Connection], spark: SparkSettings
) -> None:
    """Open tunnels for Spark's workers; ConfigError if those could not reach them."""
    tunnelled = [c for c in connections if isinstance(c, Tunnelled) and c.tunnel]
    if tunnelled and (place := _other_machines(spark)):
        raise ConfigError(
            f"an SSH tunnel ends on this machine, where the workers of {place} cannot reach it",
            hint="set spark.master to 'local[*,4]', or take 'tunnel' out of the connection and"
            " give it a host and port that the workers reach",
        )
    for connection in tunnelled:
        tunnels.open(connection)


def _other_machines(spark: SparkSettings) -> str | None:
    """Where Spark runs, if that may be somewhere else."""
    options = spark.options
    if options.get("spark.remote", spark.remote):
        return "Spark Connect"  # not the address: there may be a token in it
    master = options.get("spark.master", spark.master)
    return None if master.startswith("local") else master
