"""Consumers of each kind over a network with faults: no accepted message comes again.

Rules C7, C10-C12, C15, C17.
"""

import asyncio
import time
from collections import Counter

from ackq.client import Admin, AsyncChannel, Channel, Publisher
from ackq.errors import (
    BrokerUnavailableError,
    ClosedError,
    OutcomeUnknownError,
    StaleDeliveryTagError,
)
from tests.crash.harness import messages
from tests.crash.network.rounds import MARGIN_S, Actor

# Errors of a settlement from before a renewal.
WITHOUT_EFFECT = (StaleDeliveryTagError, OutcomeUnknownError)
PATIENT_MS = 600_000
RECEIVE_S = 0.2
FILL = 200


class Taking(Actor):
    """Takes messages, accepts them in a mode of its own, and empties the queue in the end.

    Attributes:
        came: How often each message was delivered.
        gone: Messages whose accept was answered.
    """

    modes = ("client", "auto", "dups_ok", "pre", "none")

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.mode = self.rng.choice(self.modes)
        self.came, self.gone = Counter(), set()
        self.filled = []

    def options(self):
        """The options of the channel."""
        return {
            "window_messages": self.rng.choice([3, 100, 10_000]),
            "retry_total_ms": PATIENT_MS,
            "reconnect_timeout_ms": PATIENT_MS,
            "on_reconnect": lambda _: self.figures.update(renewed=1),
        }

    def fill(self):
        """Publishes more messages, without faults."""
        first = len(self.filled)
        names = [f"{self.kind}-{number:07d}" for number in range(first, first + FILL)]
        with Publisher(self.direct, routing_key=self.queue) as publisher:
            publisher.publish_batch(messages(names, self.rng.choice([20, 1_000])))
        self.filled += names

    def take(self, name):
        """Records a delivery of a message."""
        self.came[name] += 1
        if name in self.gone:
            self.report(f"{name} came again after its accept was answered")

    def is_over(self, got):
        """Whether the queue is empty at the end; more is published while the faults last."""
        if got:
            return False
        with Admin(self.direct) as admin:
            info = admin.queue(self.queue)
        if info.ready or info.unacked:
            return False
        stopping = self.stopping.is_set()
        if not stopping:
            self.fill()
        return stopping

    def check(self):
        """C10: every message at least once; in PRE and NONE at most once, few of PRE missing."""
        lost = [name for name in self.filled if not self.came[name]]
        again = [name for name, times in self.came.items() if times > 1]
        self.figures.update(messages=len(self.filled), redelivered=len(again))
        self.figures[f"in {self.mode}"] += 1
        if self.mode in {"pre", "none"}:
            self.figures["not handed over"] += len(lost)
            if again:
                self.report(f"{len(again)} came twice in {self.mode}, first {again[0]}")
        elif lost:
            self.figures["lost"] += len(lost)
            self.report(f"{len(lost)} lost, first {lost[0]}")
        with Admin(self.direct) as admin:
            info = admin.queue(self.queue)
        if info.ready or info.unacked:
            self.report(f"its queue has {info.ready} ready, {info.unacked} unacked")


class Consuming(Taking):
    """A channel that receives, pulls, or has a callback."""

    kind = "channel"

    def act(self):
        self.fill()
        with self.guard.within("open", self.patience_s):
            channel = Channel(self.endpoint, **self.options())
            prefetch = self.rng.choice([1, 40, 0])
            called = self.rng.random() < 0.3 and self.mode != "client"
            callback = (lambda message: self.take(message.message_id)) if called else None
            consumer = channel.consume(self.queue, callback, mode=self.mode, prefetch=prefetch)
        got = True
        while not self.is_over(got):
            if called:
                before = self.came.total()
                self.pause()
                got = self.came.total() > before
            else:
                got = self._receive(channel, consumer)
        with self.guard.within("close", self.patience_s):
            channel.close()

    def _receive(self, channel, consumer):
        try:
            with self.guard.within("receive", RECEIVE_S + self._accept_s):
                if self.mode == "client" and self.rng.random() < 0.2:
                    # Prefetch does not bound it; the connection may be dead for longer.
                    got = channel.get(self.queue, self.rng.randint(1, 30), timeout_s=RECEIVE_S)
                else:
                    message = consumer.receive(RECEIVE_S)
                    got = [message] if message is not None else []
        except BrokerUnavailableError:  # the pull had no effect
            return True
        except OutcomeUnknownError:  # of the accept before delivery, in PRE
            return True
        for message in got:
            self.take(message.message_id)
        if self.mode == "client" and got:
            self._accept(got)
        return bool(got)

    @property
    def _accept_s(self):
        """Additional wait in AUTO and PRE, where an accept is waited for through every cut."""
        return self.patience_s if self.mode in {"auto", "pre"} else 0

    def _accept(self, got):
        futures = [message.accept() for message in got]
        names = [message.message_id for message in got]
        if self.rng.random() < 0.5:
            with self.guard.within("accept", self.patience_s):
                self._told(futures, names)
        else:
            for name, future in zip(names, futures, strict=True):
                future.add_done_callback(lambda done, name=name: self._note(done, name))

    def _told(self, futures, names):
        for name, future in zip(names, futures, strict=True):
            try:
                future.result()
            except WITHOUT_EFFECT:
                continue
            self.gone.add(name)

    def _note(self, done, name):
        if done.exception() is None:
            self.gone.add(name)
        elif not isinstance(done.exception(), (*WITHOUT_EFFECT, ClosedError)):
            self.report(f"an accept was told {done.exception()!r}")


class AsyncConsuming(Taking):
    """A channel on an event loop, with several coroutines at one consumer."""

    kind = "async-channel"
    modes = ("client", "auto")

    def act(self):
        self.fill()
        with self.guard.within("main", 2 * self.patience_s):
            asyncio.run(self._main())

    async def _main(self):
        async with AsyncChannel(self.endpoint, **self.options()) as channel:
            prefetch = self.rng.choice([5, 40, 0])
            consumer = await channel.consume(self.queue, mode=self.mode, prefetch=prefetch)
            await asyncio.gather(*(self._take_all(consumer) for _ in range(3)))

    async def _take_all(self, consumer):
        got = True
        while not self.is_over(got):
            begun = time.monotonic()
            message = await consumer.receive(RECEIVE_S)
            took_s = time.monotonic() - begun
            if self.mode == "client" and took_s > RECEIVE_S + MARGIN_S:
                self.report(f"receive took {took_s:.1f} s")
            got = message is not None
            if not got:
                continue
            self.take(message.message_id)
            if self.mode == "client":
                try:
                    await message.accept()
                except WITHOUT_EFFECT:
                    continue
                self.gone.add(message.message_id)


ACTORS = (Consuming, AsyncConsuming)
