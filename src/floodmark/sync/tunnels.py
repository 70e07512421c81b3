"""Open the SSH tunnels of a run before any table is read."""

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
    """Open the tunnels of the connections, and close them after the run.

    Raise ConfigError if Spark's workers could not reach those `for_workers`. Relative paths are
    relative to `folder`.
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
    """Open tunnels for Spark's workers; ConfigError if they could not reach them."""
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
    """Return where Spark runs, if that may be on other machines."""
    options = spark.options
    if options.get("spark.remote", spark.remote):
        return "Spark Connect"  # not the address, which may contain a token
    master = options.get("spark.master", spark.master)
    return None if master.startswith("local") else master
