"""Privileges on new tables, in PostgreSQL and in Redshift."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from msgspec import structs

from floodmark.config.models import GrantSettings, PostgresConnection, TableSettings
from floodmark.errors import FloodmarkError, UnknownGrantee
from floodmark.model.load import TargetTable
from floodmark.model.manifest import Column
from floodmark.warehouse.grants import granting, grants_of
from pipelines import Pipeline, ask_once, use_redshift
from scenarios import use_test_keys
from servers.postgres import PrivatePostgres
from servers.redshift import RedshiftStandIn
from warehouses import Loads, Warehouse, new_warehouse

pytestmark = pytest.mark.enough_on("mysql")  # it is about the target

ID = Column("id", "int", False, "int32")
TABLE = TargetTable(name="t", columns=(ID,), primary_key=("id",), version=None)
WIDER = structs.replace(TABLE, columns=(Column("id", "bigint", False, "int64"),))


@pytest.fixture(params=["postgres", "redshift"])
def warehouse(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Warehouse:
    use_test_keys(monkeypatch)
    return new_warehouse(request.param, request, tmp_path)


@pytest.fixture
def known(postgres: PrivatePostgres) -> Iterator[dict[str, str]]:
    """A user, a group and a role, with names that need quotes."""
    suffix = uuid4().hex[:8]
    names = {kind: f"{kind} {suffix}" for kind in ("who", "many", "part")}
    postgres.execute(f'CREATE ROLE "{names["who"]}" LOGIN')
    postgres.execute(f'CREATE ROLE "{names["many"]}"')
    postgres.execute(f'CREATE ROLE "{names["part"]}"')
    yield names
    for name in names.values():
        postgres.execute(f'ALTER ROLE "{name}" NOLOGIN')


def granted(warehouse: Warehouse, grants: GrantSettings) -> Warehouse:
    connection: Any = warehouse.connection
    return Warehouse(structs.replace(connection, grant=grants), warehouse.lake)


def may(warehouse: Warehouse, name: str, privilege: str) -> bool:
    asked = f"SELECT has_table_privilege('{name}', '{{schema}}.t'::regclass, '{privilege}')"
    return bool(warehouse.query(asked)[0][0])


def test_a_new_table_is_granted_and_stays_so_when_it_is_widened(
    warehouse: Warehouse, known: dict[str, str]
) -> None:
    grants = GrantSettings(
        select=(known["who"], f"group {known['many']}", f"role {known['part']}"),
        delete=(f"role {known['part']}",),
    )
    loads = Loads(granted(warehouse, grants), TABLE)
    assert loads.load(loads.chunk([{"id": 1}])) == 1
    for _ in range(2):
        assert all(may(warehouse, name, "SELECT") for name in known.values())
        assert [may(warehouse, name, "DELETE") for name in known.values()] == [False, False, True]
        loads.load(loads.chunk([{"id": 2}], table=WIDER), table=WIDER)
    assert len(loads.rows(WIDER)) == 2


def test_existing_table_gets_no_grants(warehouse: Warehouse, known: dict[str, str]) -> None:
    loads = Loads(warehouse, TABLE)
    loads.load(loads.chunk([{"id": 1}]))
    later = Loads(granted(warehouse, GrantSettings(select=(known["who"],))), TABLE)
    later.load(later.chunk([{"id": 2}]))
    assert not may(warehouse, known["who"], "SELECT")


@pytest.mark.parametrize("who", ["nobody", "group nobody"])
def test_table_is_not_created_for_an_unknown_grantee(warehouse: Warehouse, who: str) -> None:
    grants = GrantSettings(select=("public", who))
    with granted(warehouse, grants).open() as target:
        with pytest.raises(UnknownGrantee, match="t is to be granted to nobody, unknown to"):
            target.prepare(TABLE)
        assert target.count(TABLE) is None
        with pytest.raises(UnknownGrantee):
            target.probe()


def test_a_role_of_redshift_that_is_unknown_undoes_the_table(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which roles there are is not everybody's to see: so GRANT itself fails."""
    use_test_keys(monkeypatch)
    grants = GrantSettings(select=("role nobody",))
    with granted(new_warehouse("redshift", request, tmp_path), grants).open() as target:
        for grant in (lambda: target.prepare(TABLE), target.probe):
            with pytest.raises(FloodmarkError, match='role "nobody" does not exist') as caught:
                grant()
            assert "'grant'" in str(caught.value.hint)
        assert target.count(TABLE) is None


def test_users_from_iam_are_known_with_their_capitals(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    postgres: PrivatePostgres,
) -> None:
    use_test_keys(monkeypatch)
    warehouse = new_warehouse("redshift", request, tmp_path)
    user = f"IAMR:Analyst{uuid4().hex[:8]}"
    postgres.execute(f'CREATE ROLE "{user}" LOGIN')
    loads = Loads(granted(warehouse, GrantSettings(select=(user,))), TABLE)
    assert loads.load(loads.chunk([{"id": 1}])) == 1
    assert may(warehouse, user, "SELECT")


def test_nothing_is_read_for_an_unknown_grantee(
    redshift: RedshiftStandIn, pipeline: Callable[..., Pipeline]
) -> None:
    it = pipeline({"t": "{cursor: id, grant: {select: [nobody]}}"}, lake="ministack")
    use_redshift(it, redshift, schema=f"s_{uuid4().hex[:8]}")
    ask_once(it, "CREATE TABLE t (id INT PRIMARY KEY)")
    ask_once(it, "INSERT INTO t VALUES (1)")
    refused = it.call("sync", "-p", "main", "--json")
    assert refused.code == 1
    assert "t is to be granted to nobody, unknown to Redshift" in refused.table["error"]
    assert "'grant'" in refused.table["hint"]
    assert not [o for o in it.lake.open().list_objects("") if o.key.endswith(".parquet")]


def test_how_a_grant_is_spelled() -> None:
    grants = GrantSettings(select=('a "b"', "Public", "GROUP bi", "group"), update=("user user",))
    assert granting("s.t", grants, {"group": "GROUP", "role": "ROLE"}) == [
        'GRANT SELECT ON TABLE s.t TO "a ""b""", PUBLIC, GROUP "bi", "group"',
        'GRANT UPDATE ON TABLE s.t TO "user"',
    ]
    table = TableSettings(grant=GrantSettings())
    connection = PostgresConnection(database="d", user="u", grant=grants)
    assert grants_of(connection, TableSettings()) is grants
    assert granting("s.t", grants_of(connection, table), {}) == []
    assert hash(connection)
