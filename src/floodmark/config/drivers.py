"""Check for warehouse drivers, which are installed with an extra."""

from functools import cache
from importlib.util import find_spec

from floodmark.config.models import Connection, PostgresConnection, RedshiftConnection
from floodmark.errors import ConfigError

_MODULES: dict[type, tuple[str, ...]] = {
    PostgresConnection: ("psycopg", "pgpq"),
    RedshiftConnection: ("redshift_connector",),
}


def require_driver(connection: Connection) -> None:
    """Raise ConfigError unless the driver of a warehouse is installed; import nothing."""
    kind = type(connection).__struct_config__.tag
    for module in _MODULES.get(type(connection), ()):
        if not _installed(module):
            raise ConfigError(
                f"a {kind} connection needs {module}, which is not installed",
                hint=f"pip install 'floodmark[{kind}]'",
            )


@cache
def _installed(module: str) -> bool:
    return find_spec(module) is not None
