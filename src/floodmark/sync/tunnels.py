"""Open the SSH tunnels of a run before any table is read; refuse what workers cannot reach."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from floodmark.config.models import Connection, DuckdbConnection, SparkSettings, Tunnelled
from floodmark.errors import ConfigError
from floodmark.spark.user_settings import other_machines
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
    connections = list(connections)
    tunnelled = [c for c in connections if isinstance(c, Tunnelled) and c.tunnel]
    place = other_machines(spark)
    if place and any(isinstance(c, DuckdbConnection) for c in connections):
        raise ConfigError(
            f"the workers of {place} cannot open a DuckDB file on this machine to compare its rows",
            hint="compare with a local Spark: set spark.master to 'local[*,4]'",
        )
    if tunnelled and place:
        raise ConfigError(
            f"an SSH tunnel ends on this machine, where the workers of {place} cannot reach it",
            hint="set spark.master to 'local[*,4]', or take 'tunnel' out of the connection and"
            " give it a host and port that the workers reach",
        )
    for connection in tunnelled:
        tunnels.open(connection)
