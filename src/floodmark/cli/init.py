"""`floodmark init`: write a configuration from answers and from the source's schema."""

import os
import re
import sys
from collections import Counter
from typing import Any

import click
from msgspec import Struct, structs

from floodmark.cli.app import print_result, shared_options
from floodmark.cli.init_tls import choose_tls, protection
from floodmark.cli.log import Log
from floodmark.config.loading import FILE_NAME
from floodmark.config.models import MysqlConnection
from floodmark.config.secret import Secret
from floodmark.config.template import Draft, render
from floodmark.config.tls import is_local
from floodmark.errors import ConfigError, FloodmarkError, UsageError
from floodmark.model.formatting import counted
from floodmark.model.notice import Notice
from floodmark.model.proposal import Proposal
from floodmark.model.table import valid_scope
from floodmark.subprocesses import LOOPBACK

TARGETS = ("duckdb", "postgres", "redshift")
_PORTS = {"postgres": 5432, "redshift": 5439}
_TARGET_PASSWORD = "WAREHOUSE_PASSWORD"  # noqa: S105 - its name
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Answers:
    """Answers from options and the environment; prompts for the rest on a terminal."""

    def __init__(self, given: dict[str, Any], *, asking: bool) -> None:
        self._given = given
        self._earlier: dict[str, Any] = {}
        self.asking = asking

    def take(self, name: str, question: str, default: Any = None, kind: Any = None) -> Any:
        """Return an answer; UsageError if it is missing and there is no terminal to ask on."""
        if (given := self._given.get(name)) is None and self.asking:
            default = self._earlier.get(name, default)
            given = self._given[name] = click.prompt(question, default=default, type=kind, err=True)
        if given is not None:
            return given
        if default is None:
            raise _missing(name)
        return default

    def given(self, name: str) -> Any:
        """Return the value of an option, or None; never prompt."""
        return self._given.get(name)

    def ask_again(self, *names: str) -> None:
        """Prompt for these again, with the earlier answers as defaults."""
        for name in names:
            self._earlier[name] = self._given.pop(name, None)


class Discovered(Struct, frozen=True, kw_only=True):
    """The source that was reached, and its tables."""

    source: MysqlConnection
    proposals: tuple[Proposal, ...]


