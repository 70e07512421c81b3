"""Check the pipelines of a configuration, and index their tables."""

from msgspec import structs

from floodmark.config.models import Config, DuckdbConnection, MysqlConnection, TableSettings
from floodmark.config.reconcile import check_reconcile
from floodmark.errors import ConfigError, UsageError
from floodmark.model.table import TableName, split_name, valid_scope


def tables_of(settings: Config) -> dict[TableName, tuple[str, TableSettings]]:
    """Check names and references, and index the tables by scoped name."""
    for name in settings.connections:
        if not valid_scope(name):
            raise ConfigError(
                f"connections: {name!r} is not a valid name",
                hint="use letters, digits, '_' and '-'",
            )
    tables: dict[TableName, tuple[str, TableSettings]] = {}
    for name, pipeline in settings.pipelines.items():
        for key, is_source in (("source", True), ("target", False)):
            connection = getattr(pipeline, key)
            if connection not in settings.connections:
                raise ConfigError(
                    f"pipelines.{name}.{key}: no connection named {connection!r}",
                    hint="known connections: " + (", ".join(settings.connections) or "none"),
                )
            if isinstance(settings.connections[connection], MysqlConnection) != is_source:
                kind = "a mysql connection" if is_source else "a warehouse"
                raise ConfigError(f"pipelines.{name}.{key}: {connection!r} is not {kind}")
        check_reconcile(f"pipelines.{name}", pipeline.reconcile)
        for text, table_settings in pipeline.tables.items():
            table = _table_name(pipeline.source, text, f"pipelines.{name}.tables")
            if table in tables:
                raise ConfigError(
                    f"{table} is in both pipelines {tables[table][0]!r} and {name!r}",
                    hint="keep it in one: both would move the same watermark",
                )
            _refuse_repeated_columns(table, table_settings)
            _check_distribution(table, table_settings)
            check_reconcile(str(table), table_settings.reconcile)
            if table_settings.grant and isinstance(
                settings.connections[pipeline.target], DuckdbConnection
            ):
                raise ConfigError(
                    f"{table}: DuckDB has no users, so 'grant' has no effect",
                    hint="remove 'grant'",
                )
            policy = table_settings.schema_changes or pipeline.schema_changes
            tables[table] = (name, structs.replace(table_settings, schema_changes=policy))
    return tables


def _refuse_repeated_columns(table: TableName, settings: TableSettings) -> None:
    """Raise ConfigError for a column listed twice; MySQL column names are case-insensitive."""
    lists = {
        "cursor": settings.cursor_columns or (),
        "sortkey": settings.sort_columns,
        "exclude": settings.exclude,
        "hash": settings.hash,
        "booleans": settings.booleans,
    }
    for key, columns in lists.items():
        if len({column.lower() for column in columns}) < len(columns):
            raise ConfigError(
                f"{table}: '{key}' lists a column twice", hint="list each column once"
            )


def _check_distribution(table: TableName, settings: TableSettings) -> None:
    """Raise ConfigError if 'diststyle' and 'distkey' contradict each other."""
    if settings.diststyle == "key" and settings.distkey is None:
        raise ConfigError(f"{table}: 'diststyle: key' needs a column", hint="set 'distkey'")
    if settings.distkey is not None and settings.diststyle not in (None, "key"):
        raise ConfigError(
            f"{table}: 'diststyle: {settings.diststyle}' and 'distkey' cannot be combined",
            hint="remove one of them; 'distkey' implies 'diststyle: key'",
        )


def _table_name(source: str, text: str, path: str) -> TableName:
    try:
        scope, schema, table = split_name(text)
    except UsageError as error:
        raise ConfigError(f"{path}: {error.message}", hint="write it as schema.table") from error
    if scope not in (None, source):
        raise ConfigError(f"{path}: {text!r} is not a table of {source!r}")
    return TableName(source, schema, table)
