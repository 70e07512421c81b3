"""What comes from AWS: temporary logins of IAM, those that Secrets Manager keeps, partitions."""

import gc
import json
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from msgspec import structs

from floodmark.checks.targets import check_target
from floodmark.config import aws_login
from floodmark.config.aws_login import AWS_LOGINS, AwsLogins, with_login
from floodmark.config.logins import LOGINS
from floodmark.config.models import (
    IamSettings,
    LakeSettings,
    MysqlConnection,
    PostgresConnection,
    RedshiftConnection,
    SecretSettings,
)
from floodmark.config.secret import Secret
from floodmark.errors import FloodmarkError
from floodmark.model.timestamps import utc_now
from floodmark.tunnels.tunnel import open_tunnel
from floodmark.warehouse.redshift import locks
from floodmark.warehouse.redshift.session import RedshiftSession, open_session
from pipelines import Pipeline, ask_once, use_redshift
from scenarios import new_lake, use_test_keys
from servers import REGION
from servers.ministack import Ministack
from servers.postgres import PrivatePostgres
from servers.redshift import ROLE, RedshiftStandIn
from servers.redshift.aws_api import RedshiftApi
from servers.redshift.faults import Execution
from warehouses import Warehouse, new_redshift

pytestmark = [
    pytest.mark.enough_on("mysql"),  # it is about the target, or the same on both
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # of drivers that are refused
]

CLUSTER = IamSettings(cluster="floodmark", region="eu-west-1")
WORKGROUP = IamSettings(workgroup="floodmark", region="us-gov-west-1")


@pytest.fixture(autouse=True)
def _no_keys_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    use_test_keys(monkeypatch)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    LOGINS.forget()
    yield
    LOGINS.forget()
    gc.collect()  # while warnings of sockets that drivers left behind are ignored


@pytest.fixture
def api(redshift: RedshiftStandIn, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedshiftApi]:
    redshift.forget()
    with RedshiftApi(redshift.logins) as found:
        for service in ("REDSHIFT", "REDSHIFT_SERVERLESS"):
            monkeypatch.setenv(f"AWS_ENDPOINT_URL_{service}", found.endpoint)
        yield found


