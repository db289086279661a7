"""The inbound link: from a queue of another broker to one of the edge. Rules L8, L9, L12, L17, L20.

Invariant: a delivery is acknowledged there after the edge has confirmed it, which is after its
sync, and in no other place of this program: `_store` returns, then `settle` is called. One batch is
under way at a time, so what a full edge refuses does not let later messages pass.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

import pyarrow as pa

from ackq.client import AsyncPublisher
from ackq.errors import AckqError, InvalidArgumentError
from ackq.text import printable
from ackq_broker.link import edge
from ackq_broker.link.adapter import CutError, Source, SourceSubscription
from ackq_broker.link.backoff import RetryDelay
from ackq_broker.link.edge import Edge
from ackq_broker.link.events import log
from ackq_broker.link.stopping import StoppedError, unless
from ackq_broker.link.waiting import EDGE_PATIENCE_MS, STOP_GRACE_S, after_cut, for_edge


@dataclass
class InboundCounters:
    """What an inbound link did; each grows only.

    Attributes:
        stored: Rows that the edge confirmed.
        redelivered: Of those, rows that the other broker had delivered before.
        cuts: Subscriptions that ended.
        refused: Attempts that the edge refused.
    """

    stored: int = 0
    redelivered: int = 0
    cuts: int = 0
    refused: int = 0


@dataclass
class Inbound:
    """Moves messages from a source to a queue of the edge.

    Args:
        name: The link's.
        source: Where they come from.
        edge: Where they go.
        ack: When they are acknowledged there: `stored`.
    """

    name: str
    source: Source
    edge: Edge
    ack: str = "stored"
    counters: InboundCounters = field(default_factory=InboundCounters)
    _bounded: bool = False

    def __post_init__(self) -> None:
        if self.ack != "stored":
            raise InvalidArgumentError(
                f"ack is '{self.ack}'; the one there is for now is 'stored': a message is"
                " acknowledged at the other broker when the edge has it on disk."
            )

    @property
    def guarantee(self) -> str:
        """What the link promises, in a line."""
        return (
            f"link {self.name}: in, ack=stored: at least once; a cut doubles at most the messages"
            f" whose acks are in doubt, {self.source.limits.window_messages} of them;"
            f" what is acknowledged there lies on the disk of {self.edge.endpoint} alone"
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until a stop. Raises AckqError when waiting mends nothing."""
        publisher = AsyncPublisher(
            self.edge.endpoint,
            routing_key=self.edge.queue,
            retry_total_ms=EDGE_PATIENCE_MS,  # under the numbers that it gave: no doubles (P10)
            label=f"link {self.name}",
            security=self.edge.security,
        )
        try:
            info = await for_edge(self.name, self.edge, stop)
            edge.check_target(info)
            self._bounded = edge.is_bounded(info)
            await self._run(publisher, stop)
        except StoppedError:
            pass
        finally:
            # What is unconfirmed is not acknowledged: it is delivered again.
            await publisher.__aexit__(StoppedError, None, None)
            log(
                logging.INFO,
                self.name,
                "stopped",
                f"stopped, {self.counters.stored} rows stored",
                **vars(self.counters),
            )

    async def _run(self, publisher: AsyncPublisher, stop: asyncio.Event) -> None:
        backoff = RetryDelay()
        before = False
        while True:
            try:
                subscription = await unless(stop, self.source.subscribe())
            except CutError as cut:
                if cut.refusal is not None and not before:
                    raise cut.refusal from None
                await after_cut(self.name, backoff, stop, cut, self.counters.cuts)
                continue
            log(logging.INFO, self.name, "connected", "takes messages", cuts=self.counters.cuts)
            before = True
            try:
                await self._move(subscription, publisher, backoff, stop)
            except CutError as cut:
                self.counters.cuts += 1
                lost = cut
            finally:
                await subscription.close()
            await after_cut(self.name, backoff, stop, lost, self.counters.cuts)

    async def _move(
        self,
        subscription: SourceSubscription,
        publisher: AsyncPublisher,
        backoff: RetryDelay,
        stop: asyncio.Event,
    ) -> None:
        """Stores what is delivered, then acknowledges it, until a cut or a stop."""
        while True:
            deliveries = await unless(stop, subscription.deliver())
            backoff.reset()
            await unless(stop, self._store(publisher, deliveries.rows), STOP_GRACE_S)
            subscription.settle(deliveries.last_tag)
            self.counters.stored += deliveries.rows.num_rows
            self.counters.redelivered += sum(deliveries.redelivered)

    async def _store(self, publisher: AsyncPublisher, rows: pa.RecordBatch) -> None:
        """Returns when the edge has every row on disk; meanwhile nothing is taken (L20)."""
        backoff = RetryDelay()
        while rows.num_rows:
            rows, refusal = await self._publish(publisher, rows)
            if refusal is None:
                continue
            self.counters.refused += 1
            wait_s = backoff.next_s()
            log(
                logging.WARNING,
                self.name,
                "edge_refused",
                f"the edge takes no messages, the link holds {rows.num_rows} and tries again in"
                f" {wait_s:.1f} s: {printable(refusal.message)}",
                code=refusal.code,
                held=rows.num_rows,
                wait_s=wait_s,
            )
            await asyncio.sleep(wait_s)

    async def _publish(
        self, publisher: AsyncPublisher, rows: pa.RecordBatch
    ) -> tuple[pa.RecordBatch, AckqError | None]:
        """The rows that the edge refused, and why."""
        # A queue with a bound may take a part of a batch, so there each row has its own answer.
        size = 1 if self._bounded else rows.num_rows
        parts = [rows.slice(at, size) for at in range(0, rows.num_rows, size)]
        answers = await asyncio.gather(
            *(publisher.publish_batch(part) for part in parts), return_exceptions=True
        )
        failed = [
            (part, error)
            for part, error in zip(parts, answers, strict=True)
            if isinstance(error, BaseException)
        ]
        for _, error in failed:
            if not isinstance(error, edge.PASSING):
                raise error
        if not failed:
            return rows.slice(0, 0), None
        refusal = failed[0][1]
        assert isinstance(refusal, AckqError)
        self._bounded = True
        left = pa.Table.from_batches([part for part, _ in failed]).combine_chunks()
        return left.to_batches()[0], refusal
