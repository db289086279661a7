"""The append-only log under the broker: what was reported synced is there after a crash.

`format` has the bytes, `scan` and `walk` read them, `log` writes them; `committer` decides what
goes into a group, `recovery` opens, `snapshot` and `housekeeping` bound the log, `store` and
`transient` give blocks back, `verify`, `repair`, `restored` and `dump` are for operators.
"""

from ackq_broker.journal.failpoints import POINTS, Failpoint, kill_at
from ackq_broker.journal.files.format import Bulk, Entry, Position
from ackq_broker.journal.journal import Journal
from ackq_broker.journal.read.scan import Flaw
from ackq_broker.journal.recovery import Recovery
from ackq_broker.journal.tools.dump import dump
from ackq_broker.journal.tools.new_history import declare_restored
from ackq_broker.journal.tools.repair import Repaired, repair
from ackq_broker.journal.tools.verify import Report, verify

__all__ = [
    "POINTS",
    "Bulk",
    "Entry",
    "Failpoint",
    "Flaw",
    "Journal",
    "Position",
    "Recovery",
    "Repaired",
    "Report",
    "declare_restored",
    "dump",
    "kill_at",
    "repair",
    "verify",
]