@pytest.fixture
def keep(ministack: Ministack, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], str]:
    """Keeps a secret, and returns its ARN."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_SECRETS_MANAGER", ministack.endpoint)
    client = boto3.client("secretsmanager", region_name=REGION)

    def create(value: Any) -> str:
        text = value if isinstance(value, str) else json.dumps(value)
        name = f"floodmark/{uuid.uuid4().hex}"
        return str(client.create_secret(Name=name, SecretString=text)["ARN"])

    return create


def by_iam(server: RedshiftStandIn, iam: IamSettings, **changes: Any) -> RedshiftConnection:
    return server.connection(**{"user": "", "password": None, "iam": iam, **changes})


@pytest.mark.parametrize(
    ("iam", "user", "expected"),
    [
        (CLUSTER, "loads", ("GetClusterCredentials", "eu-west-1", "IAM:loads")),
        (CLUSTER, "", ("GetClusterCredentialsWithIAM", "eu-west-1", "IAMR:loader")),
        (WORKGROUP, "", ("GetCredentials", "us-gov-west-1", "IAMR:loader")),
    ],
)
def test_iam_opens_redshift(
    redshift: RedshiftStandIn,
    api: RedshiftApi,
    iam: IamSettings,
    user: str,
    expected: tuple[str, str, str],
) -> None:
    with open_tunnel(by_iam(redshift, iam, user=user)) as local:
        session = RedshiftSession(local)
        assert session.run("SELECT 1") == [(1,)]
        session.close()
        assert local.user == expected[2]
        assert "***" in repr(local)
        assert redshift.logins.temporary[local.user] not in repr(local)
    ((action, region, given),) = api.asked
    assert (action, region) == expected[:2]
    assert redshift.database in (given.get("DbName"), given.get("dbName"))


def test_only_what_aws_handed_out_opens_redshift(
    redshift: RedshiftStandIn, api: RedshiftApi
) -> None:
    login = with_login(by_iam(redshift, CLUSTER))
    redshift.logins.temporary.clear()
    with pytest.raises(FloodmarkError, match="password authentication failed") as caught:
        RedshiftSession(login)
    assert "'iam'" in str(caught.value.hint)
    assert len(api.asked) == 1


def test_aws_is_asked_once_for_many_tables_and_again_later(
    redshift: RedshiftStandIn, api: RedshiftApi
) -> None:
    now = 0.0
    logins, connection = AwsLogins(lambda: now), by_iam(redshift, WORKGROUP)
    first = with_login(connection, logins)
    now = aws_login.KEPT_SECONDS - 1
    assert with_login(connection, logins) == first
    now += 1
    assert with_login(connection, logins) != first
    assert len(api.asked) == 2
    api.seconds = 120
    now = 2000.0
    with_login(connection, logins)
    now += 59
    with_login(connection, logins)
    assert len(api.asked) == 3
    now += 2  # less than half of it is left
    with_login(connection, logins)
    assert len(api.asked) == 4


def test_a_sync_by_iam(
    redshift: RedshiftStandIn, api: RedshiftApi, pipeline: Callable[..., Pipeline]
) -> None:
    synced = pipeline({"a": "{cursor: id}", "b": "{cursor: id}"}, lake="ministack")
    for table in "ab":
        ask_once(synced, f"CREATE TABLE {table} (id INT PRIMARY KEY) AS SELECT 1 AS id")
    use_redshift(synced, redshift)
    config = Path(synced.config)
    text = config.read_text()
    login = f'"user": "{redshift.connection().user}", "password": "{synced_password(redshift)}"'
    assert login in text
    iam = '"iam": {"workgroup": "floodmark", "region": "us-east-1"}'
    config.write_text(text.replace(login, iam))
    ended = synced.call("sync", "-p", "main", "--json")
    assert [table["loaded_rows"] for table in ended.value["tables"]] == [1, 1]
    assert len(api.asked) == 1
    (password,) = redshift.logins.temporary.values()
    assert password not in ended.out + ended.err
    api.denied.add("GetCredentials")
    AWS_LOGINS.forget()
    checked = synced.call("doctor")
    assert "workgroup floodmark: redshift-serverless:GetCredentials failed" in checked.out
    assert "grant redshift-serverless:GetCredentials to this AWS identity" in checked.out


@pytest.mark.parametrize("how", ["iam", "cached", "secret"])
def test_a_load_that_outlasts_its_password_commits(
    redshift: RedshiftStandIn,
    api: RedshiftApi,
    keep: Callable[[Any], str],
    pipeline: Callable[..., Pipeline],
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    """The password ends during a COPY. Its load and the tables after it use a new one."""
    synced = pipeline(dict.fromkeys("abc", "{cursor: id}"), lake="ministack")
    for table in "abc":
        ask_once(synced, f"CREATE TABLE {table} (id INT PRIMARY KEY) AS SELECT 1 AS id")
    use_redshift(synced, redshift, schema=f"outlasts_{how}")
    user, password = redshift.connection().user, synced_password(redshift)
    secret = keep({"username": user, "password": password})
    client = boto3.client("secretsmanager", region_name=REGION)
    login = '"iam": {"workgroup": "floodmark", "region": "us-east-1"}'
    if how == "secret":
        login = f'"secret": "{secret}"'
    config = Path(synced.config)
    text = config.read_text().replace(f'"user": "{user}", "password": "{password}"', login)
    assert login in text
    config.write_text(text)
    monkeypatch.setattr(locks, "_FRESH_SECONDS", 0.0)  # as if the COPY had taken a minute
    monkeypatch.setattr(redshift.logins, "password", password)  # restores it
    copies: list[Execution] = []

    def end_password(execution: Execution) -> None:
        if execution.kind != "COPY":
            return
        copies.append(execution)
        if len(copies) > 1:
            return
        redshift.logins.temporary.clear()
        if how == "iam":
            later = time.monotonic() + 3600
            monkeypatch.setattr(AWS_LOGINS, "_clock", lambda: later)
        elif how == "secret":
            redshift.logins.password = "rotated"
            value = json.dumps({"username": user, "password": "rotated"})
            client.put_secret_value(SecretId=secret, SecretString=value)

    redshift.plan = end_password
    ended = synced.call("sync", "-p", "main", "--json", "--strategy", "sequential")
    redshift.forget()
    assert ended.code == 0, ended
    assert [table["loaded_rows"] for table in ended.value["tables"]] == [1, 1, 1]
    assert len(copies) == 3
    assert len(api.asked) == (0 if how == "secret" else 2)


def test_a_user_whom_redshift_does_not_know_is_tried_once(
    redshift: RedshiftStandIn, api: RedshiftApi
) -> None:
    """Each temporary password is new, but it is the user who is refused."""
    configured = by_iam(redshift, CLUSTER)

    def log_in() -> RedshiftConnection:
        login = with_login(configured)
        redshift.logins.temporary.clear()
        return login

    for _ in range(3):
        with pytest.raises(FloodmarkError, match="password authentication failed"):
            open_session(log_in)
    LOGINS.begin_run()
    with pytest.raises(FloodmarkError, match="the next attempt is not before"):
        open_session(log_in)
    assert len(api.asked) > 1
    assert redshift.logins.tried == 1


def synced_password(server: RedshiftStandIn) -> str:
    password = server.connection().password
    assert password is not None
    return password.reveal()


# Errors


@pytest.mark.parametrize(
    ("iam", "environment", "said", "hint"),
    [
        (IamSettings(cluster="other", region="us-east-1"), {}, "other not found", "check the name"),
        (IamSettings(workgroup="other", region="us-east-1"), {}, "other not f", "of the workgroup"),
        (CLUSTER, {"AWS_ACCESS_KEY_ID": "stranger"}, "token is invalid", "renew the AWS"),
        (CLUSTER, {"AWS_ACCESS_KEY_ID": ""}, "no AWS credentials found", "AWS_PROFILE"),
        (structs.replace(CLUSTER, profile="none"), {}, "AWS profile 'none' not found", "'profile'"),
        (IamSettings(cluster="floodmark"), {}, "unknown AWS region", "'region'"),
        (
            CLUSTER,
            {"AWS_ENDPOINT_URL_REDSHIFT": "http://127.0.0.1:9"},
            "connect",
            "AWS credentials and the network",
        ),
    ],
)
def test_errors_of_aws_are_one_line_with_a_hint(
    redshift: RedshiftStandIn,
    api: RedshiftApi,
    monkeypatch: pytest.MonkeyPatch,
    iam: IamSettings,
    environment: dict[str, str],
    said: str,
    hint: str,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
        if not value:
            monkeypatch.delenv(name)
    with pytest.raises(FloodmarkError) as caught:
        with_login(by_iam(redshift, iam))
    assert said in caught.value.message
    assert hint in str(caught.value.hint)
    assert "\n" not in caught.value.message


def test_a_denied_call_names_the_permission(redshift: RedshiftStandIn, api: RedshiftApi) -> None:
    api.denied.add("GetClusterCredentials")
    with pytest.raises(FloodmarkError, match="AccessDenied") as caught:
        with_login(by_iam(redshift, CLUSTER, user="loads"))
    assert "grant redshift:GetClusterCredentials to" in str(caught.value.hint)


def test_a_profile_is_used_and_an_sso_login_that_is_over_is_named(
    redshift: RedshiftStandIn,
    api: RedshiftApi,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = tmp_path / "config"
    config.write_text(
        "[profile etl]\naws_access_key_id = etl\naws_secret_access_key = x\nregion = ap-south-1\n"
        "[profile sso]\nsso_start_url = https://example.com/start\nsso_region = us-east-1\n"
        "sso_account_id = 123456789012\nsso_role_name = loader\nregion = us-east-1\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("HOME", str(tmp_path))
    api.identities["etl"] = "IAM:etl"
    etl = IamSettings(cluster="floodmark", profile="etl")
    assert with_login(by_iam(redshift, etl)).user == "IAM:etl"
    assert api.asked[0][1] == "ap-south-1"
    with pytest.raises(FloodmarkError, match="the AWS login has expired") as caught:
        with_login(by_iam(redshift, IamSettings(cluster="floodmark", profile="sso")))
    assert caught.value.hint == "log in with 'aws sso login'"


# Secrets Manager


def test_every_server_takes_a_secret(
    redshift: RedshiftStandIn, postgres: PrivatePostgres, keep: Callable[[Any], str]
) -> None:
    login = {"username": postgres.user, "password": postgres.password, "host": "x", "port": 1}
    secret = keep(login)
    with open_tunnel(by_secret(redshift, secret)) as local:
        RedshiftSession(local).close()
        assert postgres.password not in repr(local)
    plain = keep(postgres.password)
    for connection in (
        MysqlConnection(user=postgres.user, secret=plain),
        PostgresConnection(database="d", user=postgres.user, secret=plain),
        PostgresConnection(database="d", secret=SecretSettings(name=secret)),
    ):
        with open_tunnel(connection) as found:
            assert found.user == postgres.user
            assert found.password is not None
            assert found.password.reveal() == postgres.password


def by_secret(server: RedshiftStandIn, secret: str) -> RedshiftConnection:
    return server.connection(user="", password=None, secret=secret)


@pytest.mark.parametrize(
    ("value", "user", "said"),
    [
        ({"username": "somebody", "pass": "s3cr3t"}, "", "has no user and password"),
        ("s3cr3t", "", "has no user and password"),
        ({"username": "somebody", "password": "s3cr3t"}, "other", "is not for user 'other'"),
        ({"username": "somebody", "password": 5}, "", "has no user and password"),
    ],
)
def test_malformed_secret_is_refused_without_being_shown(
    keep: Callable[[Any], str], value: Any, user: str, said: str
) -> None:
    with pytest.raises(FloodmarkError, match=said) as caught:
        with_login(MysqlConnection(user=user, secret=keep(value)))
    assert "s3cr3t" not in f"{caught.value.message}{caught.value.hint}"


def test_a_missing_secret_is_named(keep: Callable[[Any], str]) -> None:
    name = keep("x")[:-6] + "absent"
    with pytest.raises(FloodmarkError, match="ResourceNotFound") as caught:
        with_login(MysqlConnection(user="u", secret=name))
    assert "check the name and region of the secret" in str(caught.value.hint)


def test_a_rotated_secret_is_tried_in_the_next_round(
    redshift: RedshiftStandIn, postgres: PrivatePostgres, keep: Callable[[Any], str]
) -> None:
    redshift.forget()
    secret = keep({"username": postgres.user, "password": "old"})
    connection = by_secret(redshift, secret)
    for _ in range(2):
        with pytest.raises(FloodmarkError):
            RedshiftSession(with_login(connection))
        LOGINS.begin_run()
    assert redshift.logins.tried == 1
    client = boto3.client("secretsmanager", region_name=REGION)
    value = json.dumps({"username": postgres.user, "password": postgres.password})
    client.put_secret_value(SecretId=secret, SecretString=value)
    RedshiftSession(with_login(connection)).close()


def test_a_source_by_a_secret_shows_it_nowhere(
    pipeline: Callable[..., Pipeline], keep: Callable[[Any], str]
) -> None:
    synced = pipeline({"t": "{cursor: id}"})
    ask_once(synced, "CREATE TABLE t (id INT PRIMARY KEY) AS SELECT 1 AS id")
    user, password = synced.source["user"], synced.source["password"]
    secret = keep({"username": user, "password": password})
    config = Path(synced.config)
    text = config.read_text()
    login = f'"user": "{user}", "password": "{password}"'
    assert login in text
    config.write_text(text.replace(login, f'"secret": "{secret}"'))
    ended = synced.call("sync", "-p", "main", "--json", "--debug")
    assert ended.table["loaded_rows"] == 1, ended
    lake = [path.read_bytes() for path in synced.folder.rglob("*") if path.is_file()]
    assert password not in ended.out + ended.err
    assert not any(password.encode() in data for data in lake)


# Partitions, and object stores of others


@pytest.fixture
def warehouse(
    redshift: RedshiftStandIn, request: pytest.FixtureRequest, tmp_path: Path
) -> Warehouse:
    return new_redshift(redshift, new_lake("ministack", request, tmp_path))


@pytest.mark.parametrize("partition", ["aws-cn", "aws-us-gov"])
def test_a_role_of_another_partition(
    redshift: RedshiftStandIn, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, partition: str
) -> None:
    role = ROLE.replace("arn:aws:", f"arn:{partition}:")
    monkeypatch.setattr(redshift, "role", role)
    replaced = replace(warehouse, connection=redshift.connection(iam_role=role))
    with replaced.open() as target:
        target.probe()


def test_doctor_says_that_redshift_cannot_read_another_object_store(
    redshift: RedshiftStandIn, warehouse: Warehouse
) -> None:
    url = f"s3://{warehouse.lake.bucket}/{warehouse.lake.prefix}"
    lake = LakeSettings(url=url, endpoint=warehouse.lake.endpoint)

    def findings(**changes: Any) -> str:
        connection = redshift.connection(**changes)
        found = check_target("w", connection, warehouse.lake.open(), lake, utc_now, "")
        return "\n".join(f"{check.finding} {check.hint}" for check in found)

    said = f"Redshift can only read S3 on AWS, not the lake's {warehouse.lake.endpoint}"
    assert said not in findings()
    # whether COPY fails, or nothing came so far
    for changes in ({"iam_role": ROLE.replace("123", "999")}, {"password": Secret("wrong")}):
        assert findings(**changes).count(said) == 1
    LOGINS.forget()
    redshift.forget()
