"""Publishers of each kind over a network with faults: true answers, and no doubles.

Rules P3, P4, P9, P10, P13.
"""

import asyncio
from collections import Counter
from contextlib import suppress
from functools import partial

from ackq.client import AsyncPublisher, Publisher, TransactionalPublisher
from ackq.errors import (
    BrokerUnavailableError,
    ClosedError,
    OutcomeUnknownError,
    TransactionRolledBackError,
)
from tests.crash.harness import in_queue, messages
from tests.crash.network.rounds import Actor

PATIENT_MS = 600_000
# Errors that may end a publisher that gives up, with the futures of its messages.
ENDS = (BrokerUnavailableError, OutcomeUnknownError, ClosedError)


class Books:
    """The answers of a publisher: None for a confirm, else the error, by message id."""

    def __init__(self, actor):
        self._actor = actor
        self._told = {}
        self._published = 0

    def next_names(self, most):
        """New message ids."""
        first = self._published + 1
        self._published += self._actor.rng.randint(1, most)
        return [f"{self._actor.kind}-{number:07d}" for number in range(first, self._published + 1)]

    def published(self, names, future):
        """Records the outcome of the messages from a future, which is resolved once."""
        self._told.update(dict.fromkeys(names, "nothing"))
        future.add_done_callback(partial(self._note, names))

    def may_stand(self, names):
        """Records a batch whose call raised: its first rows may have been published."""
        self._told.update(dict.fromkeys(names, OutcomeUnknownError("The call raised.")))

    def _note(self, names, future):
        error = future.exception()
        if error is not None and not isinstance(error, ENDS):
            self._actor.report(f"a publish was told {error!r}")
        for name in names:
            if self._told[name] != "nothing":
                self._actor.report(f"{name} was told twice")
            self._told[name] = None if error is None else error

    def balance(self):
        """P3, P4: all publishes are answered; confirmed are placed once, unknown at most once."""
        by = Counter(type(each).__name__ if each else "confirmed" for each in self._told.values())
        self._actor.figures.update({name: times for name, times in by.items() if name != "str"})
        if by["str"]:
            self._actor.report(f"{by['str']} publishes were told nothing")
        confirmed = [name for name, each in self._told.items() if each is None]
        unknown = [n for n, each in self._told.items() if isinstance(each, OutcomeUnknownError)]
        found = in_queue(self._actor.direct, self._actor.queue)
        self._actor.compare(found, confirmed, maybe=unknown)


class Publishing(Actor):
    """A publisher in confirm mode that waits for the network, however long that takes."""

    kind = "publisher"
    retry_total_ms = PATIENT_MS

    def act(self):
        self.books = Books(self)
        while not self.stopping.is_set():
            self._live()

    def _live(self):
        publisher = Publisher(
            self.endpoint,
            routing_key=self.queue,
            retry_total_ms=self.retry_total_ms,
            publish_ack_timeout_ms=self.rng.choice([200, 2_000]),
            window_messages=self.rng.choice([50, 100_000]),
        )
        wait_s = self.patience_s + self.retry_total_ms % PATIENT_MS / 1000
        try:
            while not self.stopping.is_set():
                with self.guard.within("publish", wait_s):
                    self._publish(publisher)
                self.pause()
            with self.guard.within("flush", wait_s):
                publisher.flush()
        except ENDS:
            if self.retry_total_ms == PATIENT_MS:
                raise
            self.figures["gave up"] += 1
        finally:
            with self.guard.within("close", wait_s), suppress(*ENDS):
                publisher.close()

    def _publish(self, publisher):
        names = self.books.next_names(40)
        if self.rng.random() < 0.5:
            batch = messages(names, self.rng.choice([20, 2_000]))
            try:
                self.books.published(names, publisher.publish_batch(batch))
            except ClosedError:
                self.books.may_stand(names)
                raise
            return
        for name in names:
            urgent = self.rng.random() < 0.1
            future = publisher.publish(name, message_id=name, ack_immediately=urgent)
            self.books.published([name], future)

    def check(self):
        self.books.balance()


class ImpatientPublishing(Publishing):
    """A publisher that gives up after a second, and is followed by another."""

    kind = "impatient"
    retry_total_ms = 1_000


class AsyncPublishing(Actor):
    """A publisher on an event loop, with several coroutines."""

    kind = "async-publisher"

    def act(self):
        self.books = Books(self)
        asyncio.run(self._main())

    async def _main(self):
        out = AsyncPublisher(
            self.endpoint,
            routing_key=self.queue,
            retry_total_ms=PATIENT_MS,
            window_messages=self.rng.choice([50, 100_000]),
        )
        with self.guard.within("publish", self.patience_s):
            await asyncio.gather(*(self._publish(out) for _ in range(4)))
        with self.guard.within("close", self.patience_s):
            await out.close()

    async def _publish(self, out):
        while not self.stopping.is_set():
            names = self.books.next_names(20)
            for name in names:
                await out.drain()
                self.books.published([name], out.publish_nowait(name, message_id=name))
            await asyncio.sleep(self.rng.uniform(0, 0.05))

    def check(self):
        self.books.balance()


class Transacting(Actor):
    """Transactions, each run again until it is committed; a late commit is asked for again."""

    kind = "transactional"
    commit_s = 1.0

    def act(self):
        self.committed = []
        transaction = 0
        with TransactionalPublisher(
            self.endpoint, routing_key=self.queue, retry_total_ms=PATIENT_MS
        ) as publisher:
            while not self.stopping.is_set():
                transaction += 1
                self._until_committed(publisher, transaction)

    def _until_committed(self, publisher, transaction):
        attempt = 0
        while True:
            attempt += 1
            rows = self.rng.choice([1, 10, 300])
            names = [f"t{transaction:05d}-{attempt:03d}-{row:03d}" for row in range(rows)]
            try:
                with self.guard.within("transaction", self.patience_s):
                    for at in range(0, rows, 100):
                        publisher.publish_batch(messages(names[at : at + 100]))
                        self.pause()
                    self._commit(publisher, rows)
            except TransactionRolledBackError:
                self.figures["rolled back"] += 1
                publisher.rollback()
            else:
                self.committed += names
                self.figures["transactions"] += 1
                return

    def _commit(self, publisher, rows):
        while True:
            try:
                with self.guard.within("commit", self.commit_s):
                    assert publisher.commit(self.commit_s).messages == rows
            except OutcomeUnknownError:
                self.figures["commit asked again"] += 1
            else:
                return

    def check(self):
        """P13: each committed transaction is whole, and of the others nothing is placed."""
        self.compare(in_queue(self.direct, self.queue), self.committed)


ACTORS = (Publishing, ImpatientPublishing, AsyncPublishing, Transacting)
