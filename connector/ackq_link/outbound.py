"""The outbound link: from a queue of the edge to a remote broker. Rules L17, L22, L23.

Invariant: a message is accepted at the edge after its confirm came, and no return before it. A
message that the remote broker refuses is released to its queue with a delay; one that can never be
published becomes a dead letter of the edge; one in doubt is requeued at its place, unless it was so
too often.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from ackq import limits
from ackq.client import AsyncChannel, AsyncConsumer, holder
from ackq.errors import AckqError, ClosedError, StaleDeliveryTagError, UnknownDeliveryTagError
from ackq.outcomes import Outcome
from ackq.text import printable
from ackq.v1 import links_pb2
from ackq_link.adapter import CutError, Producer, PublishedRows, PublishTarget, message_ids
from ackq_link.edge.outbound import OutboundReporter
from ackq_link.keys import fingerprints
from ackq_link.process import (
    EDGE_PATIENCE_MS,
    STOP_GRACE_S,
    Edge,
    StoppedError,
    after_cut,
    back_off,
    for_edge,
    log,
    unless,
)
from ackq_link.suspects import Suspects

# Most batches in flight; they share the window.
_BATCHES: Final = 4
_REFUSED_FIRST_S: Final = 1.0
_REFUSED_MOST_S: Final = 60.0
# A report names refusals until this time after the retry of the refused messages was due.
_RETRY_GRACE_S: Final = 5.0
# Most messages that are remembered because they ended a connection.
_KNOWN: Final = 10_000
# After this many cuts without a confirm between them, rows are sent one by one.
_FRUITLESS: Final = 2
# Errors of a settlement from before the edge's channel was renewed: the message is redelivered.
_STALE: Final = (StaleDeliveryTagError, UnknownDeliveryTagError, ClosedError)


@dataclass
class OutboundCounters:
    """Counters of an outbound link; each only grows.

    Attributes:
        published: Rows that the remote broker confirmed.
        refused: Rows that the remote broker returned or nacked, or that were held back because
            connections ended with them, counted at each try.
        unfit: Rows that the remote broker can never take, counted at each try.
        cuts: Connections to the remote broker that ended.
        stale: Confirmed rows whose accept came too late at the edge: they are published again.
        doubts: Rows unanswered at a cut: they are published again, under the same id.
    """

    published: int = 0
    refused: int = 0
    unfit: int = 0
    cuts: int = 0
    stale: int = 0
    doubts: int = 0


@dataclass
class Outbound:
    """Moves messages from a queue of the edge to a target at a remote broker.

    Args:
        name: The link's name.
        target: The queue or exchange that they are published to.
        edge: The queue that they come from.

    Attributes:
        alone: The number of rows to send one by one, because one of them may end the connection.
        producer: The publishing connection; None without one.
        reason: Why the last message was refused or unfit, or the last connection ended.
        retry_s: The monotonic time when all refused messages will have been tried again.
        known: Why messages that ended a connection can never be published, by their fingerprints
            (two may have one id); only the newest are kept.
        suspects: Messages that connections ended with, for a reason that is not known.
        expected: Whether the last cut came with a message that was held back for earlier ones.
    """

    name: str
    target: PublishTarget
    edge: Edge
    counters: OutboundCounters = field(default_factory=OutboundCounters)
    alone: int = field(default=0, init=False)
    producer: Producer | None = field(default=None, init=False)
    reason: str = field(default="", init=False)
    retry_s: float = field(default=0.0, init=False)
    known: dict[bytes, str] = field(default_factory=dict, init=False)
    suspects: Suspects = field(default_factory=Suspects, init=False)
    expected: bool = field(default=False, init=False)

    @property
    def guarantee(self) -> str:
        """The link's delivery guarantee, in a line."""
        return (
            f"link {self.name}: out: at least once; a cut doubles at most the messages in flight,"
            f" {self.target.limits.window_messages} of them; a message has the same message_id in"
            " every attempt"
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Runs the link until a stop. Raises AckqError for a failure that a retry cannot mend."""
        backoff = back_off()
        before, refused, fruitless = False, False, 0
        reporter = None
        try:
            await for_edge(self.name, self.edge, stop)
            reporter = OutboundReporter(self.edge.broker, self.report)
            while True:
                try:
                    self.producer = producer = await unless(stop, self.target.connect())
                except CutError as cut:
                    if cut.refusal is not None and not before:
                        raise cut.refusal from None
                    self.reason = cut.reason
                    await after_cut(self.name, backoff, stop, cut, self.counters.cuts)
                    continue
                before, self.expected = True, False
                log(logging.INFO, self.name, "connected", "publishes", cuts=self.counters.cuts)
                published, doubts = self.counters.published, self.counters.doubts
                try:
                    await self._move(producer, stop)
                except CutError as cut:
                    self.producer, self.reason = None, cut.reason
                    self.counters.cuts += 1
                    self._log_doubts(self.counters.doubts - doubts)
                    # It may be of a password that was changed since: a second one is not (L17).
                    if cut.refusal is not None and refused and not self.counters.published:
                        raise cut.refusal from None
                    refused = cut.refusal is not None
                    fruitless += not self.expected
                    if self.counters.published > published:
                        backoff.reset()
                        fruitless = 0
                    if cut.by_message or fruitless >= _FRUITLESS:
                        self.alone = self.target.limits.window_messages
                    wait = back_off() if self.expected else backoff
                    await after_cut(self.name, wait, stop, cut, self.counters.cuts)
                finally:
                    await producer.close()
        except StoppedError:
            pass
        finally:
            if reporter is not None:
                await asyncio.to_thread(reporter.close)
            log(
                logging.INFO,
                self.name,
                "stopped",
                f"stopped, {self.counters.published} rows published",
                **vars(self.counters),
            )

    def report(self) -> links_pb2.ReportOutboundRequest:
        """The report to operators (L26); called by another thread."""
        producer = self.producer
        blocked = producer.blocked if producer is not None else ""
        waits = "refusals" if time.monotonic() < self.retry_s else ""
        if producer is None or blocked:
            waits = "alarm" if blocked else "connection"
        report = links_pb2.OutboundReport(
            link=self.name,
            queue=self.edge.queue,
            target=self.target.identity,
            holder=holder("ackq-broker link"),
            reason=printable(blocked or self.reason)[: limits.MAX_LINK_REASON_BYTES],
            limited_by=waits,
            **vars(self.counters),
        )
        return links_pb2.ReportOutboundRequest(report=report)

    def found_unfit(self, fingerprint: bytes, reason: str) -> None:
        """Remembers the message that ended the connection; other rows go in batches again."""
        self.alone = 0
        while len(self.known) >= _KNOWN:
            self.known.pop(next(iter(self.known)))
        self.known[fingerprint] = reason

    def _log_doubts(self, doubts: int) -> None:
        if doubts:
            log(
                logging.WARNING,
                self.name,
                "doubts",
                f"{doubts} messages have no answer, and are published again under the same ids",
                doubts=doubts,
            )

    async def _move(self, producer: Producer, stop: asyncio.Event) -> None:
        """Publishes the edge's deliveries, with several batches in flight, until a cut or a stop.

        The channel is closed at the end, which requeues messages in doubt at their places.
        """
        window = self.target.limits.window_messages
        channel = AsyncChannel(
            self.edge.broker,
            reconnect_timeout_ms=EDGE_PATIENCE_MS,
            label=f"link {self.name}",
        )
        flight = _RowsUnderWay(self, producer)
        try:
            consumer = await unless(
                stop,
                channel.consume(
                    self.edge.queue,
                    mode="client",
                    outcomes=[Outcome.RELEASED, Outcome.REJECTED],
                    prefetch=window,
                    prefetch_bytes=self.target.limits.window_bytes,
                    message_ids=True,
                ),
            )
            most = max(1, window // _BATCHES)
            while True:
                wanted = 1 if self.alone else most
                rows = await unless(stop, flight.or_cut(consumer.receive_batch(wanted)))
                rows = await unless(stop, flight.fit(consumer, rows), STOP_GRACE_S)
                for part, suspected in flight.parts(rows):
                    alone = suspected or bool(self.alone)
                    await unless(stop, flight.add(consumer, part, alone=alone), STOP_GRACE_S)
                    if alone:
                        await unless(stop, flight.answered(), STOP_GRACE_S)
                        self.alone = max(0, self.alone - 1)
        finally:
            await flight.finish(STOP_GRACE_S)
            with suppress(AckqError):
                await channel.close(STOP_GRACE_S)


class _RowsUnderWay:
    """The batches in flight on one connection; settles each as it is answered."""

    def __init__(self, link: Outbound, producer: Producer) -> None:
        self._link = link
        self._producer = producer
        self._room = asyncio.Semaphore(_BATCHES)
        self._tasks: set[asyncio.Task[None]] = set()
        self._cut: asyncio.Future[CutError] = asyncio.get_running_loop().create_future()
        self._refused = back_off(_REFUSED_FIRST_S, _REFUSED_MOST_S)

    async def or_cut(self, receiving: Coroutine[Any, Any, pa.RecordBatch | None]) -> pa.RecordBatch:
        """The received rows; raises CutError as soon as a batch in flight has met one."""
        task = asyncio.ensure_future(receiving)
        try:
            await asyncio.wait((task, self._cut), return_when=asyncio.FIRST_COMPLETED)
            if self._cut.done():
                raise self._cut.result()
            return task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def add(self, consumer: AsyncConsumer, rows: pa.RecordBatch, *, alone: bool) -> None:
        """Publishes rows after the batches in flight; waits while too many are in flight.

        With `alone` it waits until none is, and publishes the only row. Raises CutError.
        """
        if alone:
            await self.answered()
        await self._room.acquire()
        task = asyncio.create_task(self._publish(consumer, rows, alone=alone))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def fit(self, consumer: AsyncConsumer, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that are not known to end a connection.

        Sets those aside that are; holds those back with which too many have ended.
        """
        known, suspects = self._link.known, self._link.suspects
        if not known and not suspects:
            return rows
        prints = fingerprints(rows)
        unfit = {row: known[each] for row, each in enumerate(prints) if each in known}
        await self._set_aside(consumer, rows, unfit)
        reasons = {row: suspects.held_back(each) for row, each in enumerate(prints)}
        held_back = {row: reason for row, reason in reasons.items() if reason}
        if held_back:
            self._link.counters.refused += len(held_back)
            self._release(consumer, rows, held_back, _REFUSED_MOST_S)
        left = [row for row in reasons if row not in unfit and row not in held_back]
        return rows.take(pa.array(left, pa.int64()))

    def parts(self, rows: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, bool]]:
        """The rows in their order, in parts: each suspect by itself, marked with True."""
        suspects = self._link.suspects
        begin = 0
        for row, each in enumerate(fingerprints(rows) if suspects else ()):
            if each in suspects:
                if row > begin:
                    yield rows.slice(begin, row - begin), False
                yield rows.slice(row, 1), True
                begin = row + 1
        if begin < rows.num_rows:
            yield rows.slice(begin), False

    async def answered(self) -> None:
        """Waits until no batch is in flight; raises CutError."""
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._cut.done():
            raise self._cut.result()

    async def finish(self, timeout_s: float) -> None:
        """Waits up to `timeout_s` for answers; rows still unanswered are in doubt."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._cut.cancel()

    async def _publish(self, consumer: AsyncConsumer, rows: pa.RecordBatch, *, alone: bool) -> None:
        published = await self._producer.publish(rows)
        cut, unfit = published.cut, dict(published.unfit)
        if cut is not None and cut.by_message and alone and not published.answered:
            assert rows.num_rows == 1, "rows go one by one"
            unfit[0] = cut.reason
            self._link.found_unfit(fingerprints(rows)[0], cut.reason)
        elif cut is not None:
            self._link.counters.doubts += rows.num_rows - published.answered
        if alone:
            self._note(fingerprints(rows)[0], published)
        await self._accept(consumer, rows, published)
        await self._set_aside(consumer, rows, unfit)
        if published.refused and cut is None:
            self._link.counters.refused += len(published.refused)
            self._release(consumer, rows, published.refused, self._refused.next_s())
        elif cut is None:
            self._refused.reset()
        elif not self._cut.done():
            self._cut.set_result(cut)

    def _note(self, fingerprint: bytes, published: PublishedRows) -> None:
        """Notes the answer to a row that was alone in flight, or a cut that may be its doing.

        What the remote broker refuses to the link is no message's doing.
        """
        link, cut = self._link, published.cut
        if published.answered or (cut is not None and cut.by_message):
            link.suspects.answered(fingerprint)
        elif cut is not None and cut.refusal is None:
            link.expected = link.suspects.cut(fingerprint, cut.reason)

    async def _accept(
        self, consumer: AsyncConsumer, rows: pa.RecordBatch, published: PublishedRows
    ) -> None:
        """Accepts at the edge the rows that the remote broker confirmed (L22)."""
        confirmed = published.confirmed
        self._link.counters.published += len(confirmed)
        if not confirmed:
            return
        whole = len(confirmed) == rows.num_rows
        try:
            await consumer.settle(rows if whole else rows.take(pa.array(confirmed)))
        except _STALE:
            self._link.counters.stale += len(confirmed)

    async def _set_aside(
        self, consumer: AsyncConsumer, rows: pa.RecordBatch, unfit: Mapping[int, str]
    ) -> None:
        """Dead-letters unfit rows; without a dead-letter queue, delays and requeues them (L22)."""
        if not unfit:
            return
        link = self._link
        link.counters.unfit += len(unfit)
        link.reason = next(iter(unfit.values()))
        try:
            dead = (await link.edge.queue_info()).properties.dead_letter_queue
        except AckqError:
            dead = ""
        if not dead:
            self._release(consumer, rows, unfit, _REFUSED_MOST_S)
            return
        for row, reason in unfit.items():
            log(
                logging.WARNING,
                link.name,
                "unfit",
                f"a message of queue '{link.edge.queue}' can never be published, and is rejected: a"
                f" dead letter in '{dead}', or of the remote broker that it came from (on-reject):"
                f" {printable(reason)}",
                message_id=message_ids(rows)[row],
                reason=reason,
            )
            with suppress(*_STALE):
                await consumer.settle(rows.slice(row, 1), Outcome.REJECTED, reason=reason)

    def _release(
        self,
        consumer: AsyncConsumer,
        rows: pa.RecordBatch,
        refused: Mapping[int, str],
        wait_s: float,
    ) -> None:
        """Requeues rows with a delay of `wait_s`."""
        link, reason = self._link, next(iter(refused.values()))
        link.reason = reason
        link.retry_s = max(link.retry_s, time.monotonic() + wait_s + _RETRY_GRACE_S)
        log(
            logging.WARNING,
            link.name,
            "refused",
            f"{len(refused)} messages were refused and go back to queue '{link.edge.queue}' for"
            f" {wait_s:.1f} s; the reason of the first: {printable(reason)}",
            refused=len(refused),
            reason=reason,
            wait_s=wait_s,
        )
        with suppress(*_STALE):
            consumer.settle(
                rows.take(pa.array(sorted(refused))),
                Outcome.RELEASED,
                delay_ms=int(1000 * wait_s),
            )

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._room.release()
        if task.cancelled() or self._cut.done():
            return
        error = task.exception()
        if error is not None:
            self._cut.set_result(CutError(f"the local broker: {error}"))
