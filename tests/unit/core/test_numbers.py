"""Numbers in commands, of any size: what is decided can be applied, journaled and listed (I6)."""

import dataclasses
from contextlib import suppress

import msgspec
import pytest

from ackq.errors import AckqError, InvalidArgumentError
from ackq_broker.core import Core, records, views
from ackq_broker.core import commands as c
from ackq_broker.core.fields import Rewound
from ackq_broker.core.sessions.holder import unchanged
from tests.unit.core.harness import PUBLISHER, RELEASED, Unchecked, group, reading, refused
from tests.unit.core.link_process import LinkProcess

LARGEST = 1 << 62
# An accepted batch of this number was rewound, and nobody could read its queue any more.
TOO_LARGE = (1 << 63) - 2
NUMBERS = (LARGEST, TOO_LARGE, 1 << 63, (1 << 64) - 1)


class Room(Unchecked):
    """A session with a lease and a retained batch, a stage and a link; each act is as a broker's.

    Every record is encoded, and every state is.
    """

    def __init__(self):
        super().__init__()
        self.reader = reading(self)
        self.reader.advance(6, max_messages=3, retain_ms=9_000_000)
        self.staged = self.stage("w", 1, ["q"], name="one")
        self.declare("in")
        self.link = LinkProcess(self, queue="in")
        self.link.subscribe()

    def decide(self, command):
        decision = super().decide(command)
        for record in decision.records:
            records.decode(records.encode(record))
        return decision

    def old(self, record):
        """Applies a record of an older version."""
        self.core.apply(self.core.sequence + 1, records.decode(records.encode(record)))

    def live_on(self):
        """What clients and the broker's own work do next, as far as it is not refused."""
        reader = self.reader
        for command in (
            dataclasses.replace(reader.command, start_tag=9, retain_ms=9_000_000),
            c.RewindSession("s", c.Rewind()),
            c.Deliver(b"channel", "q", 9),
            c.CloseChannel(b"channel"),
            c.Deliver(b"channel", "other", 9),
            c.Settle(b"channel", RELEASED, up_to=1),
            c.Tick(),
            c.Housekeep(),
            c.GiveWay(1),
        ):
            with suppress(AckqError):
                self.do(command)
        views.list_sessions(self.core.state)
        assert views.find_retained(self.core.state, "s")[1][-1].batch_id <= LARGEST
        self.core = Core.restore(self.core.snapshot())


def stages(*rows):
    """Stages at another edge with so many rows."""
    references = (c.StageRef(bytes([at]) * 16, each, each) for at, each in enumerate(rows))
    return (c.EdgeStages("b", tuple(references)),)


def note(room, **changes):
    return c.NoteFetch(*room.reader.names, 1, "other", "run", 8, "", 9, **changes)


EDGES = {"target": "queue/q", "edges": "a,b"}
PROPERTIES = c.QueueProperties(dead_letter_queue="dead")
# The commands whose numbers a client chooses, in a room where all of them succeed.
COMMANDS = {
    "Advance": lambda room: dataclasses.replace(room.reader.command, start_tag=9),
    "Attach": lambda room: c.Attach(*room.reader.names, room.reader.command.holder, 6, 9),
    "Attach planned": lambda room: c.Attach(
        *room.reader.names, room.reader.command.holder, 6, 9, planned=1
    ),
    "AbortBatch": lambda _: c.AbortBatch("w", 1, ()),
    "CommitBatch": lambda room: c.CommitBatch("w", 1, "run", "", (room.staged,)),
    "CommitBatch others": lambda room: c.CommitBatch(
        "w", 1, "run", "", (room.staged,), others=stages(1, 2), **EDGES
    ),
    "CommitOutcomes": lambda room: c.CommitOutcomes(room.reader.owner(), ()),
    "CommitTransaction": lambda _: c.CommitTransaction(PUBLISHER, b"t", 1),
    "DeclareQueue": lambda _: c.DeclareQueue("other", PROPERTIES),
    "DropBatch": lambda _: c.DropBatch(c.BatchKey("w", 1)),
    "NoteFetch": note,
    "NoteFetch empty": lambda room: note(room, empty=True),
    "OpenPublisher": lambda _: c.OpenPublisher(b"n" * 16),
    "OpenStage": lambda _: c.OpenStage(b"n" * 16, "n", 1, "run"),
    "PermitLinked": lambda room: c.PermitLinked(*room.link.names, **room.link.proof()),
    "Redrive": lambda _: c.Redrive("dead", 1, 1, 1),
    "RewindQueue": lambda _: c.RewindQueue("q", 1),
    "RewindSession": lambda _: c.RewindSession("s", c.Rewind(7, 1), dry_run=True),
    "SealStage": lambda _: c.SealStage(b"n" * 16, 1, 1),
    "StageOutcomes": lambda room: c.StageOutcomes(
        b"n" * 16, room.reader.owner(), "", True, (group(RELEASED, 7),)
    ),
}


