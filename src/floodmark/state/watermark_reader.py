"""Determine a table's current state, whatever happened to its watermark.

The manifests are the truth about extraction; the watermark and its copies are checkpoints of them.
A checkpoint is usable if it is valid and its last manifest is in the log. The usable one with the
highest revision is rolled forward over the manifests after it. A reset is a manifest too, so
rolling forward also carries an old copy across a reset.
"""

from collections.abc import Callable, Iterator
from datetime import datetime

from msgspec import Struct, structs

from floodmark.errors import FutureState, ObjectNotFound, StateLost
from floodmark.model import lake_layout
from floodmark.model.log_state import ManifestId
from floodmark.model.manifest import Manifest
from floodmark.model.table import TableName
from floodmark.model.timestamps import stamped
from floodmark.model.transitions import after, checkpoint
from floodmark.model.watermark import Watermark, empty_watermark, in_future, position_in_future
from floodmark.state.manifest_log import ManifestLog
from floodmark.state.watermark_copies import Copies, Copy
from floodmark.storage.objects import ObjectStore


class Reading(Struct, frozen=True, kw_only=True):
    """The state of a table as it was read.

    watermark   the current state; None if the table is unknown
    saved       the checkpoint that was rolled forward; None if there was no usable one
    manifests   the manifests it was rolled forward over
    etag        ETag of the primary, usable or not; None if there is no primary
    source      the key of `saved`, or "manifests"
    problem     why the primary could not be used; None if it could
    began       when a recovery began
    """

    watermark: Watermark | None
    saved: Watermark | None = None
    manifests: tuple[Manifest, ...] = ()
    etag: str | None = None
    source: str = ""
    problem: str | None = None
    began: datetime | None = None


