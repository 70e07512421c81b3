"""Render a commented configuration."""

import json
import re
from itertools import groupby
from textwrap import wrap

import yaml
from msgspec import Struct

from floodmark.config.models import Tls, TlsSettings
from floodmark.model.proposal import Proposal

_WIDTH = 92
_PLAIN = re.compile(r"[A-Za-z./~][A-Za-z0-9_./$~-]*")

_HEAD = """\
# Floodmark configuration. All keys: docs/configuration.md.
# ${NAME} is replaced from the environment: keep secrets out of this file.
# 'floodmark doctor' checks the set-up, 'floodmark sync --dry-run' shows the plan.
"""
_LAKE = """
# Where data files and watermarks are stored: a folder, s3://bucket/prefix,
# or {url: "s3://bucket/prefix", endpoint: "http://127.0.0.1:8333", region: us-east-1}.
"""
_START = """
# Where tables with a time cursor start: 'all' reads every row. With a date, earlier rows are not
# read; 'doctor' and 'watermark list' show how many.
default_start: all
"""
_SOURCE = (
    "  # The source. Its name is the scope of its tables; to rename it, use 'watermark move'.\n"
)
_TUNNEL = """\
    # Through an SSH server; host and port above are then as seen from there:
    # tunnel: {host: bastion.example.com, user: deploy, key: ~/.ssh/id_ed25519}
    # If this is a replica: its primary, to see open transactions; needs GTIDs:
    # primary: {host: primary.example.com}
"""
_ENCRYPTED = "    # Encrypted; the certificate must be valid for this host.\n    tls: {}\n"
_TLS = {
    "identity": _ENCRYPTED,
    "none": """\
    # Encrypted, but any certificate is accepted; {ca: FILE} verifies it.
    tls: {verify: none}
""",
    "off": """\
    # Not encrypted: password and rows can be read on the network.
    tls: off
""",
}
_REST = """\
# Optional settings, with their defaults:
# extraction: {window_rows: 150000, file_mb: 192}
# spark: {master: "local[*,4]", memory: 1g}    # or spark://host:7077
# presets: {cutover: 2025-08-04}        # for 'floodmark watermark set cutover --force'
"""


class Draft(Struct, frozen=True, kw_only=True):
    """The contents of a configuration; `source` and `target` are keys of the connections.

    `tls` and `target_tls` are for remote hosts.
    """

    lake: str
    scope: str
    source: dict[str, str | int]
    target: dict[str, str | int]
    tls: Tls | None = None
    target_tls: bool = False
    pipeline: str
    proposals: tuple[Proposal, ...]


def render(draft: Draft) -> str:
    """Render a configuration, with comments that explain it."""
    return "".join(
        (
            _HEAD,
            _LAKE,
            f"lake: {scalar(draft.lake)}\n",
            _START,
            "\nconnections:\n",
            _SOURCE,
            _connection(draft.scope, draft.source),
            _tls(draft.tls),
            _TUNNEL,
            "\n  # The warehouse: duckdb, postgres or redshift.\n",
            _connection("warehouse", draft.target),
            _ENCRYPTED if draft.target_tls else "",
            f"\npipelines:\n  {scalar(draft.pipeline)}:\n",
            f"    source: {scalar(draft.scope)}\n    target: warehouse\n",
            _tables(draft.proposals),
            _REST,
        )
    )


def scalar(value: str | int) -> str:
    """Quote a value for YAML if needed."""
    text = str(value)
    if isinstance(value, int):
        return text
    plain = _PLAIN.fullmatch(text) and yaml.safe_load(text) == text
    return text if plain else json.dumps(text, ensure_ascii=False)


def _connection(name: str, keys: dict[str, str | int]) -> str:
    lines = "".join(f"    {key}: {scalar(value)}\n" for key, value in keys.items())
    return f"  {scalar(name)}:\n{lines}"


def _tls(tls: Tls | None) -> str:
    if isinstance(tls, TlsSettings) and tls.ca:
        return _ENCRYPTED.replace("{}", f"{{ca: {scalar(tls.ca)}}}")
    return "" if tls is None else _TLS[tls if tls == "off" else tls.verify]


def _tables(proposals: tuple[Proposal, ...]) -> str:
    # Without tables, write an explicit empty mapping.
    head = (
        "    tables:\n" if any(proposal.included for proposal in proposals) else "    tables: {}\n"
    )
    parts = [head]
    for schema, found in groupby(proposals, lambda proposal: proposal.schema):
        tables = list(found)
        parts.append(f"      # ── {schema}: {len(tables):,} {_plural('table', len(tables))}\n\n")
        parts += [f"{_table(table)}\n" for table in tables]
    return "".join(parts)


def _table(proposal: Proposal) -> str:
    size = f"about {proposal.rows:,} {_plural('row', proposal.rows)}; " if proposal.rows else ""
    notes = [f"{size}{proposal.reason}", *(f"note: {one}" for one in proposal.warnings)]
    comments = "".join(
        f"      # {line}\n" for note in notes for line in wrap(note, _WIDTH, subsequent_indent="  ")
    )
    mark = "" if proposal.included else "# "
    return f"{comments}      {mark}{scalar(proposal.table)}: {_settings(proposal)}\n"


def _settings(proposal: Proposal) -> str:
    if proposal.cursor is None:
        return "{}"
    columns = [scalar(column) for column in proposal.cursor]
    cursor = columns[0] if len(columns) == 1 else f"[{', '.join(columns)}]" if columns else "none"
    name = f", target_name: {scalar(proposal.target_name)}" if proposal.target_name else ""
    return f"{{cursor: {cursor}{name}}}"


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"
