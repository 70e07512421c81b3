"""The configuration file, and every model in it."""

from datetime import UTC, datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from floodmark.config.connection_settings import (
    GrantSettings,
    HeartbeatSettings,
    IamSettings,
    PrimarySettings,
    SecretSettings,
    Tls,
    TlsSettings,
    TunnelSettings,
)
from floodmark.config.connections import (
    Connection,
    DuckdbConnection,
    MysqlConnection,
    PostgresConnection,
    RedshiftConnection,
    Tunnelled,
    too_long,
)
from floodmark.config.hook_settings import Hooks
from floodmark.config.lake_settings import (
    LakeSettings,
    MirrorSettings,
    RetrySettings,
)
from floodmark.config.run_settings import (
    ExtractionSettings,
    LoadingSettings,
    SparkSettings,
)
from floodmark.config.table_settings import (
    BudgetSettings,
    Pipeline,
    ReconcileSettings,
    TableSettings,
)
from floodmark.config.value_types import Seconds

__all__ = [
    "DEFAULT_START",
    "BudgetSettings",
    "Config",
    "Connection",
    "DuckdbConnection",
    "ExtractionSettings",
    "GrantSettings",
    "HeartbeatSettings",
    "IamSettings",
    "LakeSettings",
    "LoadingSettings",
    "MirrorSettings",
    "MysqlConnection",
    "Pipeline",
    "PostgresConnection",
    "PrimarySettings",
    "ReconcileSettings",
    "RedshiftConnection",
    "RetrySettings",
    "SecretSettings",
    "SparkSettings",
    "TableSettings",
    "Tls",
    "TlsSettings",
    "TunnelSettings",
    "Tunnelled",
    "too_long",
]

DEFAULT_START = datetime(2025, 1, 1, tzinfo=UTC)


class Config(Struct, frozen=True, kw_only=True):
    """A configuration file."""

    lake: LakeSettings | str
    """`s3://bucket/prefix` or a folder; or `{url, endpoint, region}`."""
    mirror: MirrorSettings | str | None = None
    """A second place for the state, to recover from if the lake is lost: `s3://bucket/prefix` or
    a folder; or `{url, endpoint, region, profile}`."""
    connections: dict[str, Connection] = {}
    """Sources and warehouses by name; the name of a source is the scope of its tables."""
    pipelines: dict[str, Pipeline] = {}
    """Which tables to sync from which source to which target."""
    default_start: datetime | Literal["all"] = DEFAULT_START
    """Where a table with a time cursor and no watermark starts. Earlier rows are only counted;
    `all` reads every row."""
    presets: dict[str, datetime] = {}
    """Named dates and times for `watermark set PRESET`."""
    retries: RetrySettings = RetrySettings()
    """See below."""
    spark: SparkSettings = SparkSettings()
    """See below."""
    extraction: ExtractionSettings = ExtractionSettings()
    """See below."""
    loading: LoadingSettings = LoadingSettings()
    """See below."""
    lease_seconds: Seconds = 60.0
    """How long the lease of a run that died on another machine blocks its tables."""
    hooks: Hooks = Hooks()
    """Commands and webhooks to call after runs."""
    keep_runs_days: Annotated[int, Meta(ge=1, le=3650)] = 30
    """Days after which the record of a run is removed."""
