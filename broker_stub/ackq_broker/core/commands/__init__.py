"""Commands to the core and their replies: the whole interface between service and core.

Pure data, without behaviour.

Commands that change state go through `Core.decide`, which returns a `Decision`; reads are the
functions of `views`. Times are microseconds since the Unix epoch by the broker's own clock, which
never runs backwards (Q8).
"""

from __future__ import annotations

# ruff: noqa: F403 (each part defines commands and replies, and nothing else that is public)
from ackq_broker.core.commands.consuming import *
from ackq_broker.core.commands.decision import *
from ackq_broker.core.commands.lifecycle import *
from ackq_broker.core.commands.links import *
from ackq_broker.core.commands.publishing import *
from ackq_broker.core.commands.queues import *
from ackq_broker.core.commands.sessions import *
from ackq_broker.core.commands.views import *
from ackq_broker.core.commands.writer_batches import *
from ackq_broker.core.fields import Expiry as Expiry
from ackq_broker.core.fields import QueueProperties as QueueProperties
from ackq_broker.core.stages import EdgeStages as EdgeStages
from ackq_broker.core.stages import StageRef as StageRef