@click.command()
@click.option(
    "--lake", envvar="FLOODMARK_LAKE", help="Folder or s3://bucket/prefix.  [default: ./lake]"
)
@click.option("--scope", help="Name of the source.  [default: PROD]")
@click.option("--host", envvar="MYSQL_HOST", help="MySQL host.  [default: 127.0.0.1]")
@click.option(
    "--port",
    envvar="MYSQL_PORT",
    type=click.IntRange(1, 65535),
    help="MySQL port.  [default: 3306]",
)
@click.option("--user", envvar="MYSQL_USER", help="MySQL user.")
@click.option(
    "--password-variable",
    default="MYSQL_PASSWORD",
    show_default=True,
    metavar="NAME",
    help="Environment variable with the MySQL password.",
)
@click.option(
    "--tls",
    type=click.Choice(["verified", "encrypted", "off"]),
    help="TLS to a remote MySQL.  [default: verified]",
)
@click.option("--tls-ca", metavar="FILE", help="CA certificates to trust instead of the system's.")
@click.option(
    "--schema", "schemas", multiple=True, help="Only tables of this schema; may be repeated."
)
@click.option("--target", type=click.Choice(TARGETS), help="Warehouse type.  [default: duckdb]")
@click.option("--target-host", envvar="WAREHOUSE_HOST", help="Host of PostgreSQL or Redshift.")
@click.option("--target-port", envvar="WAREHOUSE_PORT", type=click.IntRange(1, 65535))
@click.option("--target-database", envvar="WAREHOUSE_DATABASE")
@click.option("--target-user", envvar="WAREHOUSE_USER")
@click.option("--target-schema", envvar="WAREHOUSE_SCHEMA", help="[default: public]")
@click.option(
    "--iam-role", help="IAM role that Redshift reads the lake with: an ARN, or 'default'."
)
@click.option("--pipeline", help="Name of the pipeline.  [default: main]")
@click.option("--yes", is_flag=True, help="Use the defaults; do not prompt.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@shared_options
def init(
    config_path: str | None,
    password_variable: str,
    schemas: tuple[str, ...],
    *,
    yes: bool,
    force: bool,
    as_json: bool,
    log: Log,
    **given: Any,
) -> None:
    """Write a commented configuration; tables, keys and cursors are read from the source.

    The file contains no passwords, only the names of their environment variables.
    """
    path = config_path or os.environ.get("FLOODMARK_CONFIG") or FILE_NAME
    if os.path.exists(path) and not force:
        raise UsageError(f"{path} already exists", hint="add --force to overwrite it")
    if not _VARIABLE.fullmatch(password_variable):
        raise UsageError(f"{password_variable!r} is not a valid name for an environment variable")
    answers = Answers(given, asking=sys.stdin.isatty() and not yes)
    scope = answers.take(
        "scope", "Name of the source, which becomes the scope of its tables", "PROD"
    )
    if not valid_scope(scope):
        raise UsageError(
            f"scope {scope!r} is not a valid name", hint="use letters, digits, '_' and '-'"
        )
    found = _inspect_source(log, answers, scope, schemas, password_variable)
    lake = answers.take("lake", "Lake: a folder, or s3://bucket/prefix", "./lake")
    target = _target(answers)
    draft = Draft(
        lake=lake,
        scope=scope,
        source=_keys(found, password_variable),
        target=target,
        tls=found.source.tls,
        target_tls=not is_local(str(target.get("host", LOOPBACK))),
        pipeline=answers.take("pipeline", "Name of the pipeline", "main"),
        proposals=found.proposals,
    )
    _write(path, render(draft), replace=force)
    value = {
        "path": os.path.abspath(path),
        "variables": _variables(draft),
        "tables": found.proposals,
    }
    print_result(_summary(path, draft, found), value, as_json=as_json)


def _missing(name: str) -> UsageError:
    parameters = click.get_current_context().command.params
    option = next(parameter for parameter in parameters if parameter.name == name)
    variable = f", or set {option.envvar} in the environment" if option.envvar else ""
    return UsageError(f"{option.opts[0]} is missing", hint=f"pass it{variable}")


def _inspect_source(
    log: Log, answers: Answers, scope: str, schemas: tuple[str, ...], variable: str
) -> Discovered:
    """List the tables of the source; if it cannot be reached, prompt again or fail."""
    password = os.environ.get(variable)
    while True:
        if password is None and answers.asking:
            source = _source(answers, None)
            password = click.prompt(
                f"Password (not written to the file; later read from ${variable})",
                default="",
                hide_input=True,
                show_default=False,
                err=True,
            )
        source = _source(answers, password)
        try:
            source = structs.replace(source, tls=choose_tls(log, answers, source))
            return Discovered(source=source, proposals=_discover(answers, source, scope, schemas))
        except FloodmarkError as error:
            if isinstance(error, UsageError) and not isinstance(error, ConfigError):
                raise  # a wrong --schema, not an unreachable source
            if not answers.asking:
                raise  # a configuration without tables would be useless
            log.write(Notice("warning", error.message, hint=error.hint))
            click.confirm("Try other answers?", default=True, err=True, abort=True)
        answers.ask_again("host", "port", "user")
        password = None


def _source(answers: Answers, password: str | None) -> MysqlConnection:
    return MysqlConnection(
        host=answers.take("host", "MySQL host", "127.0.0.1"),
        port=answers.take("port", "MySQL port", 3306),
        user=answers.take("user", "MySQL user"),
        password=Secret(password) if password else None,
    )


def _discover(
    answers: Answers, source: MysqlConnection, scope: str, schemas: tuple[str, ...]
) -> tuple[Proposal, ...]:
    from floodmark.api.discovery import open_catalog

    with open_catalog(source) as catalog:
        tables = catalog.tables(scope)
        if not tables:
            raise UsageError(
                f"MySQL user {source.user!r} cannot see any tables",
                hint="GRANT SELECT ON the schemas to read TO this user",
            )
        known = list(dict.fromkeys(table.schema for table in tables))
        if not schemas and len(known) > 1:
            text = answers.take("schema", "Schemas, separated by commas", ", ".join(known))
            schemas = tuple(part.strip() for part in text.split(","))
        for schema in schemas:
            if schema not in known:
                raise UsageError(
                    f"schema {schema!r} has no tables that {source.user!r} can see",
                    hint="known schemas: " + (", ".join(known) or "none"),
                )
        chosen = {t: kind for t, kind in tables.items() if not schemas or t.schema in schemas}
        return catalog.propose(chosen)


def _keys(found: Discovered, variable: str) -> dict[str, str | int]:
    source = found.source
    keys: dict[str, str | int] = {
        "type": "mysql",
        "host": source.host,
        "port": source.port,
        "user": source.user,
    }
    if source.password is None:  # this user needs none
        return keys
    return keys | {"password": f"${{{variable}}}"}


def _target(answers: Answers) -> dict[str, str | int]:
    kind = answers.take("target", "Warehouse", "duckdb", click.Choice(TARGETS))
    if kind == "duckdb":
        return {"type": kind, "path": "./warehouse.duckdb"}
    target: dict[str, str | int] = {
        "type": kind,
        "host": answers.take("target_host", "Warehouse host"),
        "port": answers.take("target_port", "Warehouse port", _PORTS[kind]),
        "database": answers.take("target_database", "Warehouse database"),
        "user": answers.take("target_user", "Warehouse user"),
        "password": f"${{{_TARGET_PASSWORD}}}",
        "schema": answers.take("target_schema", "Schema in the warehouse", "public"),
    }
    if kind == "redshift":
        target["iam_role"] = answers.take(
            "iam_role", "IAM role that Redshift reads the lake with", "default"
        )
    return target


def _write(path: str, text: str, *, replace: bool) -> None:
    try:
        with open(path, "w" if replace else "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error


def _variables(draft: Draft) -> list[str]:
    """Return the environment variables that the file refers to."""
    values = [*draft.source.values(), *draft.target.values()]
    return [value[2:-1] for value in values if isinstance(value, str) and value[:2] == "${"]


def _summary(path: str, draft: Draft, found: Discovered) -> str:
    included = sum(proposal.included for proposal in found.proposals)
    left = Counter(proposal.left_out for proposal in found.proposals if proposal.left_out)
    lines = [f"{path}: {counted(included, 'table')} in pipeline {draft.pipeline}"]
    if left:
        why = ", ".join(f"{number:,} {reason}" for reason, number in sorted(left.items()))
        lines.append(f"  {left.total():,} commented out, each with the reason: {why}")
    if draft.tls is not None:
        lines.append(f"  MySQL: {protection(draft.tls)}")
    lines.append("next:")
    lines += [f"  export {name}=…" for name in _variables(draft) if name not in os.environ]
    lines += ["  floodmark doctor", f"  floodmark sync -p {draft.pipeline} --dry-run"]
    return "\n".join(lines)
