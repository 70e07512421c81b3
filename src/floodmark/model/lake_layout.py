"""The layout of the lake: the keys of all objects."""

import re
from collections.abc import Iterable
from datetime import datetime

from floodmark.errors import UsageError
from floodmark.model.log_state import ManifestId
from floodmark.model.run import session_day
from floodmark.model.table import TableName

PRIMARIES = "watermarks/v2/"
DAILY = "watermarks/backups/daily/"
SESSIONS = "watermarks/backups/sessions/"
LEASES = "watermarks/leases/"
RECOVERIES = "watermarks/recoveries/"
RUNS = "watermarks/runs/"
PROBED = "watermarks/conditional_writes.json"
SYSTEM = "watermarks/system.json"
LAKE = "watermarks/lake.json"
MIRRORED = "watermarks/mirror.json"
LAST_DRILL = "watermarks/drill.json"
MIRROR = "mirror.json"  # in the mirror, not in the lake
DRILLS = "drills/"
ALERTS = "watermarks/alerts.json"
MANIFESTS = "manifests/"
COMPACTIONS = "compacted/"
DATA = "incremental/"
QUARANTINE = "quarantine/"
DELETES = "deletes/"
LOADS = "loads/"
COPIES = f"{LOADS}copies/"
UNLOADS = f"{LOADS}unloads/"  # rows that a target writes to be compared; not needed later
_NOT_DATA = ("watermarks/", MANIFESTS, COMPACTIONS, QUARANTINE, DELETES, LOADS, DRILLS)

# Session, sequence, part, attempt and number: what `data_file_key` writes.
_DATA_FILE = re.compile(r"\d{8}_\d{6}_[^/-]+-(\d+)-\d+-\d+-\d+\.parquet")
_UNSAFE = re.compile(rb"[^a-z0-9_.-]")
_DAILY = re.compile(r"(.+)_(\d{8})\.json")
_MANIFEST = re.compile(r"(\d+)/(\d+)\.json")
_COMPACTION = re.compile(r"(\d+)/(\d+)\.json\.z")
_QUARANTINED = re.compile(r"/(\d+)-(\d+)/\d+\.parquet$")


def primary(table: TableName) -> str:
    """Return the key of the watermark itself."""
    return f"{PRIMARIES}{table.key}.json"


def daily(table: TableName, day: str) -> str:
    """Return the key of the daily copy for a day (`YYYYMMDD`)."""
    return f"{DAILY}{table.key}_{day}.json"


def session(table: TableName, session_id: str) -> str:
    """Return the key of a session's copy."""
    return f"{SESSIONS}{session_id}/{table.key}.json"


def lease(table: TableName) -> str:
    """Return the key of the table's lease."""
    return f"{LEASES}{table.key}.json"


def recoveries(table: TableName) -> str:
    """Return the folder of the table's recovery records."""
    return f"{RECOVERIES}{table.key}/"


def table_of_recovery(key: str) -> TableName | None:
    """Return the table that a recovery record belongs to; None for any other key."""
    return table_of_key("/".join(key.removeprefix(RECOVERIES).split("/")[:2]))


def table_of_manifest(key: str) -> TableName | None:
    """Return the table that a manifest belongs to; None for any other key."""
    return table_of_key(folder_of_manifest(key).removeprefix(MANIFESTS).removesuffix("/"))


def recovery(table: TableName, at: datetime, session_id: str) -> str:
    """Return the key of one recovery record."""
    return f"{recoveries(table)}{at:%Y%m%dT%H%M%S%f}_{session_id}.json"


def runs_of_day(day: str) -> str:
    """Return the folder of the records of runs that began on a day (`YYYYMMDD`)."""
    return f"{RUNS}{day}/"


def run_record(session_id: str) -> str:
    """Return the key of a run's record. Keys sort in the order in which runs began."""
    return f"{runs_of_day(session_day(session_id))}{session_id}.json"


def manifests(table: TableName) -> str:
    """Return the folder of the table's manifest log."""
    return f"{MANIFESTS}{table.key}/"


def manifest(table: TableName, head: ManifestId) -> str:
    """Return the key of one manifest. Keys sort in log order."""
    return f"{manifests(table)}{head.epoch:08d}/{head.sequence:08d}.json"


def compactions(table: TableName) -> str:
    """Return the folder of the table's compacted manifests."""
    return f"{COMPACTIONS}{table.key}/"


def compaction(table: TableName, last: ManifestId) -> str:
    """Return the key of the compaction that ends with a manifest."""
    return f"{compactions(table)}{last.epoch:08d}/{last.sequence:08d}.json.z"


def head_of_compaction(key: str, table: TableName) -> ManifestId | None:
    """Return the last manifest of a compaction; None for any other key."""
    found = _COMPACTION.fullmatch(key.removeprefix(compactions(table)))
    return ManifestId(int(found[1]), int(found[2])) if found else None


