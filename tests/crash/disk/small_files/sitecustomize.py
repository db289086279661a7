"""A broker process with small files: Python runs this at its start, found on PYTHONPATH.

So a run of seconds reaches new segments, snapshots, compaction and all else that takes gigabytes.
"""

from ackq import limits

limits.MIN_SEGMENT_BYTES = limits.SEGMENT_BYTES = 256 * limits.KIB
limits.MAX_GROUP_BYTES = 128 * limits.KIB
limits.SNAPSHOT_EVERY_BYTES = 512 * limits.KIB
limits.DISK_RESERVE_BYTES = limits.SNAPSHOT_EVERY_BYTES + 2 * limits.SEGMENT_BYTES

from ackq_broker.journal.write import transient  # noqa: E402 - with those limits

transient._FILE_BYTES = 64 * limits.KIB
