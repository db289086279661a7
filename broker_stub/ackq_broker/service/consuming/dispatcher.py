"""Which consumer gets the next messages of a queue: a ring per queue, served in small turns.

Invariant: a consumer that could take a message that is ready is in the ring of its queue or parked
with its channel, and a queue with both is served in a turn to come. Whoever cannot take anything
costs nothing until that changes: a queue wakes one consumer at a time, never all of them.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from ackq import limits
from ackq.errors import AckqError
from ackq_broker.service.engine.engine import Engine

# How long a turn may take before everything else on the event loop has its own.
_TURN_S: Final = 0.005


class Taker(Protocol):
    """A consumer as the dispatcher sees it."""

    @property
    def queue(self) -> str:
        """The queue it reads."""
        ...

    def room(self) -> int:
        """How many messages it can take now."""
        ...

    def take(self, messages: int) -> int:
        """Delivers up to so many of its queue, one decision; gives how many it got."""
        ...

    def park(self) -> None:
        """It has no room: whoever makes some offers it again."""
        ...

    def cancel(self, reason: AckqError) -> None:
        """Ends it from the broker's side."""
        ...


class _Ring:
    """The consumers of a queue that wait, in the order of their turns.

    Shares are those of a round: were each what a consumer finds left divided by those who wait, the
    first would get most and the last a tail of tiny deliveries.
    """

    def __init__(self) -> None:
        self.waiting: OrderedDict[Taker, None] = OrderedDict()
        self._share = self._turns = 0

    def share(self, ready: int, takers: int) -> int:
        """What the next of so many takers gets: as equal as can be, a frame at most."""
        if not self._turns or ready > self._share * self._turns:
            self._share, self._turns = -(-ready // takers), takers
        self._turns -= 1
        return min(self._share, limits.FRAME_TARGET_ROWS)


class Dispatcher:
    """The consumers of all queues.

    Args:
        engine: Decides, and says when it has.
        clock: Monotonic seconds.
    """

    def __init__(self, engine: Engine, clock: Callable[[], float] = time.monotonic) -> None:
        self._core = engine.core
        self._clock = clock
        self._consumers: dict[str, set[Taker]] = {}
        self._rings: dict[str, _Ring] = {}
        # Queues that may have something for a consumer in their ring, in the order of their turns.
        self._active: OrderedDict[str, None] = OrderedDict()
        self._scheduled = False
        engine.after_write.append(self._schedule)

    def consumers(self, queue: str) -> Iterable[Taker]:
        """Who reads a queue."""
        return tuple(self._consumers.get(queue, ()))

    def add(self, consumer: Taker) -> None:
        """A consumer begins."""
        self._consumers.setdefault(consumer.queue, set()).add(consumer)
        self._rings.setdefault(consumer.queue, _Ring())
        self._note(consumer.queue)
        self.offer(consumer)

    def remove(self, consumer: Taker) -> None:
        """A consumer ends."""
        consumers = self._consumers[consumer.queue]
        consumers.remove(consumer)
        self._rings[consumer.queue].waiting.pop(consumer, None)
        if not consumers:
            del self._consumers[consumer.queue], self._rings[consumer.queue]
        self._note(consumer.queue)

    def offer(self, consumer: Taker) -> None:
        """A consumer may have room: it waits in the ring of its queue."""
        self._rings[consumer.queue].waiting.setdefault(consumer)
        if self._core.ready(consumer.queue):
            self._active.setdefault(consumer.queue)
            self._schedule()

    def serve(self, consumer: Taker) -> None:
        """A parked consumer has room: it gets its share at once, and waits for more."""
        room = consumer.room()
        ready = self._core.ready(consumer.queue)
        if room and ready:
            ring = self._rings[consumer.queue]
            consumer.take(min(room, ring.share(ready, len(ring.waiting) + 1)))
        self.offer(consumer)

    def _note(self, queue: str) -> None:
        """A queue with consumers is in use (Q3, Q4)."""
        self._core.note_consumers(queue, len(self._consumers.get(queue, ())))

    def _schedule(self) -> None:
        """Something changed: look in the next turn of the event loop, once for all changes."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        """Serves active queues one delivery each, round and round, until the turn is over."""
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
        """One delivery of a queue; whether there may be another."""
        ring = self._rings.get(queue)
        while ring is not None and ring.waiting and (ready := self._core.ready(queue)):
            consumer, _ = ring.waiting.popitem(last=False)
            room = consumer.room()
            if not room:
                consumer.park()
                continue
            taken = consumer.take(min(room, ring.share(ready, len(ring.waiting) + 1)))
            ring.waiting[consumer] = None
            if not taken:
                # All that is ready is overdue: as good as nothing, until the queue wakes again.
                ring.waiting.move_to_end(consumer, last=False)
            return bool(taken)
        return False
