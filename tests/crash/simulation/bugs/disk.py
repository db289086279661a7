"""Bugs between the journal and the disk: missing syncs and wrong orders."""

from ackq_broker.journal import recovery
from ackq_broker.journal.files.directory import DataDirectory
from ackq_broker.journal.files.disk import Disk
from ackq_broker.journal.read import scan
from ackq_broker.journal.read import snapshot as snapshots
from ackq_broker.journal.write import log
from ackq_broker.journal.write.compaction import Compactor
from ackq_broker.journal.write.group_commit import GroupCommit
from tests.crash.simulation.bugs.patching import Bug, Line

DISK = {
    "group_not_synced": Bug(
        "P4: a group counts as on the disk without fdatasync of its segment",
        Line(log.Log.sync, "self._disk.sync_data(self._fd)"),
    ),
    "failed_sync_ignored": Bug(
        "P8: an error of fdatasync is taken for success",
        Line(
            log.Log.sync,
            "    self._disk.sync_data(self._fd)",
            "    try:\n        self._disk.sync_data(self._fd)\n    except OSError:\n        pass",
        ),
    ),
    "short_write_not_continued": Bug(
        "Q7: what a short write left out is not written",
        Line(Disk.write, "        offset += written\n", "        break\n"),
    ),
    "reported_before_sync": Bug(
        "I1: the group commit reports its records before it syncs them",
        Line(
            GroupCommit._write,
            "    self._log.sync()",
            "    self.synced = self._log._unsynced.sequence\n"
            "        self._on_synced(self.synced)\n"
            "        self._log.sync()",
        ),
    ),
    "lone_unit_overtakes": Bug(
        "I2: a lone unit is written before units that wait in the queue",
        Line(GroupCommit._quick, "        and not self._items\n", ""),
    ),
    "segment_without_name": Bug(
        "Q7: the directory is not synced when a segment gets its name",
        Line(log.create_segment, "disk.sync_directory(directory)"),
    ),
    "segment_header_not_synced": Bug(
        "Q7: a segment gets its name before its header is on the disk",
        Line(log.create_segment, "disk.sync_file(fd)"),
    ),
    "segment_cut_before_the_next": Bug(
        "Q7: a full segment is cut to its length before the next one has its name",
        Line(
            log.Log._start_segment,
            "    header, fd = create_segment(",
            "    self._disk.truncate(self._fd, self.position.offset)\n"
            "    header, fd = create_segment(",
        ),
    ),
    "log_cut_before_format": Bug(
        "Q7: a clean end cuts the last segment without saying so in FORMAT",
        Line(log.Log.close, "self._data.write_format()"),
    ),
    "format_not_synced": Bug(
        "Q7: FORMAT gets its name before its bytes are on the disk",
        Line(DataDirectory._write_format, "self._disk.sync_file(fd)"),
    ),
    "snapshot_not_synced": Bug(
        "I1: a snapshot gets its name before it is on the disk",
        Line(snapshots.write, "disk.sync_file(fd)"),
    ),
    "snapshot_name_not_synced": Bug(
        "Q7: segments go before the name of the snapshot that covers them is on the disk",
        Line(snapshots.publish, "disk.sync_directory(directory)"),
    ),
    "segments_go_before_snapshot": Bug(
        "Q7: segments are deleted before the snapshot that covers them counts",
        Line(
            Compactor._write,
            "    snapshots.publish(self._data.path, snapshot, self._disk)",
            "    self._delete(capture)\n"
            "        snapshots.publish(self._data.path, snapshot, self._disk)",
        ),
    ),
    "live_segment_deleted": Bug(
        "I4: a snapshot deletes covered segments that still have live blocks",
        Line(snapshots.dead_segments, " and number not in live", ""),
    ),
    "format_before_tail": Bug(
        "Q7: recovery says in FORMAT where the log ends before the log is on the disk up to there",
        Line(
            recovery._recover_last,
            "    fd = _rewrite(",
            "    if data.formatted:\n"
            "            _renew_format(data, position, segment_bytes)\n"
            "        fd = _rewrite(",
        ),
    ),
    "tail_not_synced_again": Bug(
        "Q7: recovery serves the last groups without syncing them once more",
        Line(recovery._rewrite, "disk.sync_file(fd)"),
    ),
    "payload_checksum_ignored": Bug(
        "Q7: a record with a wrong checksum passes",
        Line(scan._parse_records, "if crc32(payload) != header.record_crc:", "if False:"),
    ),
}
