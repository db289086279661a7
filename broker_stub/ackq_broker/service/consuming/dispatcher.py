"""Dispatches the messages of a queue to its consumers, round-robin, in small turns.

Invariant: a consumer that has room for a ready message is in the ring of its queue or parked with
its channel, and a queue with ready messages and waiting consumers is served in a later turn. A
consumer without room costs nothing until it has room: a queue wakes one consumer at a time, never
all of them.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from ackq import limits
from ackq_broker.core import views
from ackq_broker.core.commands import Demand
from ackq_broker.engine.engine import Engine
from ackq_broker.service.consuming.consumer import BrokerConsumer

# Maximum length of a turn, so that other work on the event loop is not starved.
_TURN_S: Final = 0.005


class _Ring:
    """The waiting consumers of a queue, in round-robin order.

    A share is computed once a round: dividing the rest by the waiting consumers each time would
    give most messages to the first consumer, and a tail of tiny deliveries to the last.
    """

    def __init__(self) -> None:
        self.waiting: OrderedDict[BrokerConsumer, None] = OrderedDict()
        self._share = self._turns = 0

    def share(self, ready: int, consumers: int) -> int:
        """The next consumer's share of `ready` messages: as equal as possible, at most a frame."""
        if not self._turns or ready > self._share * self._turns:
            self._share, self._turns = -(-ready // consumers), consumers
        self._turns -= 1
        return min(self._share, limits.FRAME_TARGET_ROWS)


class ConsumerDispatcher:
    """The consumers of all queues.

    Args:
        engine: Decides commands, and calls `on_change` listeners.
        clock: Monotonic seconds.
    """

    def __init__(self, engine: Engine, clock: Callable[[], float] = time.monotonic) -> None:
        self._core = engine.core
        self._turn_or_fail = engine.or_fail(self._turn)
        self._clock = clock
        self._consumers: dict[str, dict[BrokerConsumer, None]] = {}
        self._rings: dict[str, _Ring] = {}
        # Queues that may have messages for a consumer in their ring, in turn order.
        self._active: OrderedDict[str, None] = OrderedDict()
        self._scheduled = False
        engine.on_change.append(self._schedule)

    def consumers(self, queue: str) -> Iterable[BrokerConsumer]:
        """The consumers of a queue."""
        return tuple(self._consumers.get(queue, ()))

    def add(self, consumer: BrokerConsumer) -> None:
        """Adds a consumer that starts."""
        self._consumers.setdefault(consumer.queue, {})[consumer] = None
        self._rings.setdefault(consumer.queue, _Ring())
        self._note(consumer.queue)
        self.offer(consumer)

    def remove(self, consumer: BrokerConsumer) -> None:
        """Removes a consumer that ends."""
        consumers = self._consumers[consumer.queue]
        del consumers[consumer]
        self._rings[consumer.queue].waiting.pop(consumer, None)
        if not consumers:
            del self._consumers[consumer.queue], self._rings[consumer.queue]
        self._note(consumer.queue)

    def offer(self, consumer: BrokerConsumer) -> None:
        """Puts a consumer that may have room in the ring of its queue."""
        self._rings[consumer.queue].waiting.setdefault(consumer)
        if views.ready(self._core.state, consumer.queue):
            self._active.setdefault(consumer.queue)
            self._schedule()

    def serve(self, consumer: BrokerConsumer) -> None:
        """Delivers a consumer that was parked its share at once, and offers the consumer again."""
        room = consumer.room()
        ready = views.ready(self._core.state, consumer.queue)
        if room and ready:
            ring = self._rings[consumer.queue]
            consumer.deliver(min(room, ring.share(ready, len(ring.waiting) + 1)))
        self.offer(consumer)

    def _note(self, queue: str) -> None:
        """Reports a queue's number of consumers to the core, as use of the queue (Q3, Q4)."""
        demand = partial(self._demand, queue)
        self._core.note_consumers(queue, len(self._consumers.get(queue, ())), demand)

    def _demand(self, queue: str) -> Demand:
        """The number of messages that a queue's waiting consumers have room for now."""
        taken: Counter[object] = Counter()
        without_acks = 0
        for consumer in self._rings[queue].waiting if queue in self._rings else ():
            room = consumer.room(taken[consumer.channel])
            taken[consumer.channel] += room
            without_acks += room if consumer.no_ack else 0
        return Demand(taken.total(), without_acks)

    def _schedule(self) -> None:
        """Schedules one turn on the event loop, which serves all changes until then."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn_or_fail)

    def _turn(self) -> None:
        """Serves active queues one delivery each, round-robin, until the turn is over."""
        self._scheduled = False
        for queue in self._core.drain_woken():
            if queue in self._rings:
                self._active.setdefault(queue)
        end_s = self._clock() + _TURN_S
        while self._active:
            queue, _ = self._active.popitem(last=False)
            if self._serve_one(queue):
                self._active.setdefault(queue)
            if self._clock() >= end_s:
                break
        if self._active:
            self._schedule()

    def _serve_one(self, queue: str) -> bool:
        """Makes one delivery of a queue; returns whether another may follow."""
        ring = self._rings.get(queue)
        while ring is not None and ring.waiting and (ready := views.ready(self._core.state, queue)):
            consumer, _ = ring.waiting.popitem(last=False)
            room = consumer.room()
            if not room:
                consumer.park()
                continue
            delivered = consumer.deliver(min(room, ring.share(ready, len(ring.waiting) + 1)))
            ring.waiting[consumer] = None
            if not delivered:
                # All ready messages have expired: nothing to deliver until the queue wakes again.
                ring.waiting.move_to_end(consumer, last=False)
            return bool(delivered)
        return False
