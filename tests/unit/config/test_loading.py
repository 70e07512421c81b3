"""Loading a configuration: what works, what is refused and how, and what is never shown."""

import pickle
import re
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import floodmark
from floodmark.config.loading import LoadedConfig, load_config
from floodmark.config.models import (
    DuckdbConnection,
    GrantSettings,
    MysqlConnection,
    PostgresConnection,
    RedshiftConnection,
    RetrySettings,
)
from floodmark.config.secret import Secret
from floodmark.errors import ConfigError, ExitCode
from floodmark.model.reconcile_policy import Policy
from floodmark.model.table import TableName

# Section 7 of the specification, to the letter.
SPECIFIED = """\
lake: ./lake                        # or s3://bucket/prefix, or {url: s3://bucket/prefix, endpoint: "http://127.0.0.1:8333", region: us-east-1}
connections:
  US_PROD_RO_SSH: {type: mysql, host: 127.0.0.1, port: 3306, user: "${MYSQL_USER}", password: "${MYSQL_PASSWORD}"}
  warehouse: {type: duckdb, path: ./warehouse.duckdb}
  # {type: postgres, host, port, database, user, password, schema}   {type: redshift, host, port, database, user, password, schema, iam_role}
pipelines:
  us_prod_kuaisong_tracking_pipeline:
    source: US_PROD_RO_SSH
    target: warehouse
    tables:
      kuaisong.uni_prealert_order: {cursor: id}
      settlement.settlement_normal_delivery_detail: {cursor: [update_at, id]}
      settlement.partner_info: {}     # cursor and primary key found from the schema, and shown by `doctor`
"""  # noqa: E501
KEYS = {"MYSQL_USER": "reader", "MYSQL_PASSWORD": "hunter2"}