class WatermarkReader:
    """Read a table's state; never write."""

    def __init__(
        self,
        objects: ObjectStore,
        log: ManifestLog,
        copies: Copies,
        clock: Callable[[], datetime],
    ) -> None:
        self._objects = objects
        self._log = log
        self._copies = copies
        self._clock = clock

    def read(self, table: TableName) -> Reading:
        """Return a table's state; StateLost if it was synced before but nothing is left."""
        began = self._clock()
        primary = self._copies.read(table, lake_layout.primary(table), "primary")
        if primary is None:
            problem = f"{lake_layout.primary(table)} is missing"
        elif primary.watermark is None:
            problem = primary.problem or "unreadable"
        elif (heads := self._manifests_after(table, primary.watermark)) is None:
            known = primary.watermark.mysql_state.last_manifest
            problem = f"{primary.key} names manifest {known}, which is not in the lake"
        elif newer := self._newer_copy(table, primary.watermark):
            problem = f"{primary.key} is older than {newer.key}"
        else:
            return self._rolled(table, primary, heads)
        try:
            found = self._recovered(table, problem, primary)
        except StateLost:
            if primary is None and self._copies.read(table, lake_layout.primary(table), "primary"):
                return self.read(table)  # nothing is lost: the table's first run has just begun
            raise
        return structs.replace(
            found,
            etag=primary.etag if primary else None,
            problem=problem if found.watermark else None,
            began=began,
        )

    def read_settled(self, table: TableName) -> Reading | None:
        """Return a table's state if its primary is usable and the newest; None for any other.

        Cheaper than `read` for many tables.
        """
        primary = self._copies.read(table, lake_layout.primary(table), "primary")
        if primary is None or primary.watermark is None:
            return None
        if self._manifests_after(table, primary.watermark) != []:
            return None
        key, saved = self._copies.newest_daily_key(table), primary.watermark
        saved_on = f"{saved.backup_metadata.saved_at:%Y%m%d}"
        if key is not None and (lake_layout.day_of_daily(key, table) or "") >= saved_on:
            copy = self._copies.read(table, key, "daily")
            if copy is None or _revision(copy) > saved.revision:
                return None
        return self._rolled(table, primary, [])

    def _recovered(self, table: TableName, problem: str, primary: Copy | None) -> Reading:
        best: tuple[Copy, list[ManifestId]] | None = None
        unusable = [primary] if primary else []
        for copy, heads in self._copies_worth_reading(table):
            if heads is None:
                unusable.append(copy)
            elif best is None or _revision(copy) > _revision(best[0]):
                best = copy, heads
        if best is not None and not (_is_bare(*best) and any(map(_knows_manifests, unusable))):
            return self._rolled(table, *best)
        last = self._log.newest(table)
        if last is not None:
            return self._rebuilt(table, last)
        files = self._objects.list_objects(lake_layout.data_files(table))
        if unusable or next(files, None) is not None:
            raise StateLost(
                f"{problem}, and no usable copy or manifest is left to recover {table} from",
                hint=f"set where to resume: floodmark watermark set -t {table} --timestamp … (or"
                f" --id …), or read it again: floodmark watermark reset -t {table}",
            )
        return Reading(watermark=None)

    def _copies_worth_reading(
        self, table: TableName
    ) -> Iterator[tuple[Copy, list[ManifestId] | None]]:
        """Yield daily copies, then newer session copies, each until the first usable one."""
        newest = ""
        for copy in self._copies.daily(table):
            heads = self._usable(table, copy)
            yield copy, heads
            if copy.watermark is not None and heads is not None:
                newest = copy.watermark.backup_metadata.session_id
                break
        if not newest and not self._was_touched(table):
            return  # there are many sessions, and none can contain the table
        for copy in self._copies.sessions(table, newer_than=newest):
            heads = self._usable(table, copy)
            yield copy, heads
            if heads is not None:
                return

    def _was_touched(self, table: TableName) -> bool:
        """Return whether any run ever worked on a table: there is a lease or a manifest."""
        if not self._log.is_empty(table):
            return True
        try:
            self._objects.get(lake_layout.lease(table))
        except ObjectNotFound:
            return False
        return True

    def _newer_copy(self, table: TableName, primary: Watermark) -> Copy | None:
        """Return a daily copy newer than the primary, which should be written first, or None."""
        saved_on = f"{primary.backup_metadata.saved_at:%Y%m%d}"
        for key in self._copies.daily_keys(table):
            if (lake_layout.day_of_daily(key, table) or "") < saved_on:
                return None
            copy = self._copies.read(table, key, "daily")
            if copy and self._usable(table, copy) is not None:
                return copy if _revision(copy) > primary.revision else None
        return None

    def _usable(self, table: TableName, copy: Copy) -> list[ManifestId] | None:
        """Return the manifests after a copy; None if it is damaged or disagrees with the log."""
        return self._manifests_after(table, copy.watermark) if copy.watermark else None

    def _manifests_after(self, table: TableName, watermark: Watermark) -> list[ManifestId] | None:
        """Return the manifests after a watermark; None if its last manifest is not in the log."""
        known = watermark.mysql_state.last_manifest
        if known is None:
            return list(self._log.heads(table))
        heads = list(self._log.heads(table, since=ManifestId.parse(known)))
        return heads[1:] if heads[:1] == [ManifestId.parse(known)] else None

    def _rolled(self, table: TableName, copy: Copy, heads: list[ManifestId]) -> Reading:
        watermark = copy.watermark
        assert watermark is not None
        manifests = tuple(self._log.read(table, head) for head in heads)
        for manifest in manifests:
            watermark = checkpoint(watermark, manifest)
        if manifests:
            self._refuse_future(table, manifests[-1])
        return Reading(
            watermark=watermark,
            saved=copy.watermark,
            manifests=manifests,
            etag=copy.etag,
            source=copy.key,
        )

    def _rebuilt(self, table: TableName, last: ManifestId) -> Reading:
        manifest = self._log.read(table, last)
        self._refuse_future(table, manifest)
        first = next(self._log.manifests(table))
        updated = min(manifest.created_at, self._clock())
        empty = empty_watermark(table, manifest.session_id, first.created_at)
        return Reading(
            watermark=after(structs.replace(empty, updated_at=updated), manifest),
            manifests=(manifest,),
            source="manifests",
        )

    def _refuse_future(self, table: TableName, last: Manifest) -> None:
        """Raise FutureState if the last manifest is in the future: one clock is wrong."""
        now = self._clock()
        if not _is_in_future(last, now):
            return
        position = last.standing.mysql_state.position
        raise FutureState(
            f"manifest {last.head} of {table} was written at {stamped(last.created_at)}, at"
            f" position {position}, which is in the future: this machine's clock says"
            f" {stamped(now.replace(microsecond=0))}",
            hint="if this clock is wrong, set it (NTP); if it is right, the writing machine had a"
            f" wrong clock: 'floodmark watermark {self._way_out(table, now)}",
        )

    def _way_out(self, table: TableName, now: datetime) -> str:
        """Return the command that restores the last state whose position is not in the future."""
        for manifest in self._log.manifests(table, newest_first=True):
            position = manifest.standing.mysql_state.position
            if not _timestamp_in_future(position.timestamp, now):
                return f"restore -t {table} --from {manifest.head}' resumes from {position}"
        return f"reset -t {table}' reads it again from the start"


def _is_in_future(manifest: Manifest, now: datetime) -> bool:
    state = manifest.standing.mysql_state
    extracted = state.last_extraction_time
    return (extracted is not None and in_future(extracted, now)) or _timestamp_in_future(
        state.last_timestamp, now
    )


def _timestamp_in_future(timestamp: datetime | None, now: datetime) -> bool:
    return timestamp is not None and position_in_future(timestamp, now)


def _is_bare(copy: Copy, heads: list[ManifestId]) -> bool:
    """Return whether neither the copy nor the log has any manifest."""
    return not heads and not _knows_manifests(copy)


def _knows_manifests(copy: Copy) -> bool:
    return copy.watermark is not None and copy.watermark.mysql_state.last_manifest is not None


def _revision(copy: Copy) -> int:
    return copy.watermark.revision if copy.watermark else -1