def changed(value, number):
    """Copies of a value, in each of which another of its numbers is this one."""
    if isinstance(value, int):
        if not isinstance(value, bool):
            yield number
    elif isinstance(value, tuple):
        make = getattr(value, "_make", tuple)
        for at, part in enumerate(value):
            for new in changed(part, number):
                yield make((*value[:at], new, *value[at + 1 :]))
    elif dataclasses.is_dataclass(value) or isinstance(value, msgspec.Struct):
        fields = value.__struct_fields__ if isinstance(value, msgspec.Struct) else value.__slots__
        for name in fields:
            for new in changed(getattr(value, name), number):
                if isinstance(value, msgspec.Struct):
                    yield msgspec.structs.replace(value, **{name: new})
                else:
                    yield dataclasses.replace(value, **{name: new})


@pytest.mark.parametrize("name", COMMANDS)
def test_a_number_of_any_size(name):
    """I6: each number of a command is refused or harmless, also for all that comes after it."""
    for number in NUMBERS:
        every = len(list(changed(COMMANDS[name](Room()), number)))
        assert every
        for at in range(every):
            room = Room()
            with suppress(AckqError):
                room.do(list(changed(COMMANDS[name](room), number))[at])
            room.live_on()


@pytest.mark.parametrize("rows", [(LARGEST + 1,), (LARGEST, 1), ((1 << 64) - 1, 1)])
def test_the_rows_of_a_batch_are_bounded_together(rows):
    """I6, K14: the sum of the rows of all edges, whose stages the commit at the home names."""
    commit = c.CommitBatch("w", 1, "run", "", (), others=stages(*rows), **EDGES)
    refused(InvalidArgumentError, "rows of a batch", Room().do, commit)


def test_what_follows_the_largest_batch():
    """I6, S11: batches without rows, and one that is accepted unread, are counted no further."""
    room = Room()
    room.do(dataclasses.replace(note(room), batch_id=LARGEST))
    room.do(c.Attach(*room.reader.names, room.reader.command.holder, 6, 9, planned=5))
    room.reader.advance(9, max_messages=1)
    room.reader.advance(10)
    assert room.core.state.sessions["s"].kept[-1].batch_id == LARGEST


@pytest.mark.parametrize("batch_id", [TOO_LARGE, (1 << 64) - 1])
def test_a_journal_with_a_batch_that_is_too_large(batch_id):
    """I6, S14: an older version took any batch id and rewound it; its journal is served."""
    room = Room()
    room.old(records.FetchNoted("s", "query", "run", batch_id, 1))
    room.reader.advance(9, retain_ms=9_000_000, max_messages=0)
    session = room.core.state.sessions["s"]
    (segment,) = session.kept[-1].segments
    again = Rewound(segment.queue_id, segment.positions, batch_id)
    room.old(msgspec.structs.replace(unchanged(session, room.now_us), rewound=(again,)))
    room.core = Core.restore(room.core.snapshot())
    assert room.do(c.Deliver(b"channel", "q", 9)).messages == 3
    room.live_on()
