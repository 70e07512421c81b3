"""Privileges to grant on a table when it is created."""

from collections.abc import Mapping, Sequence
from typing import Literal, cast

from msgspec import Struct, structs

from floodmark.config.models import (
    GrantSettings,
    PostgresConnection,
    RedshiftConnection,
    TableSettings,
)
from floodmark.errors import UnknownGrantee
from floodmark.warehouse.sql_dialect import quote

GRANTEE_HINT = (
    "create the missing users, groups or roles in the target, or change 'grant' in the"
    " configuration; user names are case-sensitive"
)

Kind = Literal["user", "group", "role", "public"]


class Grantee(Struct, frozen=True):
    """A user, group or role that gets a privilege."""

    kind: Kind
    name: str


def grants_of(
    connection: PostgresConnection | RedshiftConnection, settings: TableSettings
) -> GrantSettings:
    """Return the grants of a table, by default those of its connection."""
    return connection.grant if settings.grant is None else settings.grant


def grantee(text: str) -> Grantee:
    """Read `analyst`, `group bi`, `role reporting` or `public`."""
    word, _, name = text.strip().partition(" ")
    if name and word.lower() in ("user", "group", "role"):
        return Grantee(cast("Kind", word.lower()), name.strip())
    return Grantee("public" if text.lower() == "public" else "user", text)


def grantees(grants: GrantSettings) -> list[Grantee]:
    """Return all grantees, of any privilege."""
    return [grantee(text) for texts in structs.astuple(grants) for text in texts]


def granting(place: str, grants: GrantSettings, keywords: Mapping[str, str]) -> list[str]:
    """Return the GRANT statements for a table; `keywords` precede names of groups and roles."""
    return [
        f"GRANT {privilege.upper()} ON TABLE {place} TO "
        + ", ".join(_spelled(grantee(text), keywords) for text in texts)
        for privilege, texts in structs.asdict(grants).items()
        if texts
    ]


def refuse_unknown(target: str, table: str, names: Sequence[str]) -> None:
    """Raise UnknownGrantee if there are names that the target does not have."""
    if names:
        raise UnknownGrantee(
            f"{table} is to be granted to {', '.join(names)}, unknown to {target}",
            hint=GRANTEE_HINT,
        )


def _spelled(who: Grantee, keywords: Mapping[str, str]) -> str:
    if who.kind == "public":
        return "PUBLIC"
    return f"{keywords.get(who.kind, '')} {quote(who.name)}".strip()
