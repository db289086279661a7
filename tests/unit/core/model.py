"""A broker of plain lists, message by message: the expected behaviour of the core, slow and plain.

It has no records and no bitmaps, and takes only the rounding of instants from the core.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ackq.outcomes import Outcome
from ackq_broker.core import commands as c
from ackq_broker.core.columns.deadlines import rounded

NO_LIMIT = 1 << 62


@dataclass
class Origin:
    """The origin of a dead letter."""

    queue: Queue
    position: int
    deliveries: int
    reason: str
    first_queue: str
    deaths: tuple[tuple[int, str], ...]
    expired_from: tuple[int, ...]

    def headers(self):
        place = self.queue.name, self.position, self.deliveries
        return (*place, self.reason, self.first_queue, self.deaths.count(self.deaths[-1]))


@dataclass(eq=False)
class Message:
    """A message in its place in a queue; `late` if it expired while it was held."""

    label: str
    persistent: bool
    size: int = 10
    position: int = 0
    owner: str = ""
    deliveries: int = 0
    failures: int = 0
    until_us: int = 0
    expires_us: int = NO_LIMIT
    late: bool = False
    rewinds: int = 0
    origin: Origin | None = None

    def shown(self):
        """What a browse shows of it."""
        headers = self.origin and self.origin.headers()
        return self.position, self.label, self.deliveries + 1, bool(self.owner), headers


@dataclass(eq=False)
class Queue:
    """A queue in order of positions."""

    queue_id: int
    name: str
    properties: c.QueueProperties
    messages: list[Message] = field(default_factory=list)
    retained: list[tuple[int, Message]] = field(default_factory=list)
    next_position: int = 1
    deleted: bool = False
    accepted: int = 0
    expired: int = 0
    dead_lettered: int = 0
    dropped: int = 0

    def waiting(self, now_us):
        """The messages that can be given out."""
        return [m for m in self.ready() if m.expires_us > now_us]

    def ready(self):
        """The messages that have no owner and no delay."""
        return [m for m in self.messages if not m.owner and not m.until_us]

    def remove(self, gone):
        """Removes messages."""
        self.messages = [m for m in self.messages if m not in gone]

    def put(self, message, now_us, expires_us=NO_LIMIT):
        """Appends a message; it expires by its own instant or the queue's TTL."""
        ttl_ms = self.properties.message_ttl_ms
        expires_us = min(expires_us, now_us + ttl_ms * 1000 if ttl_ms else NO_LIMIT)
        if expires_us < NO_LIMIT:
            message.expires_us = end_of(expires_us, now_us)
        message.position = self.next_position
        self.next_position += 1
        self.messages.append(message)

    def accept(self, messages, now_us):
        """C4, S13: removes accepted messages, which may stay for some time."""
        self.accepted += len(messages)
        self.remove(messages)
        retain_us = self.properties.retain_ms * 1000
        if retain_us and not self.deleted and messages:
            until_us = self.retained[-1][0] if self.retained else 0
            if now_us + retain_us > until_us:
                until_us = now_us + retain_us + retain_us // 512
            self.retained += [(until_us, message) for message in messages]

    def rewind(self, from_us):
        """S14: makes retained messages ready again; returns their number."""
        since_us = from_us + self.properties.retain_ms * 1000
        found = [m for until_us, m in self.retained if until_us >= since_us]
        self.retained = [each for each in self.retained if each[1] not in found]
        for message in found:
            message.owner, message.expires_us, message.late = "", NO_LIMIT, False
            message.deliveries += 1
            message.rewinds += 1
        self.messages = sorted([*self.messages, *found], key=lambda m: m.position)
        return len(found)

    def overflow(self):
        """Q3: drops the oldest ready messages over the bound."""
        while self._is_over():
            self.dropped += 1
            self.remove(self.ready()[:1])

    def _is_over(self):
        sizes = [message.size for message in self.ready()]
        most, most_bytes = self.properties.max_length, self.properties.max_bytes
        return len(sizes) > (most or NO_LIMIT) or sum(sizes) > (most_bytes or NO_LIMIT)


