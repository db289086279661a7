"""Sessions of the plain model: row by row, with outcomes, timeouts and operators (S1-S8)."""

from dataclasses import dataclass, field

from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from tests.unit.core.model import NO_LIMIT, Message, Queue, end_of

# The disposition that a query gives a tag: outcome, reason, delay.
Said = tuple[Outcome, str, int]


@dataclass(eq=False)
class Row:
    """A tag of a lease: the message as it was first delivered, and whether it is a hole.

    `rewinds` are those of the message when the lease was detached.
    """

    queue: Queue
    message: Message
    count: int
    hole: bool = False
    rewinds: int = 0

    def waits(self, now_us):
        """S5, S14: whether a detached lease may have its message again: not after a rewind."""
        rewound = self.rewinds != self.message.rewinds
        return not rewound and self.message in self.queue.waiting(now_us)

    def headers(self, tag):
        return tag, self.message.label, self.count


@dataclass(eq=False)
class Session:
    """A session with its lease and the lease accepted last; `said` has outcomes by epoch.

    With `retains`, `retained` has the earlier leases, each with its floor (S13).

    `runs` are the runs that read the lease, `batch` is the id of the batch that reads it; `batches`
    are the ids that runs read last, and `planned` is the latest id known for the session.
    """

    name: str
    retains: bool = False
    floor: int = 0
    epoch: int = 1
    lease: list[Row] = field(default_factory=list)
    kept: list[Row] = field(default_factory=list)
    retained: list[tuple[int, list[Row]]] = field(default_factory=list)
    detached: bool = False
    staged: dict[bytes, dict[int, Said]] = field(default_factory=dict)
    said: dict[int, dict[int, Said]] = field(default_factory=dict)
    runs: dict[str, int] = field(default_factory=dict)
    batch: int = 0
    batches: dict[str, int] = field(default_factory=dict)
    planned: int = 0

    @property
    def end(self):
        return self.floor + len(self.lease)

    def rows(self):
        """The tags that are no holes, with their rows."""
        return [(tag, row) for tag, row in enumerate(self.lease, self.floor + 1) if not row.hole]

    def held(self):
        """The tags of messages that the session holds, with their rows."""
        return [] if self.detached else self.rows()

    def begin_epoch(self):
        """S3, S6: raises the epoch; outcomes that were only staged are dropped."""
        self.epoch += 1
        self.staged.clear()

    def purge(self, queue):
        """S13: a purge or deletion of a queue ends the retention of its messages."""
        for _, rows in self.retained:
            for row in rows:
                row.hole |= row.queue is queue

    def resume(self, now_us):
        """S5: messages that are still ready are leased again, every other tag is a hole."""
        if self.detached:
            for _, row in self.rows():
                if row.queue.deleted or not row.waits(now_us):
                    row.hole = True
                else:
                    row.message.owner = self.name
        self.detached = False

    def commit(self, said):
        """S6: outcomes of a newer epoch replace those of an older one; the last of a tag wins."""
        now = self.said.get(self.epoch, {})
        now |= said
        self.said = {self.epoch: now}

    def accept(self, model, now_us):
        """S4, S6: accepts the lease; returns the queues of dead letters, not yet cut to bounds."""
        said = next(iter(self.said.values()), {})
        groups = {}
        for tag, row in self.rows():
            how = said.get(tag, (Outcome.ACCEPTED, "", 0))
            if how[0] is Outcome.ACCEPTED:
                row.queue.accepted += 1
                row.queue.remove([row.message])
            else:
                groups.setdefault(how, []).append(row)
        removed = [
            (row.queue, row.message, cause, how[1])
            for how, rows in groups.items()
            for row in rows
            if (cause := _cause_of(row, how))
        ]
        dead = [message for _, message, _, _ in removed]
        for how, rows in groups.items():
            for row in [each for each in rows if each.message not in dead]:
                _put_back(row, how, now_us)
        targets = model._move(removed, now_us)
        model._forget()
        if self.retains and self.kept:
            self.retained.append((self.floor - len(self.kept), self.kept))
        self.kept, self.lease, self.said = self.lease, [], {}
        self.staged.clear()
        self.floor += len(self.kept)
        return targets

    def requeue(self, model, rows):
        """S5, S8: requeues rows, ready at once."""
        for row in rows:
            row.message.owner = ""
            row.message.deliveries += 1
            if row.queue.deleted:
                row.queue.remove([row.message])
        model._forget()

    def detach(self, model):
        """S5: detaches the session and requeues its lease."""
        held = [row for _, row in self.held()]
        reply = back(held)
        if held:
            for row in held:
                row.hole, row.rewinds = row.queue.deleted, row.message.rewinds
            self.requeue(model, held)
            self.detached = True
            self.begin_epoch()
        return reply

    def settle(self, model, outcome, tags, now_us):
        """S8: settles tags as an operator; returns the numbers settled and dead-lettered."""
        rows = [row for tag, row in self.rows() if tag in tags]
        dead = 0
        if outcome is Outcome.REJECTED:
            if self.detached:
                rows = [row for row in rows if row.waits(now_us)]
            dead, _ = model._dead_letter(
                [(row.queue, row.message, "rejected", "") for row in rows], now_us
            )
            model._forget()
        elif not self.detached:
            self.requeue(model, rows)
        for row in rows:
            row.hole = True
        self.begin_epoch()
        return len(rows), dead

    def restart(self):
        """Q7: restarts before the queues do; a detached lease is decided later, at its resume."""
        retained = (row for _, rows in self.retained for row in rows)
        for row in (*filter(_is_there, self.lease), *self.kept, *retained):
            row.hole = row.hole or not row.message.persistent


def _is_there(row):
    """Whether a restart finds the message of a row, once it has ended the channels."""
    # A deleted queue's message that a channel holds is dropped with the channel.
    ends = row.queue.deleted and row.message.owner.startswith("channel")
    return row.message in row.queue.messages and not ends


def back(rows):
    """Q4: counts of requeued messages, and of those whose queue is deleted."""
    lost = sum(row.queue.deleted for row in rows)
    return c.Released(len(rows) - lost, lost)


def _cause_of(row, how):
    """C13: the cause for which a message becomes a dead letter; empty when it does not."""
    properties = row.queue.properties
    removable = properties.dead_letter_queue or properties.drop_on_limit
    if how[0] is Outcome.REJECTED:
        return "rejected"
    limit = properties.delivery_limit or NO_LIMIT
    over = _fails(how) and removable and row.message.failures == limit
    return "delivery_limit" if over else ""


def _fails(how):
    return how[0] is Outcome.FAILED


def _put_back(row, how, now_us):
    """C14: requeues a message, always with a delay."""
    message, properties = row.message, row.queue.properties
    times = message.failures if _fails(how) else message.deliveries
    first_ms = properties.redelivery_delay_ms or 1000
    longest_ms = properties.redelivery_delay_max_ms or 300_000
    delay_ms = how[2] or min(first_ms << times, longest_ms)
    message.owner = ""
    message.deliveries += 1
    message.failures += _fails(how)
    if row.queue.deleted:
        row.queue.remove([message])
    else:
        message.until_us = end_of(now_us + delay_ms * 1000, now_us)
