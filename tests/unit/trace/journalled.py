"""A core whose records and blocks go to a journal on the disk, as those of a broker do."""

from pyroaring import BitMap64

from ackq_broker.core import Core, records
from ackq_broker.core import commands as c
from ackq_broker.journal import Entry
from ackq_broker.service.engine.engine import _block_of
from ackq_broker.trace.replay import replay
from ackq_broker.trace.search import search
from ackq_broker.trace.story import notes, story
from tests.fakes.blocks import encoded
from tests.unit.journal.running_journal import Running

PUBLISHER = b"p" * 16
ALICE = c.HolderInfo(b"alice".ljust(16), "host-a", 11, "app-a")
BOB = c.HolderInfo(b"bob".ljust(16), "host-b", 22, "app-b")
SECOND_US = 1_000_000


class Journalled:
    """Decides commands, applies their records, and appends them to a journal."""

    def __init__(self, directory, **options):
        self.directory = directory
        self.running = Running(directory, **options)
        self.core = Core()
        self.now_us = 1_700_000_000 * SECOND_US
        self.number = 1
        self.do(c.Start("history"))
        self.do(c.OpenPublisher(PUBLISHER, label="shop"))

    def do(self, command, block=b""):
        """The reply of a command."""
        self.now_us += 1_000
        decision = self.core.decide(command, self.now_us)
        for record in decision.records:
            self.core.apply(self.core.sequence + 1, record)
            block_id, durable = _block_of(record)
            kept = (block_id, (block,)) if block_id and durable else (None, ())
            self.running.append(Entry(records.encode(record), *kept))
        return decision.reply

    def declare(self, queue, **properties):
        self.do(c.DeclareQueue(queue, c.QueueProperties(**properties)))

    def publish(self, queue, *ids, **fields):
        """Publishes messages with these ids, a block of them all."""
        numbers = range(self.number, self.number + len(ids))
        self.number += len(ids)
        command = c.Publish(
            numbers=BitMap64(numbers),
            lowest_unanswered=1,
            exchange="",
            mandatory=False,
            routes=(c.Route(queue),),
            rows=len(ids),
            payload_bytes=10 * len(ids),
            **{"publisher_id": PUBLISHER, "persistent": True, **fields},
        )
        return self.do(command, block_of(*ids))

    def deliver(self, queue, messages=1, channel=b"c" * 16, **fields):
        return self.do(c.Deliver(channel, queue, messages, **fields))

    def advance(self, start=0, holder=ALICE, incarnation="i", **fields):
        fields = {"queues": ("q",), "max_messages": 10, **fields}
        return self.do(
            c.Advance(
                session="s",
                incarnation=incarnation,
                holder=holder,
                start_tag=start,
                new_incarnation="" if incarnation else "i",
                **fields,
            )
        )

    def traced(self, message_id):
        """The stories of the messages with an id, and the notes."""
        found = search(self.directory, message_id)
        done = replay(self.directory, found) if found.rows else None
        stories = [story(done, row) for row in found.rows]
        return stories, notes(found, done, message_id)

    def words(self, message_id):
        """What happened to the one message with an id, a word each."""
        ((*lines,),), _ = self.traced(message_id)
        return [line.what for line in lines]

    def sentences(self, message_id):
        ((*lines,),), _ = self.traced(message_id)
        return [line.sentence for line in lines]


def block_of(*ids):
    """A block of messages with these ids."""
    return encoded(body=[b"x"] * len(ids), message_id=list(ids))