def end_of(instant_us, now_us):
    """The end of the bucket of an instant."""
    return int(rounded(np.array([instant_us]), now_us)[0])


@dataclass
class Channel:
    """The outstanding messages of a channel, by tag."""

    next_tag: int = 1
    held: dict[int, tuple[Queue, Message]] = field(default_factory=dict)


class Model:
    """Queues by name, and deleted queues whose messages are still held."""

    def __init__(self):
        self.queues = {}
        self.deleted = []
        self.channels = {}
        self.queue_ids = 0

    def declare(self, name, properties):
        self.queue_ids += 1
        self.queues[name] = Queue(self.queue_ids, name, properties)

    def delete(self, name):
        """Q4: deletes a queue by force."""
        queue = self.queues.pop(name)
        held = [m for m in queue.messages if m.owner]
        reply = c.DeletedQueue(len(queue.messages) - len(held), len(held))
        queue.messages, queue.retained, queue.deleted = held, [], True
        self.deleted.append(queue)
        return reply

    def every(self):
        """All queues in order of their ids."""
        return sorted([*self.queues.values(), *self.deleted], key=lambda queue: queue.queue_id)

    # --- channels ---

    def deliver(self, name, queue, count, now_us, *, no_ack):
        """C1, C7: delivers to a channel; returns (tag, label, delivery count) of each message."""
        given = queue.waiting(now_us)[:count]
        if not given:
            return []
        channel = self.channels.setdefault(name, Channel())
        tagged = list(enumerate(given, channel.next_tag))
        rows = [(tag, message.label, message.deliveries + 1) for tag, message in tagged]
        channel.next_tag += len(given)
        if no_ack:
            queue.accept(given, now_us)
            return rows
        for tag, message in tagged:
            message.owner = f"channel {name}"
            channel.held[tag] = (queue, message)
        return rows

    def settle(self, name, outcome, tags, reason, delay_ms, now_us):
        """C4, C13, C14: settles tags of a channel."""
        held = [self.channels[name].held.pop(tag) for tag in tags]
        held.sort(key=lambda entry: (entry[0].queue_id, entry[1].position))
        removed = []
        for queue, message in held:
            limit = queue.properties.delivery_limit or NO_LIMIT
            removable = queue.properties.dead_letter_queue or queue.properties.drop_on_limit
            if outcome is Outcome.ACCEPTED:
                queue.accept([message], now_us)
            elif outcome is Outcome.REJECTED:
                removed.append((queue, message, "rejected", reason))
            elif outcome is Outcome.FAILED and removable and message.failures == limit:
                removed.append((queue, message, "delivery_limit", reason))
            else:
                self._give_back(queue, message, outcome, delay_ms, now_us)
        dead, dropped = self._dead_letter(removed, now_us)
        self._forget()
        return c.Settlement(len(tags), dead, dropped)

    def _give_back(self, queue, message, outcome, delay_ms, now_us):
        message.owner = ""
        message.deliveries += 1
        first_ms = queue.properties.redelivery_delay_ms
        if outcome is Outcome.FAILED:
            message.failures += 1
            if first_ms and not delay_ms:
                doubled = first_ms << (message.failures - 1)
                delay_ms = min(doubled, queue.properties.redelivery_delay_max_ms)
        if queue.deleted:
            queue.remove([message])
        elif delay_ms:
            message.until_us = end_of(now_us + delay_ms * 1000, now_us)

    def close(self, name):
        """C12: closes a channel; returns the number of requeued messages."""
        held = self.channels.pop(name, Channel()).held.values()
        for queue, message in held:
            self._give_back(queue, message, Outcome.RELEASED, 0, 0)
        self._forget()
        return len(held)

    def _forget(self):
        self.deleted = [queue for queue in self.deleted if queue.messages]

    # --- dead letters and time ---

    def _target(self, name):
        if name not in self.queues:
            name = "ackq.dead"
            if name not in self.queues:
                self.declare(name, c.QueueProperties())
        return self.queues[name]

    def _dead_letter(self, removed, now_us):
        """C13: dead-letters messages; returns the numbers moved and dropped."""
        moved = self._move(removed, now_us)
        for target in moved:
            target.overflow()
        return len(moved), len(removed) - len(moved)

    def _move(self, removed, now_us):
        """C13: moves dead letters; returns the queue of each, not yet cut to its bounds."""
        moved = []
        for queue, message, cause, reason in removed:
            held = bool(message.owner)
            queue.remove([message])
            before = message.origin
            path = ()
            if cause == "expired":
                path = (*(before.expired_from if before else ()), queue.queue_id)
            name = queue.properties.dead_letter_queue
            target = self._target(name) if name else None
            if target is None or target.queue_id in path:
                queue.dropped += 1
                continue
            queue.dead_lettered += 1
            origin = Origin(
                queue,
                message.position,
                message.deliveries + held,
                reason or cause,
                before.first_queue if before else queue.name,
                (*(before.deaths if before else ()), (queue.queue_id, cause)),
                path,
            )
            dead = Message(message.label, message.persistent, message.size, origin=origin)
            moved.append((target, dead))
        for target, message in moved:
            target.put(message, now_us)
        return [target for target, _ in moved]

    def redrive(self, queue, count, now_us):
        """Q6: redrives up to `count` dead letters to their original queues."""
        waiting = queue.waiting(now_us)
        homes = [(m, self._home(m)) for m in waiting if m.origin is not None]
        moved = [(m, home) for m, home in homes if home not in (None, queue)][: count or NO_LIMIT]
        queue.remove([m for m, _ in moved])
        for message, home in moved:
            assert home is not None
            home.put(Message(message.label, message.persistent, message.size), now_us)
        for _, home in moved:
            assert home is not None
            home.overflow()
        last = queue.next_position - 1
        return c.Redriven(len(moved), len(waiting) - len(moved), more=False, last=last)

    def _home(self, message):
        assert message.origin is not None
        queue = message.origin.queue
        return queue if not queue.deleted else self.queues.get(queue.name)

    def tick(self, now_us):
        """Q3, C14: expires and matures all messages that are due."""
        expired = matured = 0
        removed = []
        for queue in self.every():
            for message in queue.messages:
                if queue.deleted:
                    continue
                if message.expires_us <= now_us and message.owner:
                    message.late = True
                elif message.expires_us <= now_us:
                    expired += 1
                    queue.expired += 1
                    removed.append((queue, message, "expired", ""))
                elif message.until_us and message.until_us <= now_us:
                    matured += 1
                    message.until_us = 0
        dead, _ = self._dead_letter(removed, now_us)
        return c.Ticked(expired, dead, matured)

    def next_due_us(self):
        """The instant at which the next message expires or matures; 0 if there is none."""
        instants = []
        for queue in self.queues.values():
            for message in queue.messages:
                if message.late:
                    instants += [] if message.owner else [1]
                elif message.expires_us < NO_LIMIT:
                    instants.append(message.expires_us)
                if message.until_us:
                    instants.append(message.until_us)
        return min(instants, default=0)

    def restart(self):
        """Q7: restarts the broker; returns how many messages vanished."""
        gone = []
        for queue in self.every():
            lasting = queue.properties.durable
            gone += [m for m in queue.messages if not (m.persistent and lasting)]
            queue.retained = [each for each in queue.retained if each[1].persistent and lasting]
        for name in list(self.channels):
            self.close(name)
        for queue in self.every():
            queue.remove(gone)
        for message in gone:
            message.owner = ""
        for name in [name for name, q in self.queues.items() if not q.properties.durable]:
            self.queues.pop(name).deleted = True
        self._forget()
        return len(gone)