Load = Callable[..., LoadedConfig]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Load a configuration from its text."""

    def loaded(text: str, environment: Mapping[str, str] | None = None) -> LoadedConfig:
        path = tmp_path / "floodmark.yml"
        path.write_text(text, encoding="utf-8")
        return load_config(str(path), environment or {})

    return loaded


@pytest.fixture
def refused(load: Load) -> Callable[..., ConfigError]:
    """Load a configuration that must be refused; returns the error."""

    def error_of(text: str, environment: Mapping[str, str] | None = None) -> ConfigError:
        with pytest.raises(ConfigError) as caught:
            load(text, environment)
        assert caught.value.exit_code is ExitCode.USAGE
        assert "\n" not in caught.value.message
        return caught.value

    return error_of


Refused = Callable[..., ConfigError]


# What must work


def test_specified_configuration_works_as_it_stands(load: Load, tmp_path: Path) -> None:
    config = load(SPECIFIED, KEYS)
    source = config.connection("US_PROD_RO_SSH")
    assert isinstance(source, MysqlConnection)
    assert (source.host, source.port, source.user) == ("127.0.0.1", 3306, "reader")
    assert source.password is not None
    assert source.password.reveal() == "hunter2"
    warehouse = config.connection("warehouse")
    assert isinstance(warehouse, DuckdbConnection)
    assert Path(warehouse.path) == tmp_path / "warehouse.duckdb"
    assert not config.lake.is_s3
    assert Path(config.lake.url) == tmp_path / "lake"
    assert {str(name): found[1].cursor_columns for name, found in config.tables.items()} == {
        "US_PROD_RO_SSH:kuaisong.uni_prealert_order": ("id",),
        "US_PROD_RO_SSH:settlement.settlement_normal_delivery_detail": ("update_at", "id"),
        "US_PROD_RO_SSH:settlement.partner_info": None,
    }
    table = TableName("US_PROD_RO_SSH", "settlement", "partner_info")
    assert config.pipeline_of(table).target == "warehouse"
    assert config.settings.default_start == datetime(2025, 1, 1, tzinfo=UTC)
    assert config.settings.retries == RetrySettings(tries=3, first_seconds=0.1, most_seconds=5.0)


def test_unset_variables_matter_only_to_who_needs_the_connection(load: Load) -> None:
    config = load(SPECIFIED, {"MYSQL_USER": "reader"})
    assert len(config.tables) == 3
    assert isinstance(config.connection("warehouse"), DuckdbConnection)
    with pytest.raises(ConfigError, match=r"US_PROD_RO_SSH: .* MYSQL_PASSWORD is not set"):
        config.connection("US_PROD_RO_SSH")
    with pytest.raises(ConfigError, match="MYSQL_"):
        load(SPECIFIED).connection("US_PROD_RO_SSH")


def test_unset_variable_may_be_a_number(load: Load) -> None:
    text = "lake: ./l\nconnections: {M: {type: mysql, user: u, port: '${PORT}'}}"
    assert "connections.M" in load(text).unset
    connection = load(text, {"PORT": "3307"}).connection("M")
    assert isinstance(connection, MysqlConnection)
    assert connection.port == 3307


def test_every_kind_of_connection(load: Load) -> None:
    config = load(
        "lake: ./l\nconnections:\n"
        "  p: {type: postgres, host: h, port: 1, database: d, user: u, password: p, schema: s}\n"
        "  r: {type: redshift, host: h, port: 2, database: d, user: u, password: p, schema: s,"
        " iam_role: 'arn:aws:iam::1:role/x'}\n"
        "  least: {type: postgres, database: d, user: u}\n"
    )
    assert config.connection("p") == PostgresConnection(
        host="h", port=1, database="d", user="u", password=Secret("p"), schema="s"
    )
    redshift = config.connection("r")
    assert isinstance(redshift, RedshiftConnection)
    assert redshift.iam_role == "arn:aws:iam::1:role/x"
    assert config.connection("least") == PostgresConnection(database="d", user="u")


LAKES = {
    "s3://bucket": ("s3://bucket", None, None),
    "s3://bucket/a/b": ("s3://bucket/a/b", None, None),
    "s3://bucket/a/b/": ("s3://bucket/a/b/", None, None),
    "{url: s3://bucket/p}": ("s3://bucket/p", None, None),
    '{url: s3://bucket/p, endpoint: "http://127.0.0.1:8333", region: eu-west-1}': (
        "s3://bucket/p",
        "http://127.0.0.1:8333",
        "eu-west-1",
    ),
    "{url: s3://b.c-d_1, endpoint: 'https://[::1]:9000/'}": (
        "s3://b.c-d_1",
        "https://[::1]:9000/",
        None,
    ),
}


@pytest.mark.parametrize("text", LAKES)
def test_lakes_in_s3(load: Load, text: str) -> None:
    lake = load(f"lake: {text}").lake
    assert lake.is_s3
    assert (lake.url, lake.endpoint, lake.region) == LAKES[text]


REDSHIFT = "connections: {w: {type: redshift, host: h, database: d, user: u, iam_role: default}}"


@pytest.mark.parametrize(
    ("text", "codec"),
    [
        ("lake: s3://bucket", None),
        (f"lake: s3://bucket\n{REDSHIFT}", "snappy"),
        (f"lake: {{url: s3://bucket, codec: zstd}}\n{REDSHIFT}", "zstd"),
        ("lake: {url: ./lake, codec: gzip}", "gzip"),
    ],
)
def test_files_for_redshift_are_compressed_with_snappy(
    load: Load, text: str, codec: str | None
) -> None:
    assert load(text).lake.codec == codec


@pytest.mark.parametrize("text", ["lake", "./lake", "{url: lake}", "sub/../lake", "'lake/'"])
def test_relative_lake_is_beside_the_configuration(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.chdir("/")
    lake = load(f"lake: {text}").lake
    assert not lake.is_s3
    assert Path(lake.url).is_absolute()
    assert Path(lake.url).resolve() == tmp_path / "lake"


def test_other_folders_as_lakes(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert load("lake: /srv/lake").lake.url == "/srv/lake"
    assert load("lake: ~/lake").lake.url == "/home/somebody/lake"
    assert load("lake: ${BASE}/lake", {"BASE": "/srv"}).lake.url == "/srv/lake"


BAD_LAKES = [
    ("", "lake"),
    ("''", "lake: '' is not a folder"),
    ("5", "lake: .*: 5"),
    ("[a]", "lake: .*a list"),
    ("s3://", "not a valid bucket name"),
    ("s3:///prefix", "not a valid bucket name"),
    ("'s3://b b'", "not a valid bucket name"),
    ("s3://key:hunter2@bucket/p", "not a valid bucket name"),
    ("s3://bucket/a//b", "'a//b' is not a valid prefix"),
    ("s3://bucket/../b", "'../b' is not a valid prefix"),
    ("s3:/bucket", "'s3:' is not supported"),
    ("S3://bucket", "'S3:' is not supported"),
    ("https://user:hunter2@host/x", "'https:' is not supported"),
    ("{}", "lake: 'url' is missing"),
    ("{url: ./lake, region: x}", "are not allowed for a folder"),
    ("{url: s3://bucket, endpoint: '127.0.0.1:8333'}", "lake.endpoint"),
    ("{url: s3://bucket, endpoint: 'ftp://x'}", "lake.endpoint"),
    ("{url: s3://bucket, endpoint: 'http://'}", "lake.endpoint"),
    ("{url: s3://bucket, endpoint: 'http://u:hunter2@x'}", "lake.endpoint"),
]


@pytest.mark.parametrize(("text", "message"), BAD_LAKES)
def test_bad_lakes_are_refused(refused: Refused, text: str, message: str) -> None:
    error = refused(f"lake: {text}")
    assert re.search(message, error.message)
    assert "hunter2" not in f"{error.message}{error.hint}"


HOSTED = {
    "host": "{type: %s, host: %s, database: d, user: u}",
    "tunnel.host": "{type: %s, host: h, database: d, user: u, tunnel: {host: %s, user: u, key: k}}",
    "primary.host": "{type: %s, user: u, primary: {host: %s}}",
}
MYSQL_HOSTED = {**HOSTED, "host": "{type: %s, host: %s, user: u}"} | {
    "tunnel.host": "{type: %s, user: u, tunnel: {host: %s, user: u, key: k}}"
}
KINDS = [
    *(("mysql", key, text) for key, text in MYSQL_HOSTED.items()),
    ("postgres", "host", HOSTED["host"]),
    *(("redshift", key, HOSTED[key]) for key in ("host", "tunnel.host")),
]
NO_HOSTS = [
    "mysql://root:hunter2@h/db",
    "jdbc:mysql://h/?password=hunter2",
    "//root:hunter2@h",
    "root:hunter2@h",
    "root:hunter,2@h",
    "hunter2..example.com",
    ".hunter2",
    f"hunter2{'x' * 60}.example.com",
    f"hunter2{'ü' * 60}.example.com",
]
HOSTS = ["db.example.com.", "127.0.0.1", "'[::1]'", "'fe80::1%eth0'", "my_db", "bücher.example"]


@pytest.mark.parametrize(("kind", "key", "text"), KINDS)
@pytest.mark.parametrize("host", NO_HOSTS)
def test_hosts_that_are_no_host_names_are_refused_and_not_shown(
    refused: Refused, kind: str, key: str, text: str, host: str
) -> None:
    error = refused("lake: ./l\nconnections: {A: %s}" % (text % (kind, f"'{host}'")))
    assert error.message.startswith(f"connections.A.{key}: ")
    assert error.hint
    assert "hunter" not in f"{error.message}{error.hint}"


@pytest.mark.parametrize(("kind", "key", "text"), KINDS)
def test_host_names_and_addresses_are_accepted(load: Load, kind: str, key: str, text: str) -> None:
    sockets = ["/var/run/a@b", f"/{'x' * 70}", "'@abstract'", f"'{'a' * 40},{'b' * 40}'"]
    for host in [*HOSTS, *(sockets if kind == "postgres" else ["'a,b'"])]:
        load("lake: ./l\nconnections: {A: %s}" % (text % (kind, host)))


# Unknown keys and wrong values

CONNECTION = "{type: mysql, user: u}"
UNKNOWN = [
    ("lake: ./l\nconection: {}", "configuration", "conection", "connections"),
    ("lake: ./l\nDefault_Start: 2025-01-01", "configuration", "Default_Start", "default_start"),
    ("lake: {url: s3://bucket, endpint: x}", "lake", "endpint", "endpoint"),
    ("lake: ./l\nconnections: {A: {type: mysql, usr: u}}", "connections.A", "usr", "user"),
    ("lake: ./l\nconnections: {A: {type: mysq, user: u}}", "connections.A", "mysq", "mysql"),
    ("lake: ./l\nconnections: {A: {type: MySQL, user: u}}", "connections.A", "MySQL", "mysql"),
    ("lake: ./l\nconnections: {A: {type: duckdb, pth: u}}", "connections.A", "pth", "path"),
    ("lake: ./l\npipelines: {p: {sorce: A}}", "pipelines.p", "sorce", "source"),
    (
        "lake: ./l\npipelines: {p: {source: A, target: B, tables: {a.b: {cursr: id}}}}",
        "pipelines.p.tables.a.b",
        "cursr",
        "cursor",
    ),
    ("lake: ./l\nretries: {tris: 3}", "retries", "tris", "tries"),
]


@pytest.mark.parametrize(("text", "path", "key", "nearest"), UNKNOWN)
def test_unknown_keys_name_the_nearest(
    refused: Refused, text: str, path: str, key: str, nearest: str
) -> None:
    error = refused(text)
    assert error.message.startswith(f"{path}: unknown ")
    assert repr(key) in error.message
    assert error.hint == f"did you mean {nearest!r}?"


def test_key_that_is_like_none_lists_all(refused: Refused) -> None:
    error = refused("lake: ./l\nretries: {zzz: 3}")
    assert error.hint == "one of first_seconds, most_seconds, tries"


WRONG = [
    ("lake: ./l\nlease_seconds: soon", "lease_seconds", "'soon'"),
    ("lake: ./l\nlease_seconds: -1", "lease_seconds", "-1"),
    ("lake: ./l\nlease_seconds: .inf", "lease_seconds", "inf"),
    ("lake: ./l\nlease_seconds: .nan", "lease_seconds", "nan"),
    ("lake: ./l\nlease_seconds:", "lease_seconds", "None"),
    ("lake: ./l\nlease_seconds: true", "lease_seconds", "True"),
    ("lake: ./l\nretries: {tries: 0}", "retries.tries", "0"),
    ("lake: ./l\nretries: {tries: 2.5}", "retries.tries", "2.5"),
    ("lake: ./l\nretries: 3", "retries", "a single value"),
    ("lake: ./l\ndefault_start: soon", "default_start", "'soon'"),
    ("lake: ./l\ndefault_start:", "default_start", "None"),
    ("lake: ./l\ndefault_start: '2025-13-45'", "default_start", "'2025-13-45'"),
    ("lake: ./l\ndefault_start: 0001-01-01T00:00:00+14:00", "default_start", "0001-01-01"),
    ("lake: ./l\npresets: {x: y}", "presets.x", "'y'"),
    ("lake: ./l\nconnections: {A: {type: mysql, user: 5}}", "connections.A.user", "5"),
    ("lake: ./l\nconnections: {A: {type: mysql, user: no}}", "connections.A.user", "False"),
    ("lake: ./l\nconnections: {A: {type: mysql, user: u, port: x}}", "connections.A.port", "'x'"),
    ("lake: ./l\nconnections: {A: {type: mysql, user: u, port: 0}}", "connections.A.port", "0"),
    (
        "lake: ./l\nconnections: {A: {type: mysql, user: u, port: 65536}}",
        "connections.A.port",
        "65536",
    ),
    ("lake: ./l\nconnections: {A: {type: [x], user: u}}", "connections.A", "['x']"),
    ("lake: ./l\nconnections: {A: {type: mysql}}", "connections.A", "'user' is missing"),
    *(
        (f"lake: ./l\nconnections: {{A: {{type: redshift, database: d, {keys}}}}}", where, said)
        for keys, where, said in (
            ("host: h, user: u, password: p, iam: {}", "connections.A", "'password' and 'iam'"),
            ("host: h, secret: s, iam: {}", "connections.A", "'secret' and 'iam' cannot"),
            ("host: h", "connections.A", "'user' is missing"),
            ("host: h, iam: {}", "connections.A.iam", "h is not the endpoint of a cluster"),
            ("host: h, iam: {cluster: a, workgroup: b}", "connections.A.iam", "cannot be combined"),
            ("host: h, user: u, iam: {workgroup: b}", "connections.A", "AWS identity determines"),
            ("host: h, secret: {nam: x}", "connections.A.secret", "unknown key 'nam'"),
        )
    ),
    (
        "lake: ./l\nconnections: {A: {type: mysql, secret: s, primary: {host: p, password: x}}}",
        "connections.A.primary",
        "'user' is missing",
    ),
    ("lake: ./l\nconnections: {A: }", "connections.A", "'type' is missing"),
    ("lake: ./l\nconnections: [A]", "connections", "a list"),
    ("lake: ./l\nconnections: {5: {}}", "connections", "5 is not a valid name"),
    ("lake: ./l\nconnections: {no: {}}", "connections", "False is not a valid name"),
    ("lake: ./l\nconnections: {~: {}}", "connections", "None is not a valid name"),
    ("lake: ./l\nconnections: {a b: {type: duckdb, path: x}}", "connections", "'a b'"),
    ("lake: ./l\npipelines: {p: {source: A, target: B, tables: [a.b]}}", "tables", "a list"),
    ("lake: ./l\npipelines: {p: {source: A, target: B, tables: {1.10: }}}", "tables", "1.1 is not"),
    ("lake: ./l\npipelines: {p: {source: A, target: B}}", "pipelines.p", "'tables' is missing"),
    ("{}", "configuration", "'lake' is missing"),
]


@pytest.mark.parametrize(("text", "path", "value"), WRONG)
def test_wrong_values_are_named_with_their_path(
    refused: Refused, text: str, path: str, value: str
) -> None:
    error = refused(text)
    assert path in error.message
    assert value in error.message


CURSORS = {
    "{}": None,
    "": None,
    "{cursor: }": None,
    "{cursor: id}": ("id",),
    "{cursor: [id]}": ("id",),
    "{cursor: [update_at, id]}": ("update_at", "id"),
    "{cursor: none}": (),
}
PIPELINE = (
    "lake: ./l\nconnections: {A: {type: mysql, user: u}, B: {type: duckdb, path: p}}\n"
    "pipelines: {p: {source: A, target: B, tables: {%s}}}"
)


@pytest.mark.parametrize("text", CURSORS)
def test_cursors(load: Load, text: str) -> None:
    ((_, table),) = load(PIPELINE % f"a.b: {text}").tables.values()
    assert table.cursor_columns == CURSORS[text]


@pytest.mark.parametrize("text", ["null", "~", "'null'", "Null", ""])
def test_zero_dates_become_null_in_quotes_or_not(load: Load, text: str) -> None:
    settings = load(f"lake: ./l\nextraction: {{zero_dates: {text}}}").settings
    assert settings.extraction.zero_dates == "null"


@pytest.mark.parametrize("names", ["[no]", "[id, null]", "[on]", "[1]", "[2025-01-01]"])
@pytest.mark.parametrize("setting", ["cursor", "exclude", "hash", "booleans", "sortkey"])
def test_names_that_yaml_reads_otherwise(refused: Refused, setting: str, names: str) -> None:
    error = refused(PIPELINE % f"a.b: {{{setting}: {names}}}")
    assert f"a.b.{setting}" in error.message
    assert error.hint == "put it in quotes"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("diststyle: key", "'diststyle: key' needs a column"),
        ("diststyle: all, distkey: id", "'diststyle: all' and 'distkey' cannot be combined"),
        ("diststyle: auto, distkey: id", "'diststyle: auto' and 'distkey' cannot be combined"),
    ],
)
def test_distributions_that_contradict(refused: Refused, settings: str, message: str) -> None:
    error = refused(PIPELINE % f"a.b: {{{settings}}}")
    assert message in error.message
    assert "distkey" in str(error.hint)


@pytest.mark.follows_hint("'distkey' implies 'diststyle: key'")
def test_distributions_that_fit(load: Load) -> None:
    for text in ("distkey: id", "diststyle: key, distkey: id", "diststyle: all"):
        assert load(PIPELINE % f"a.b: {{{text}}}").tables


def test_nothing_is_granted_in_duckdb(load: Load, refused: Refused) -> None:
    settings = "a.b: {grant: {select: [analyst, group bi]}}"
    assert "has no users" in refused(PIPELINE % settings).message
    assert "did you mean 'select'?" in str(refused(PIPELINE % "a.b: {grant: {slect: []}}").hint)
    postgres = PIPELINE.replace("{type: duckdb, path: p}", "{type: postgres, database: d, user: u}")
    ((_, table),) = load(postgres % settings).tables.values()
    assert table.grant == GrantSettings(select=("analyst", "group bi"))


def test_encryption_is_on_or_off_but_never_undefined(load: Load, refused: Refused) -> None:
    text = "lake: ./l\nconnections: {A: {type: mysql, user: u, tls: %s}}"
    assert "connections.A.tls" in refused(text % "").message
    (connection,) = load(text % "{}").settings.connections.values()
    assert isinstance(connection, MysqlConnection)
    assert connection.tls


@pytest.mark.parametrize("text", ["''", "[]", "['']", "5", "[5]", "{a: b}", "[[a]]"])
def test_bad_cursors(refused: Refused, text: str) -> None:
    assert "pipelines.p.tables.a.b.cursor" in refused(PIPELINE % f"a.b: {{cursor: {text}}}").message


# What YAML makes of things


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "null", "- lake", "lake", "5"])
def test_files_without_keys(refused: Refused, text: str) -> None:
    assert "floodmark.yml is not a configuration" in refused(text).message


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("lake: [", 2),
        ("lake: ./l\nlease_seconds: {a: b}}", 2),
        ("lake: ./l\n\tretries: {}", 2),
        ("lake: ./l\ndefault_start: 2025-13-45", 2),
        ("lake: ./l\nlease_seconds: !!int x", 2),
        ("lake: ./l\nlease_seconds: !!bool x", 2),
        ("lake: ./l\nlease_seconds: !!timestamp x", 2),
        ("lake: !!python/object/apply:os.system ['true']", 1),
        ("lake: *nothing", 1),
        ("lake: ./l\n---\nlake: ./m", 2),
        ("lake: ./l\n? [a, b]\n: c", 2),
        ("lake: ./l\nlease_seconds: 1\nlake: ./m", 3),
        ("lake: ./l\nretries:\n  tries: 1\n  'tries': 2", 4),
        ("lake: ./l\nlease_seconds: " + "9" * 5000, 2),
    ],
)
def test_bad_yaml_names_the_line(refused: Refused, text: str, line: int) -> None:
    assert f"floodmark.yml line {line}: " in refused(text).message


def test_repeated_keys_are_refused(refused: Refused) -> None:
    error = refused(f"connections:\n  A: {CONNECTION}\n  A: {CONNECTION}\nlake: ./l")
    assert "floodmark.yml line 3: duplicate key 'A'" in error.message
    assert "duplicate key 'a.b'" in refused(PIPELINE % "a.b: {}, a.b: {}").message


@pytest.mark.parametrize("text", ["lake: &x {url: *x}", "lake: " + "[" * 5000 + "]" * 5000])
def test_endless_nesting_is_refused(refused: Refused, text: str) -> None:
    assert "nested" in refused(text).message


def test_control_characters_are_refused(refused: Refused) -> None:
    assert "not valid YAML" in refused("lake: a\x07b").message


def test_anchors_and_merges_work(load: Load) -> None:
    config = load(
        "lake: ./l\nconnections:\n"
        "  A: &a {type: mysql, user: u, host: a}\n"
        "  B: &b {<<: *a, host: b}\n"
        "  C: {<<: *b, host: c, port: 1}\n"
    )
    connections = [config.connection(name) for name in "ABC"]
    assert [getattr(connection, "host", "") for connection in connections] == ["a", "b", "c"]


def test_byte_order_mark_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "c.yml").write_bytes(b"\xef\xbb\xbflake: ./l\r\nlease_seconds: 5\r\n")
    assert load_config(str(tmp_path / "c.yml"), {}).settings.lease_seconds == 5


def test_file_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "c.yml").write_bytes(b"lake: \xff\xfe")
    with pytest.raises(ConfigError, match="cannot read"):
        load_config(str(tmp_path / "c.yml"), {})
    with pytest.raises(ConfigError, match="cannot read"):
        load_config(str(tmp_path), {})


MOMENTS = {
    "2025-08-04": datetime(2025, 8, 4, tzinfo=UTC),
    "'2025-08-04'": datetime(2025, 8, 4, tzinfo=UTC),
    "2025-08-04 20:00:01": datetime(2025, 8, 4, 20, 0, 1, tzinfo=UTC),
    "2025-08-04T20:00:01.123456": datetime(2025, 8, 4, 20, 0, 1, 123456, tzinfo=UTC),
    "'2025-08-04 20:00:01'": datetime(2025, 8, 4, 20, 0, 1, tzinfo=UTC),
    "2025-08-04T20:00:01Z": datetime(2025, 8, 4, 20, 0, 1, tzinfo=UTC),
    "2025-08-04T20:00:01+08:00": datetime(2025, 8, 4, 12, 0, 1, tzinfo=UTC),
    "'2025-08-04T20:00:01+08:00'": datetime(2025, 8, 4, 12, 0, 1, tzinfo=UTC),
}


@pytest.mark.parametrize("text", MOMENTS)
def test_moments(load: Load, text: str) -> None:
    config = load(f"lake: ./l\ndefault_start: {text}\npresets: {{x: {text}}}").settings
    for moment in (config.default_start, config.presets["x"]):
        assert moment == MOMENTS[text]
        assert isinstance(moment, datetime)
        assert moment.tzinfo is UTC


def test_all_is_a_start(load: Load) -> None:
    assert load("lake: ./l\ndefault_start: all").settings.default_start == "all"
    given = {"FLOODMARK_DEFAULT_START": "all"}
    assert load("lake: ./l\ndefault_start: 2025-01-02", given).settings.default_start == "all"
    for text in ("every", "0001-01-01T00:00:00+14:00"):
        with pytest.raises(ConfigError) as caught:
            load(f"lake: ./l\ndefault_start: {text}")
        assert "'all' for every row" in str(caught.value.hint)


# The environment


def test_variables_are_filled_in_everywhere(load: Load) -> None:
    text = (
        "lake: s3://${BUCKET}/${PREFIX}-x\nlease_seconds: '${LEASE}'\n"
        "default_start: ${START}\nconnections: {A: {type: mysql, user: 'a${U}b${U}'}}"
    )
    environment = {"BUCKET": "bucket", "PREFIX": "p", "LEASE": "7.5", "START": "2025-02-03"}
    config = load(text, {**environment, "U": "${U}"})
    assert config.lake.url == "s3://bucket/p-x"
    assert config.settings.lease_seconds == 7.5
    assert config.settings.default_start == datetime(2025, 2, 3, tzinfo=UTC)
    source = config.connection("A")
    assert isinstance(source, MysqlConnection)
    assert source.user == "a${U}b${U}"  # what a variable holds is not filled in again


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("lake: ${NO}/x", "lake"),
        ("lake: {url: '${NO}'}", "lake.url"),
        ("lake: ./l\nlease_seconds: ${NO}", "lease_seconds"),
        ("lake: ./l\nconnections: {A: '${NO}'}", "connections.A"),
        ("lake: ./l\nconnections: {A: {type: '${NO}'}}", "connections.A.type"),
        ("lake: ./l\npipelines: {p: {source: '${NO}'}}", "pipelines.p.source"),
    ],
)
def test_unset_variables_are_named(refused: Refused, text: str, path: str) -> None:
    assert refused(text).message == f"{path}: environment variable NO is not set"


@pytest.mark.parametrize(
    "setting",
    [
        "mirror: {url: 's3://other/state', access_key_id: '${NO}', secret_access_key: '${NO}'}",
        "hooks: {on_failure: [{webhook: '${NO}'}]}",
        "hooks: {on_failure: [{webhook: 'https://hooks.example/${NO}', format: slack}]}",
        "hooks: {on_success: [{command: [notify, '--token', '${NO}'], tries: '${NO}'}]}",
    ],
)
def test_secrets_of_mirror_and_hooks_matter_only_to_runs(tmp_path: Path, setting: str) -> None:
    """`status` and `serve` need none of them; a run must not do without."""
    mirror_of(tmp_path, f"lake: ./lake\n{setting}")
    with floodmark.open_project(tmp_path / "floodmark.yml", environment={}) as project:
        assert (project.status(), list(project.runs())) == ((), [])
        for act in (project.sync, project.verify, project.drill, project.validate):
            with pytest.raises(ConfigError, match="environment variable NO is not set"):
                act()
        found = [check for check in project.doctor() if "NO is not set" in check.finding]
        assert found[0].state == "failed"


def test_environment_goes_before_the_file(load: Load, tmp_path: Path) -> None:
    text = "lake: ./l\nlease_seconds: 5\nretries: {tries: 5}\ndefault_start: 2025-01-02"
    config = load(
        text,
        {
            "FLOODMARK_LAKE": "./other #1",
            "FLOODMARK_LEASE_SECONDS": "6",
            "FLOODMARK_RETRIES": "{tries: 6}",
            "FLOODMARK_DEFAULT_START": "2025-02-03 04:05:06",
            "FLOODMARK_PRESETS": "spring: 2025-03-21",
        },
    )
    assert Path(config.lake.url) == tmp_path / "other #1"
    assert config.settings.lease_seconds == 6
    assert config.settings.retries == RetrySettings(tries=6)
    assert config.settings.default_start == datetime(2025, 2, 3, 4, 5, 6, tzinfo=UTC)
    assert config.settings.presets == {"spring": datetime(2025, 3, 21, tzinfo=UTC)}
    lake = load(text, {"FLOODMARK_LAKE": "{url: s3://bucket/x, region: r}"}).lake
    assert (lake.url, lake.region) == ("s3://bucket/x", "r")


def test_empty_variable_counts_as_none(load: Load, tmp_path: Path) -> None:
    assert Path(load("lake: ./l", {"FLOODMARK_LAKE": ""}).lake.url) == tmp_path / "l"


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("FLOODMARK_RETRIES", "{tries: ", "FLOODMARK_RETRIES line 2: not valid YAML"),
        (
            "FLOODMARK_RETRIES",
            "{tries: 1, tries: 2}",
            "FLOODMARK_RETRIES line 1: duplicate key 'tries'",
        ),
        ("FLOODMARK_RETRIES", "6", "retries: expected keys and values"),
        ("FLOODMARK_LEASE_SECONDS", "soon", "lease_seconds: .*'soon'"),
    ],
)
def test_bad_variables_are_refused(load: Load, variable: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load("lake: ./l", {variable: value})


def test_file_is_found_by_flag_environment_and_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"floodmark\.yml does not exist") as caught:
        load_config(None, {})
    assert "--config" in (caught.value.hint or "")
    for name, seconds in (("floodmark.yml", 1), ("env.yml", 2), ("flag.yml", 3)):
        (tmp_path / name).write_text(f"lake: ./l\nlease_seconds: {seconds}")
    environment = {"FLOODMARK_CONFIG": "env.yml"}
    assert load_config(None, {}).settings.lease_seconds == 1
    assert load_config(None, environment).settings.lease_seconds == 2
    assert load_config("flag.yml", environment).settings.lease_seconds == 3
    assert load_config(None, {"FLOODMARK_CONFIG": ""}).path == str(tmp_path / "floodmark.yml")
    with pytest.raises(ConfigError, match=r"gone.yml does not exist"):
        load_config("gone.yml", environment)


# Names that fit together


def pipelines(*lines: str) -> str:
    return "\n".join(
        [
            "lake: ./l",
            "connections:",
            "  A: {type: mysql, user: u}",
            "  A2: {type: mysql, user: u}",
            "  W: {type: duckdb, path: p}",
            "pipelines:",
            *(f"  {line}" for line in lines),
        ]
    )


def test_one_table_in_two_pipelines_is_refused(refused: Refused) -> None:
    for name in ("x.y", "A:x.y"):
        error = refused(
            pipelines(
                "p: {source: A, target: W, tables: {x.y: {}}}",
                f"q: {{source: A, target: W, tables: {{'{name}': {{}}}}}}",
            )
        )
        assert error.message == "A:x.y is in both pipelines 'p' and 'q'"


def test_one_name_from_two_sources_is_two_tables(load: Load) -> None:
    config = load(
        pipelines(
            "p: {source: A, target: W, tables: {x.y: {}}}",
            "q: {source: A2, target: W, tables: {x.y: {}}}",
        )
    )
    assert [str(table) for table in config.tables] == ["A:x.y", "A2:x.y"]
    with pytest.raises(ConfigError, match=r"A:x\.y and A2:x\.y would both be loaded into W\.y"):
        config.target_of(TableName("A", "x", "y"))


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("{type: duckdb, path: ./w.duckdb}", "{type: duckdb, path: w.duckdb}", True),
        ("{type: duckdb, path: w.duckdb}", "{type: duckdb, path: v.duckdb}", False),
        (
            "{type: postgres, host: 127.0.0.1, database: d, user: u}",
            "{type: postgres, host: LOCALHOST, port: 5432, database: d, user: v}",
            True,
        ),
        (
            "{type: postgres, host: h, database: d, user: u}",
            "{type: postgres, host: h, database: d, user: u, schema: s}",
            False,
        ),
        (
            "{type: redshift, host: h, database: d, user: u, schema: S}",
            "{type: redshift, host: h, database: d, user: u, schema: s}",
            True,
        ),
        ("{type: duckdb, path: '${NOT_SET}'}", "{type: duckdb, path: '1'}", False),
    ],
)
def test_two_connections_to_one_place_are_one_target(
    load: Load, first: str, second: str, same: bool
) -> None:
    mysql = "{type: mysql, user: u}"
    config = load(
        f"lake: ./l\nconnections: {{A: {mysql}, A2: {mysql}, W: {first}, V: {second}}}\n"
        "pipelines:\n"
        "  p: {source: A, target: W, tables: {x.y: {}}}\n"
        "  q: {source: A2, target: V, tables: {x.y: {}}}\n"
    )
    if not same:
        assert config.target_of(TableName("A", "x", "y")) == ("W", "y")
        return
    with pytest.raises(ConfigError, match=r"into V\.y \(W and V are the same\)"):
        config.target_of(TableName("A", "x", "y"))


@pytest.mark.parametrize(
    "table", ["x.floodmark_staging", "x.Floodmark_Ledger", "x.y: {target_name: floodmark_newest} #"]
)
def test_names_of_ours_are_no_targets(load: Load, table: str) -> None:
    config = load(
        f"lake: ./l\nconnections:\n  A: {{type: mysql, user: u}}\n  W: {{type: duckdb, path: w}}\n"
        f"pipelines:\n  p:\n    source: A\n    target: W\n    tables:\n      {table}: {{}}\n"
    )
    (name,) = config.tables
    with pytest.raises(ConfigError, match="names that start with floodmark_") as caught:
        config.target_of(name)
    assert "target_name" in str(caught.value.hint)


def test_target_names_keep_tables_apart(load: Load) -> None:
    config = load(
        pipelines(
            "p: {source: A, target: W, tables: {x.y: {}}}",
            "q: {source: A2, target: W, tables: {x.y: {target_name: y2}}}",
        )
    )
    assert config.target_of(TableName("A", "x", "y")) == ("W", "y")
    assert config.target_of(TableName("A2", "x", "y")) == ("W", "y2")


INVALID = [
    ("p: {source: B, target: W, tables: {}}", "p.source: no connection named 'B'"),
    ("p: {source: A, target: B, tables: {}}", "p.target: no connection named 'B'"),
    ("p: {source: W, target: W, tables: {}}", "p.source: 'W' is not a mysql connection"),
    ("p: {source: A, target: A2, tables: {}}", "p.target: 'A2' is not a warehouse"),
    ("p: {source: A, target: W, tables: {y: {}}}", "p.tables: 'y' is not a table name"),
    ("p: {source: A, target: W, tables: {'A2:x.y': {}}}", "'A2:x.y' is not a table of 'A'"),
    ("p: {source: A, target: W, tables: {x.y: {}, 'A:x.y': {}}}", "A:x.y is in both pipelines 'p'"),
]


@pytest.mark.parametrize(("line", "message"), INVALID)
def test_names_must_fit_together(refused: Refused, line: str, message: str) -> None:
    assert message in refused(pipelines(line)).message


# Secrets


@pytest.mark.parametrize(
    "password", ["pa${ss", "$5%", "${", "${}", "$HOME", "a${not-a-name}b", "%s{0}{x!r}", "}{", "$$"]
)
def test_passwords_are_taken_as_they_are(load: Load, password: str) -> None:
    text = f"lake: ./l\nconnections: {{A: {{type: mysql, user: u, password: '{password}'}}}}"
    specified = SPECIFIED.replace("US_PROD_RO_SSH", "A")
    for config in (load(text), load(specified, {**KEYS, "MYSQL_PASSWORD": password})):
        source = config.connection("A")
        assert isinstance(source, MysqlConnection)
        assert source.password == Secret(password)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(password=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
@example(password="${MYSQL_USER}")
@example(password="'\"\\{}%s${X}")
def test_no_text_of_a_configuration_depends_on_the_password(load: Load, password: str) -> None:
    config = load(SPECIFIED, {**KEYS, "MYSQL_PASSWORD": password})
    source = config.connection("US_PROD_RO_SSH")
    assert isinstance(source, MysqlConnection)
    assert source.password is not None
    assert source.password.reveal() == password
    other = load(SPECIFIED, KEYS)
    assert f"{config} {config!r} {source} {source!r}" == (
        f"{other} {other!r} {other.connection('US_PROD_RO_SSH')} "
        f"{other.connection('US_PROD_RO_SSH')!r}"
    )


def test_secret_resists() -> None:
    secret = Secret("hunter2")
    assert f"{secret} {secret!r} {secret!s} {secret!a}" == "*** Secret(***) *** Secret(***)"
    with pytest.raises(TypeError) as caught:
        msgspec.json.encode({"password": secret})
    assert "hunter2" not in str(caught.value)
    with pytest.raises(TypeError) as caught:
        f"{secret:>20}"
    assert "hunter2" not in str(caught.value)
    assert not hasattr(secret, "__dict__")
    assert secret == Secret("hunter2") != Secret("other")
    assert len({secret, Secret("hunter2")}) == 1
    assert pickle.loads(pickle.dumps(secret)) == secret  # tasks on other machines need it


LEAKS = [
    "connections: {A: mysql://root:hunter2@host/db}",
    "connections: ['mysql://root:hunter2@host/db']",
    "connections: [{type: mysql, user: u, password: hunter2}]",
    "connections: 'password: hunter2'",
    "connections: {A: [{password: hunter2}]}",
    "connections: {A: {type: mysql, user:root, password:hunter2}}",
    "connections: {A: {type: mysql, password:hunter2, user: u}}",
    "connections: {A: {type: mysql, user: u, password: [hunter2]}}",
    "connections: {A: {type: mysql, user: u, password: {hunter2: 1}}}",
    "connections: {A: {type: mysql, user: u, pasword: hunter2}}",
    "connections: {A: {type: mysql, user: {password: hunter2}}}",
    "connections: {A: {type: mysql, user: [hunter2]}}",
    "connections: {A: {type: mysql, user: u, password: !hunter2}}",
    "connections: {A: {type: mysql, user: u, password: *hunter2}}",
    "connections: {A: {type: mysql, user: u, password: %hunter2}}",
    "connections: {A: {type: mysql, user: u, password: @hunter2}}",
    "connections: {A: {type: mysql, user: u, password: 'hunter2}}",
    "connections: {A: {type: mysql, user: u, password: hunter2, password: hunter2}}",
    "connections: {A: {type: mysql, user: u, password: !!int hunter2}}",
    "connections: {A: {type: mysql, user: u, password: hunter2, port: x}}",
    "connections: {A: {type: nosql, user: u, password: hunter2}}",
    "connections: {A: {type: mysql, password: hunter2}}",
]


@pytest.mark.parametrize("text", LEAKS)
def test_mistakes_show_no_password(refused: Refused, text: str) -> None:
    error = refused(f"lake: ./l\n{text}")
    shown = "".join(traceback.format_exception(error))
    assert "hunter2" not in f"{error!r}{error.hint}{shown}"


@pytest.mark.parametrize("password", ["12345", "1.5", "no", "2025-01-01", "0x1f"])
def test_password_that_yaml_reads_otherwise(refused: Refused, password: str) -> None:
    error = refused(
        f"lake: ./l\nconnections: {{A: {{type: mysql, user: u, password: {password}}}}}"
    )
    assert error.message == "connections.A.password: expected text"
    assert error.hint == "put it in quotes"


# Whatever is written


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(
            ["lake", "connections", "pipelines", "default_start", "presets", "retries"]
        ),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats()
            | st.dates()
            | st.sampled_from(["mysql", "./l", "s3://b", "${X}", "a.b", ""]),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(
                        ["type", "url", "source", "target", "tables", "A", "a.b", 1, None]
                    ),
                    inner,
                    max_size=4,
                )
            ),
            max_leaves=12,
        ),
    )
)
def test_anything_is_loaded_or_refused(load: Load, content: dict[str, object]) -> None:
    try:
        config = load(yaml.safe_dump(content))
    except ConfigError:
        return
    assert config.lake.url


# Reconciliation


def reconciling(pipeline: str, table: str) -> str:
    return (
        "lake: ./lake\nconnections:\n  A: {type: mysql, user: u}\n"
        "  w: {type: duckdb, path: ./w.duckdb}\npipelines:\n  p:\n    source: A\n    target: w\n"
        f"    reconcile: {pipeline}\n    tables:\n      s.t: {{reconcile: {table}}}\n"
    )


def test_each_reconcile_key_of_a_table_overrides_that_of_its_pipeline(load: Load) -> None:
    def policy(pipeline: str, table: str) -> Policy:
        return load(reconciling(pipeline, table)).reconcile_policy(TableName("A", "s", "t"))

    assert policy("{}", "{}") == Policy()
    assert Policy().deletes == "report"
    whole = "{every: 1d, deletes: soft, deleted_at: gone, max_deletes: 5%, budget: {seconds: 9}}"
    day = timedelta(days=1)
    expected = Policy(every=day, deletes="soft", deleted_at="gone", max_deletes="5%", seconds=9)
    assert policy(whole, "{}") == policy("{}", whole) == expected
    table = "{every: never, deletes: hard, max_deletes: 0, budget: {segments: 3}}"
    assert policy(whole, table) == Policy(
        deletes="hard", deleted_at="gone", max_deletes=0, segments=3
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("{every: soon}", "reconcile.every: 'soon' is not a duration"),
        ("{every: 0d}", "reconcile.every: '0d' is not a duration"),
        ("{deletes: all}", "reconcile.deletes: Invalid enum value 'all'"),
        ("{max_deletes: -1}", "reconcile.max_deletes"),
        ("{max_deletes: 101%}", "reconcile.max_deletes"),
        ("{max_deletes: many}", "reconcile.max_deletes"),
        ("{budget: 5m}", "reconcile.budget"),
        ("{budget: {rows: 5}}", "reconcile.budget: unknown key 'rows'"),
        ("{delete: hard}", "reconcile: unknown key 'delete'"),
        ("hard", "reconcile: expected keys and values"),
    ],
)
def test_reconcile_settings_are_strict(refused: Refused, settings: str, said: str) -> None:
    assert said in refused(reconciling(settings, "{}")).message
    assert said in refused(reconciling("{}", settings)).message


def mirror_of(tmp_path: Path, text: str) -> LoadedConfig:
    file = tmp_path / "floodmark.yml"
    file.write_text(text)
    return load_config(str(file), {"KEY": "k", "SECRET": "s"})


def test_a_mirror_has_its_own_place_and_credentials(tmp_path: Path) -> None:
    found = mirror_of(tmp_path, "lake: ./lake\nmirror: ./second").mirror
    assert found is not None
    assert found.url == str(tmp_path / "second")
    text = "mirror: {url: 's3://other/state', region: eu-west-1, access_key_id: '${KEY}'"
    found = mirror_of(tmp_path, f"lake: ./lake\n{text}, secret_access_key: '${{SECRET}}'}}").mirror
    assert found is not None
    assert (found.region, str(found.access_key_id)) == ("eu-west-1", "***")
    assert mirror_of(tmp_path, "lake: ./lake").mirror is None


@pytest.mark.parametrize(
    ("lake", "mirror", "problem"),
    [
        ('"./a\\nb"', '"./a\\nb"', r"a\\nb', or around it"),
        ("./lake", "./lake", "is in the lake"),
        ("./lake", "./lake/second", "is in the lake"),
        ("./lake/first", "./lake", "or around it"),
        ("./lake", "./other/../lake/", "is in the lake"),
        ("./lake", "./link", "is in the lake"),
        ("s3://bucket/a", "s3://bucket/a/", "is in the lake"),
        ("s3://bucket/a", "s3://bucket/a/b", "is in the lake"),
        ("s3://bucket/a", "s3://bucket", "or around it"),
        ("./lake", "s3://x", "not a valid bucket name"),
        ("./lake", "ftp://bucket/a", "is not supported"),
        ("./lake", "{url: ./second, region: eu-west-1}", "'region' is not allowed for a folder"),
        ("./lake", "{url: 's3://bucket/a', access_key_id: k}", "belong together"),
        ("./lake", "{url: 's3://bucket/a', session_token: k}", "needs 'access_key_id'"),
        (
            "./lake",
            "{url: 's3://bucket/a', profile: p, access_key_id: k, secret_access_key: s}",
            "either 'profile' or 'access_key_id'",
        ),
        ("./lake", "{url: 's3://bucket/a', endpoint: 'http://me:hidden@host'}", "mirror.endpoint"),
    ],
)
def test_a_mirror_that_cannot_be_one_is_refused(
    tmp_path: Path, lake: str, mirror: str, problem: str
) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    with pytest.raises(ConfigError, match=problem) as caught:
        mirror_of(tmp_path, f"lake: {lake}\nmirror: {mirror}")
    assert "hidden" not in caught.value.message


@pytest.mark.parametrize("mirror", ["s3://bucket/ab", "s3://other/a", "./second"])
def test_a_mirror_beside_the_lake_is_allowed(tmp_path: Path, mirror: str) -> None:
    assert mirror_of(tmp_path, f"lake: s3://bucket/a\nmirror: {mirror}").mirror is not None
