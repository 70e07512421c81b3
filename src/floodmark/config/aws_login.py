"""Credentials from AWS: stored in Secrets Manager, or temporary by IAM."""

import json
import re
import time
from collections.abc import Callable
from threading import Lock
from typing import Any, NamedTuple, TypeVar

from msgspec import structs

from floodmark.config.aws import call_aws
from floodmark.config.models import (
    Connection,
    DuckdbConnection,
    IamSettings,
    MysqlConnection,
    RedshiftConnection,
    SecretSettings,
)
from floodmark.config.secret import Secret
from floodmark.errors import ConfigError, FloodmarkError
from floodmark.model.timestamps import utc_now

AnyConnection = TypeVar("AnyConnection", bound=Connection)

KEPT_SECONDS = 600.0  # how long a login is cached
_VALID_SECONDS = 3600  # the maximum of AWS: workers may connect much later

# NAME.ACCOUNT_OR_ID.REGION.redshift[-serverless].SUFFIX_OF_THE_PARTITION
_ENDPOINT = re.compile(r"([\w-]+)\.\w+\.([\w-]+)\.redshift(-serverless)?\.[\w.]+", re.ASCII)


class Login(NamedTuple):
    """User and password, and for how many seconds they are valid; None for unlimited."""

    user: str
    password: Secret
    seconds: float | None = None


class AwsLogins:
    """A cache of logins, so that AWS is not called for every table."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._known: dict[Connection, tuple[Login, float]] = {}

    def forget(self) -> None:
        """Clear the cache."""
        with self._lock:
            self._known.clear()

    def forget_rejected(self, password: Secret | None) -> None:
        """Forget a password that a server rejected: it may have expired or changed."""
        with self._lock:
            known = self._known.items()
            self._known = {key: kept for key, kept in known if kept[0].password != password}

    def of(self, connection: Connection, fetch: Callable[[], Login]) -> Login:
        """Return the cached login of a connection, or fetch it."""
        with self._lock:
            login, until = self._known.get(connection, (None, 0.0))
            if login is None or self._clock() >= until:
                login = fetch()
                # Leave enough time for workers that connect later.
                seconds = KEPT_SECONDS if login.seconds is None else login.seconds / 2
                self._known[connection] = login, self._clock() + min(KEPT_SECONDS, seconds)
            return login


AWS_LOGINS = AwsLogins()


def with_login(connection: AnyConnection, logins: AwsLogins = AWS_LOGINS) -> AnyConnection:
    """Fill in user and password from AWS; return any other connection unchanged."""
    if isinstance(connection, DuckdbConnection) or connection.password is not None:
        return connection
    if connection.secret is not None:
        secret = connection.secret
        settings = SecretSettings(name=secret) if isinstance(secret, str) else secret
        user = connection.user
        login = logins.of(connection, lambda: _stored(settings, user))
    elif isinstance(connection, RedshiftConnection) and connection.iam is not None:
        redshift, iam = connection, connection.iam
        login = logins.of(connection, lambda: _temporary(redshift, iam))
    else:
        return connection
    return structs.replace(connection, user=login.user, password=login.password)


def with_current_login(
    reached: RedshiftConnection, configured: RedshiftConnection
) -> RedshiftConnection:
    """Return `reached`, the local end of `configured`, with a login that is valid now."""
    login = with_login(configured)
    return structs.replace(reached, user=login.user, password=login.password)


def check_login(path: str, connection: Connection) -> None:
    """Raise ConfigError unless a connection has exactly one way to log in."""
    if isinstance(connection, DuckdbConnection):
        return
    iam = connection.iam if isinstance(connection, RedshiftConnection) else None
    given = {"password": connection.password, "secret": connection.secret, "iam": iam}
    names = [f"'{name}'" for name, value in given.items() if value is not None]
    if len(names) > 1:
        raise ConfigError(
            f"{path}: {' and '.join(names)} cannot be combined", hint="remove one of them"
        )
    if not connection.user and connection.secret is None and iam is None:
        raise ConfigError(f"{path}: 'user' is missing")
    primary = connection.primary if isinstance(connection, MysqlConnection) else None
    if primary and primary.password and not (primary.user or connection.user):
        raise ConfigError(f"{path}.primary: 'user' is missing")
    if isinstance(connection, RedshiftConnection) and iam is not None:
        cluster, workgroup, _ = _place(connection, iam)
        if iam.cluster and iam.workgroup:
            raise ConfigError(
                f"{path}.iam: 'cluster' and 'workgroup' cannot be combined",
                hint="remove one of them",
            )
        if not (cluster or workgroup):
            raise ConfigError(
                f"{path}.iam: {connection.host} is not the endpoint of a cluster or workgroup",
                hint="set 'cluster' or 'workgroup', and 'region'",
            )
        if workgroup and connection.user:
            raise ConfigError(
                f"{path}: the AWS identity determines the user of a Serverless workgroup",
                hint="remove 'user' from the connection",
            )


def _place(connection: RedshiftConnection, iam: IamSettings) -> tuple[str, str, str | None]:
    """Return cluster or workgroup, and region; take missing ones from the endpoint."""
    found = _ENDPOINT.fullmatch(connection.host.lower().rstrip("."))
    name, region, serverless = found.groups() if found else ("", None, None)
    workgroup = iam.workgroup or ("" if iam.cluster or not serverless else name)
    cluster = "" if workgroup else iam.cluster or name
    return cluster, workgroup, iam.region or region


def _temporary(connection: RedshiftConnection, iam: IamSettings) -> Login:
    cluster, workgroup, region = _place(connection, iam)
    parameters: dict[str, Any] = {}
    if workgroup:
        action, what = "redshift-serverless:GetCredentials", f"workgroup {workgroup}"
        parameters = {"workgroupName": workgroup, "dbName": connection.database}
        parameters["durationSeconds"] = _VALID_SECONDS
    else:
        action, what = "redshift:GetClusterCredentialsWithIAM", f"cluster {cluster}"
        parameters = {"ClusterIdentifier": cluster, "DbName": connection.database}
        parameters["DurationSeconds"] = _VALID_SECONDS
        if connection.user:
            action = "redshift:GetClusterCredentials"
            parameters |= {"DbUser": connection.user, "AutoCreate": False}
    answer = call_aws(action, what, parameters, region=region, profile=iam.profile)
    found = {name[0].lower() + name[1:]: value for name, value in answer.items()}
    left = (found["expiration"] - utc_now()).total_seconds()
    return Login(found["dbUser"], Secret(found["dbPassword"]), left)


def _stored(secret: SecretSettings, user: str) -> Login:
    region = secret.region
    if secret.name.startswith("arn:") and len(parts := secret.name.split(":")) > 4:
        region = region or parts[3]
    action, what = "secretsmanager:GetSecretValue", f"secret {secret.name}"
    parameters = {"SecretId": secret.name}
    answer = call_aws(action, what, parameters, region=region, profile=secret.profile)
    return _parsed(answer.get("SecretString"), what, user)


def _parsed(text: str | None, what: str, user: str) -> Login:
    """Parse the value of a secret; never show it in a message."""
    try:
        found = json.loads(text or "")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        found = {"password": text}
    name, password = found.get("username") or user, found.get("password")
    if not (isinstance(password, str) and password and isinstance(name, str) and name):
        raise FloodmarkError(
            f"{what} has no user and password",
            hint="it must be JSON with 'username' and 'password', or the password alone, with"
            " 'user' in the connection",
        )
    if user and name != user:
        raise FloodmarkError(
            f"{what} is not for user {user!r}", hint="remove 'user' from the connection"
        )
    return Login(name, Secret(password))
