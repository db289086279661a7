"""The append-only log under the broker: records reported as synced survive a crash.

From the top: `journal` is the interface of the service, `tools` that of operators for a journal
that is not open; `recovery` opens a data directory; `write` appends by group commit, reusing dead
segments where possible, stores transient blocks and compacts; `read` scans segments, reads blocks
and snapshots; `failpoints` has the points at which crash tests end the process; `files` has the
byte formats, the file names and the disk. A room imports only the rooms after it.
"""

from ackq_broker.journal.failpoints import POINTS, Failpoint, kill_at
from ackq_broker.journal.files.format import Bulk, Entry, Position
from ackq_broker.journal.journal import Journal
from ackq_broker.journal.read.scan import Flaw
from ackq_broker.journal.recovery import Recovery
from ackq_broker.journal.tools.dump import dump
from ackq_broker.journal.tools.repair import Repaired, begin_new_history, repair
from ackq_broker.journal.tools.verify import Report, verify
from ackq_broker.journal.write.backup import Backup

__all__ = [
    "POINTS",
    "Backup",
    "Bulk",
    "Entry",
    "Failpoint",
    "Flaw",
    "Journal",
    "Position",
    "Recovery",
    "Repaired",
    "Report",
    "begin_new_history",
    "dump",
    "kill_at",
    "repair",
    "verify",
]
