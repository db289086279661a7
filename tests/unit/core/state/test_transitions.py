"""The table of transitions in `core/state/queue.py`: the core does what each cell says."""

import re
from contextlib import suppress

import pytest

from ackq import limits
from ackq.errors import AckqError
from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from ackq_broker.core.state import queue as module
from tests.rules import defined
from tests.unit.core.harness import SECOND_US, group

HOUR_MS = 3_600_000
DELAY_MS = 60_000
REPLAYED_US = (limits.REPLAY_RETENTION_S + 1) * SECOND_US
# After these nothing is left in the queue, so no event can change the message.
ENDS = ("accepted", "dead", "expired", "removed")


def table():
    """Parses the table: (event, state) to the text of the cell."""
    lines = [line.strip("| ").split("|") for line in module.__doc__.splitlines() if "|" in line]
    (_, *states), _, *rows = [[cell.strip() for cell in line] for line in lines]
    return {
        (event, state): cell
        for event, *cells in rows
        for state, cell in zip(states, cells, strict=True)
    }


TABLE = table()
EVENTS = list(dict.fromkeys(event for event, _ in TABLE))
# The queue retains what channels accept.
RETAINED = (
    ("channel accepts, retained", "unacked"),
    ("queue is rewound", "kept"),
    ("retention is over", "kept"),
)
STATES = list(dict.fromkeys(state for _, state in TABLE))
# What brings a published message to each state.
WAYS = {
    "ready": (),
    "unacked": ("delivered",),
    "delayed": ("delivered", "channel fails"),
    "leased": ("read",),
    "kept": ("read", "session accepts"),
    "accepted": ("delivered", "channel accepts"),
    "dead": ("delivered", "channel rejects"),
    "expired": ("expires",),
    "removed": ("purged",),
}


class Message:
    """The only message of a queue, brought to a state."""

    def __init__(self, harness, state, *, event):
        self.harness = harness
        self.reader = None
        harness.declare("dead-letters")
        properties = {} if event == "expires" else {"dead_letter_queue": "dead-letters"}
        if event == "channel fails last":
            properties["delivery_limit"] = 1
        if (event, state) in RETAINED:
            properties["retain_ms"] = HOUR_MS
            state = "accepted" if state == "kept" else state
        harness.declare("q", **properties)
        persistent = event != "restart, transient"
        harness.publish_to("q", 1, ttls_ms=[HOUR_MS], persistent=persistent)
        for step in WAYS[state]:
            self.happens(step)

    def read(self):
        self.reader = self.harness.lease("q")
        self.reader.note()

    def fail_twice(self):
        """Fails the message more often than the delivery limit allows."""
        self.harness.settle("c", Outcome.FAILED, 1)
        self.harness.deliver("c", "q", 1)
        self.harness.settle("c", Outcome.FAILED, 2)

    def session(self):
        """The reader that leases the message, or else one without a lease."""
        return self.reader or self.harness.open("q")

    def session_settles(self, outcome):
        session = self.session()
        session.say(group(outcome, 1, delay_ms=DELAY_MS * (outcome is Outcome.FAILED)))
        session.advance(1)

    def happens(self, event):
        """Makes one of the events happen; a refusal changes nothing."""
        do, settle = self.harness.do, self.harness.settle
        act = {
            "delivered": lambda: self.harness.deliver("c", "q", 1),
            "read": self.read,
            "leased": lambda: self.harness.lease("q", session="other"),
            "channel accepts": lambda: settle("c", Outcome.ACCEPTED, 1),
            "channel accepts, retained": lambda: settle("c", Outcome.ACCEPTED, 1),
            "channel releases": lambda: settle("c", Outcome.RELEASED, 1),
            "channel fails": lambda: settle("c", Outcome.FAILED, 1, delay_ms=DELAY_MS),
            "channel fails last": self.fail_twice,
            "channel rejects": lambda: settle("c", Outcome.REJECTED, 1),
            "channel closes": lambda: do(c.CloseChannel(b"c")),
            "session accepts": lambda: self.session().advance(1),
            "session fails": lambda: self.session_settles(Outcome.FAILED),
            "session rejects": lambda: self.session_settles(Outcome.REJECTED),
            "session is released": lambda: do(c.ReleaseSession("s")),
            "session is rewound": lambda: do(c.RewindSession("s", c.Rewind())),
            "queue is rewound": lambda: do(c.RewindQueue("q")),
            "retention is over": lambda: self.harness.housekeep_after(2 * HOUR_MS * 1000),
            "session times out": lambda: self.session().detach(),
            "replay is over": lambda: self.harness.housekeep_after(REPLAYED_US),
            "expires": lambda: self.harness.wait(HOUR_MS / 1000 + 1),
            "expires to a queue": lambda: self.harness.wait(HOUR_MS / 1000 + 1),
            "delay ends": lambda: self.harness.wait(DELAY_MS / 1000 + 1),
            "purged": lambda: do(c.PurgeQueue("q")),
            "queue is deleted": lambda: do(c.DeleteQueue("q", force=True)),
            "restart": self.harness.restart,
            "restart, transient": self.harness.restart,
        }[event]
        with suppress(AckqError):
            act()

    @property
    def state(self):
        """The present state of the message."""
        state = self.harness.core.state
        queue = next((each for each in state.queues.values() if each.name == "q"), None)
        if queue is None:
            return "removed"
        sessions = [each.held() for each in state.sessions.values()]
        found = {
            "ready": 1 in queue.ready,
            "delayed": 1 in queue.delayed,
            "leased": any(1 in held.get(queue.queue_id, ()) for held in sessions),
            "unacked": 1 in queue.unacked,
            "dead": queue.dead_lettered,
            "kept": 1 in queue.kept,
            "accepted": queue.accepted,
            "expired": queue.expired,
        }
        return next((name for name, there in found.items() if there), "removed")


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", [*STATES, *ENDS])
def test_a_cell(harness, event, state):
    """I4: the message is then where the table says, or stays; what is gone does not return."""
    ways = {"expired": "expires", "dead": "expires to a queue"}
    message = Message(harness, state, event=ways.get(state, event))
    assert message.state == state
    message.happens(event)
    deleted = event == "queue is deleted" and state in ENDS
    after = "removed" if deleted else TABLE.get((event, state), "-").split()[0]
    assert message.state == (state if after == "-" else after)


def test_each_transition_names_a_rule():
    """A cell with a new state names its rule."""
    rules = defined()
    for cell in TABLE.values():
        after, _, rule = cell.partition(" ")
        assert re.fullmatch(r"-|[a-z]+", after)
        assert rule in rules or (after, rule) == ("-", "")