def folder_of_manifest(key: str) -> str:
    """Return the folder of the log that a manifest belongs to."""
    return "/".join([*key.split("/", 3)[:3], ""])


def data_file_key(
    table: TableName, session_id: str, sequence: int, part: int, attempt: int = 0, number: int = 0
) -> str:
    """Return the key of a data file in the lake."""
    day = session_day(session_id)
    return (
        f"{data_files(table)}year={day[:4]}/month={day[4:6]}/day={day[6:]}/"
        f"{session_id}-{sequence:06d}-{part:05d}-{attempt}-{number}.parquet"
    )


def deletes_file_key(table: TableName, session_id: str, sequence: int, part: int = 0) -> str:
    """Return the key of a file of deleted keys; it has a folder of its own, and no rows."""
    return DELETES + data_file_key(table, session_id, sequence, part).removeprefix(DATA)


def sequence_of_data_file(name: str) -> int | None:
    """Return the sequence of the manifest that a file was written for; None if it is not ours."""
    found = _DATA_FILE.fullmatch(name)
    return int(found[1]) if found else None


def data_files(table: TableName) -> str:
    """Return the folder of the table's data files."""
    return f"{DATA}{table.key}/"


def deletes_of(table: TableName) -> str:
    """Return the folder of the table's files of deleted keys."""
    return f"{DELETES}{table.key}/"


def quarantine_of(table: TableName) -> str:
    """Return the folder of the table's quarantined rows."""
    return f"{QUARANTINE}{table.key}/"


def quarantine(table: TableName, load_epoch: int) -> str:
    """Return the folder of the rows that were quarantined in a load epoch."""
    return f"{quarantine_of(table)}{load_epoch:08d}/"


def extracted_quarantine(table: TableName, data_file: str) -> str:
    """Return the key for rows that were set aside while a data file was written."""
    return f"{quarantine_of(table)}extracted/{data_file.rpartition('/')[2]}"


def head_of_quarantine(key: str) -> ManifestId | None:
    """Return the manifest that a quarantine file belongs to; None for any other key."""
    found = _QUARANTINED.search(key)
    return ManifestId(int(found[1]), int(found[2])) if found else None


def copies(table: TableName, load_epoch: int) -> str:
    """Return the folder of temporary data files without quarantined rows."""
    return f"{COPIES}{table.key}/{load_epoch:08d}/"


def older_data_files(spelling: str) -> str:
    """Return the folder of an older system's data files, for a spelling of the table's name."""
    return f"{DATA}{spelling}/"


def folders_elsewhere(table: TableName, paths: Iterable[str]) -> list[str]:
    """Return the folders of files outside the table's own, such as an older system's."""
    own = (data_files(table), deletes_of(table))
    return sorted({f"{path.rpartition('/')[0]}/" for path in paths if not path.startswith(own)})


def may_be_data(path: str) -> bool:
    """Return whether a manifest may list this as a data file: anything but our own metadata."""
    return path.endswith(".parquet") and not path.startswith(_NOT_DATA)


def may_be_quarantined(path: str) -> bool:
    """Return whether a manifest may list this as a quarantine file."""
    return path.endswith(".parquet") and path.startswith(QUARANTINE)


def may_be_deletes(path: str) -> bool:
    """Return whether a manifest may list this as a file of deleted keys."""
    return path.endswith(".parquet") and path.startswith(DELETES)


def table_of_data_file(key: str) -> TableName | None:
    """Return the table that a data file's folder belongs to; None if there is none."""
    parts = key.removeprefix(DATA).removeprefix(DELETES).removeprefix(QUARANTINE).split("/")
    return table_of_key("/".join(parts[:2])) if len(parts) > 2 else None


def table_of_primary(key: str) -> TableName | None:
    """Return the table whose watermark this is; None for an older system's document."""
    return table_of_key(key.removeprefix(PRIMARIES).removesuffix(".json"))


def table_of_key(key: str) -> TableName | None:
    """Return the table that a part of a key stands for; None if it is not ours."""
    try:
        return TableName.from_key(key)
    except UsageError:
        return None


def day_of_daily(key: str, table: TableName) -> str | None:
    """Return the day of a daily copy; None if it is another table's."""
    found = _DAILY.fullmatch(key.removeprefix(DAILY))
    return found[2] if found and found[1] == table.key else None


def head_of_manifest(key: str, table: TableName) -> ManifestId | None:
    """Return the id of a manifest; None for any other key."""
    found = _MANIFEST.fullmatch(key.removeprefix(manifests(table)))
    return ManifestId(int(found[1]), int(found[2])) if found else None


def unload_folder(target_name: str) -> str:
    """Return the folder for unloads of a target table, which no other table has.

    Names that differ only in the case of ASCII letters are one table in Redshift.
    """
    name = _UNSAFE.sub(lambda found: b"=%02X" % ord(found[0]), target_name.encode().lower())
    return f"{UNLOADS}{name.decode()}/"
