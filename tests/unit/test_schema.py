"""The JSON schema of floodmark.yml: editors accept what the program does, and see misspelt keys."""

import copy
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from floodmark.config.loading import load_config
from floodmark.errors import ConfigError

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
OTHERS = """
lake: {url: s3://bucket/prefix, endpoint: "http://127.0.0.1:8333", codec: zstd}
default_start: 2025-01-01
presets: {cutover: 2025-08-04}
lease_seconds: 30
retries:
extraction: {window_rows: "1000", zero_dates: null, lag_seconds: "${LAG}"}
spark: {allow_insecure: true, options: {spark.executor.cores: "2"}}
connections:
  A: {type: mysql, user: u, port: "${PORT}", heartbeat: {table: a.b}}
  B: {type: redshift, host: h, database: d, user: u, tunnel: {host: h, user: u, key: k}}
pipelines:
  p:
    source: A
    target: B
    tables:
      a.b: {cursor: id, encode: {x: zstd}, exclude: [y]}
      a.c:
"""
# Below these, keys are names that somebody chose.
NAMED = {"connections", "pipelines", "tables", "presets", "options", "encode"}


def examples() -> Iterator[Any]:
    for page in PAGES:
        for block in re.findall(r"^( *)```yaml\n(.*?)^ *```", page.read_text(), re.M | re.S):
            content = plain(yaml.safe_load(dedent(block[1])))
            name = f"{page.relative_to(ROOT)}: {' '.join(content)}"
            yield pytest.param({"lake": "./lake", **content}, id=name)
    yield pytest.param(plain(yaml.safe_load(OTHERS)), id="others")


def plain(value: Any) -> Any:
    """YAML as editors see it, to whom a date is text."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return str(value) if isinstance(value, date) else value


def misspelt(content: Any, *, named: bool = False) -> Iterator[tuple[str, Any]]:
    """The same content with one key misspelt, for each key that is not a chosen name."""
    for key, value in content.items() if isinstance(content, dict) else ():
        rest = {other: one for other, one in content.items() if other != key}
        if not named and key != "type":
            yield key, {**rest, f"{key}x": value}
        for wrong, below in misspelt(value, named=key in NAMED and not named):
            yield wrong, {**rest, key: below}


@pytest.fixture(scope="module")
def schema() -> Draft202012Validator:
    """What `floodmark schema` prints."""
    printed = subprocess.run(
        [sys.executable, "-m", "floodmark", "schema"], check=True, capture_output=True
    )
    found = json.loads(printed.stdout)
    Draft202012Validator.check_schema(found)
    return Draft202012Validator(found)


@pytest.mark.parametrize("content", list(examples()))
def test_what_works_is_valid_and_a_misspelt_key_is_not(
    schema: Draft202012Validator, content: Any, tmp_path: Path
) -> None:
    path = tmp_path / "floodmark.yml"
    environment = dict.fromkeys(re.findall(r"\$\{(\w+)\}", json.dumps(content)), "1")

    def loads(content: Any) -> bool:
        path.write_text(yaml.safe_dump(content))
        try:
            load_config(str(path), environment)
        except ConfigError:
            return False
        return True

    assert [error.message for error in schema.iter_errors(content)] == []
    assert loads(content)
    wrong = list(misspelt(copy.deepcopy(content)))
    assert wrong
    for key, changed in wrong:
        assert not schema.is_valid(changed), key
        assert not loads(changed), key


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("lease_seconds", 0),
        ("retries", {"tries": "many"}),
        ("connections", {"A": {"type": "mysql", "user": "u", "port": 70_000}}),
        ("connections", {"A": {"type": "oracle", "user": "u"}}),
        ("connections", {"A": {"type": "redshift", "user": "u"}}),
        ("extraction", {"zero_dates": "drop"}),
    ],
)
def test_wrong_values_are_seen(schema: Draft202012Validator, key: str, value: Any) -> None:
    assert not schema.is_valid({"lake": "./lake", key: value})
