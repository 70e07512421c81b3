"""How clients connect to MySQL, so that all of them connect alike."""

from typing import Any

from floodmark.config.models import MysqlConnection
from floodmark.config.tls import tls_context


def pymysql_options(connection: MysqlConnection) -> dict[str, Any]:
    """Return what PyMySQL needs to connect.

    Without `tls` nothing is encrypted, as connectorx does it: PyMySQL would if the server can.
    """
    password = connection.password.reveal() if connection.password else ""
    return {
        "host": connection.host,
        "port": connection.port,
        "user": connection.user,
        "password": password.encode(),  # PyMySQL would write text in Latin-1
        "charset": "utf8mb4",
        "autocommit": True,
        "ssl": tls_context(connection.tls),
        "ssl_disabled": connection.tls is None,
    }
