"""Passwords in any script reach PostgreSQL; those of MySQL are tested in test_real_mysql.py."""

from pathlib import Path

import pytest
from msgspec import structs

from floodmark.config.models import PostgresConnection
from floodmark.config.secret import Secret
from floodmark.config.strict import build
from floodmark.errors import ConfigError
from scenarios import Lake
from servers.postgres import PrivatePostgres
from warehouses import Warehouse, new_postgres

PASSWORD = "pässword 密码 пароль 🔑 %41@:/?#'\\"


def test_a_password_in_any_script(postgres: PrivatePostgres, tmp_path: Path) -> None:
    warehouse = new_postgres(postgres, Lake(folder=str(tmp_path)))
    connection = warehouse.connection
    assert isinstance(connection, PostgresConnection)
    quoted = PASSWORD.replace("'", "''")
    postgres.execute(f"CREATE ROLE any_script LOGIN PASSWORD '{quoted}'")
    try:
        login = structs.replace(connection, user="any_script", password=Secret(PASSWORD))
        Warehouse(login, warehouse.lake).open().close()
    finally:
        postgres.execute("DROP ROLE any_script")


@pytest.mark.parametrize("half", ["\udcff", "a\ud800", "a\0b"])
def test_what_is_no_text_is_refused(half: str) -> None:
    with pytest.raises(ConfigError, match="an invalid character") as caught:
        build(PostgresConnection, {"user": "u", "password": half, "database": "d"}, "x")
    assert half not in caught.value.message
