"""Where in the lake everything about a table's state is kept."""

import re
from collections.abc import Iterable
from datetime import datetime

from floodmark.errors import UsageError
from floodmark.model.log_state import ManifestId
from floodmark.model.table import TableName

PRIMARIES = "watermarks/v2/"
DAILY = "watermarks/backups/daily/"
SESSIONS = "watermarks/backups/sessions/"
LEASES = "watermarks/leases/"
RECOVERIES = "watermarks/recoveries/"
PROBED = "watermarks/conditional_writes.json"
SYSTEM = "watermarks/system.json"
MANIFESTS = "manifests/"
DATA = "incremental/"
QUARANTINE = "quarantine/"
COPIES = "loads/copies/"
_NOT_DATA = ("watermarks/", MANIFESTS, QUARANTINE, "loads/")

_DAILY = re.compile(r"(.+)_(\d{8})\.json")
_MANIFEST = re.compile(r"(\d+)/(\d+)\.json")
_QUARANTINED = re.compile(r"/(\d+)-(\d+)/\d+\.parquet$")


def primary(table: TableName) -> str:
    """The watermark itself."""
    return f"{PRIMARIES}{table.key}.json"


def daily(table: TableName, day: str) -> str:
    """The copy of a day (`YYYYMMDD`)."""
    return f"{DAILY}{table.key}_{day}.json"


def session(table: TableName, session_id: str) -> str:
    """The copy of a session."""
    return f"{SESSIONS}{session_id}/{table.key}.json"


def lease(table: TableName) -> str:
    """The lease of whoever works on the table."""
    return f"{LEASES}{table.key}.json"


def recoveries(table: TableName) -> str:
    """The folder of the table's recoveries."""
    return f"{RECOVERIES}{table.key}/"


def recovery(table: TableName, at: datetime, session_id: str) -> str:
    """The record of one recovery."""
    return f"{recoveries(table)}{at:%Y%m%dT%H%M%S%f}_{session_id}.json"


def manifests(table: TableName) -> str:
    """The folder of the table's log."""
    return f"{MANIFESTS}{table.key}/"


def manifest(table: TableName, head: ManifestId) -> str:
    """One manifest. Keys sort in the order of the log."""
    return f"{manifests(table)}{head.epoch:08d}/{head.sequence:08d}.json"


def folder_of_manifest(key: str) -> str:
    """The folder of the log that a manifest belongs to."""
    return "/".join([*key.split("/", 3)[:3], ""])


def data_files(table: TableName) -> str:
    """The folder of the table's data files."""
    return f"{DATA}{table.key}/"


def quarantine_of(table: TableName) -> str:
    """The folder of the rows that the target could not hold."""
    return f"{QUARANTINE}{table.key}/"


def quarantine(table: TableName, load_epoch: int) -> str:
    """The folder of the rows that the target could not hold in a load epoch."""
    return f"{quarantine_of(table)}{load_epoch:08d}/"


def head_of_quarantine(key: str) -> ManifestId | None:
    """The manifest whose rows a file in quarantine holds; None for what is not one."""
    found = _QUARANTINED.search(key)
    return ManifestId(int(found[1]), int(found[2])) if found else None


def copies(table: TableName, load_epoch: int) -> str:
    """The folder of data files without such rows, while they are loaded."""
    return f"{COPIES}{table.key}/{load_epoch:08d}/"


def older_data_files(spelling: str) -> str:
    """The folder in which an older system kept a table's data files, under some spelling."""
    return f"{DATA}{spelling}/"


def folders_elsewhere(table: TableName, paths: Iterable[str]) -> list[str]:
    """The folders of data files that do not lie in the table's own: an older system's."""
    own = data_files(table)
    return sorted({f"{path.rpartition('/')[0]}/" for path in paths if not path.startswith(own)})


def may_be_data(path: str) -> bool:
    """Whether a manifest may name this as data: also an older system's, but nothing of our own."""
    return path.endswith(".parquet") and not path.startswith(_NOT_DATA)


def may_be_quarantined(path: str) -> bool:
    """Whether a manifest may name this as rows that were set aside."""
    return path.endswith(".parquet") and path.startswith(QUARANTINE)


def table_of_data_file(key: str) -> TableName | None:
    """The table in whose folder a data file lies; None if it is no table's."""
    parts = key.removeprefix(DATA).split("/")
    return table_of_key("/".join(parts[:2])) if len(parts) > 2 else None


def table_of_primary(key: str) -> TableName | None:
    """The table whose watermark this is; None for what an older system left in the folder."""
    return table_of_key(key.removeprefix(PRIMARIES).removesuffix(".json"))


def table_of_key(key: str) -> TableName | None:
    """The table that a part of a key stands for; None for what somebody else put there."""
    try:
        return TableName.from_key(key)
    except UsageError:
        return None


def day_of_daily(key: str, table: TableName) -> str | None:
    """The day of a daily copy; None if it is another table's."""
    found = _DAILY.fullmatch(key.removeprefix(DAILY))
    return found[2] if found and found[1] == table.key else None


def head_of_manifest(key: str, table: TableName) -> ManifestId | None:
    """The place of a manifest; None for what is not one."""
    found = _MANIFEST.fullmatch(key.removeprefix(manifests(table)))
    return ManifestId(int(found[1]), int(found[2])) if found else None
