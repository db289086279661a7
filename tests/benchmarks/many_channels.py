"""One queue to many channels, by the protocol's frames: thousands of clients' threads do not fit.

Invariant: every channel has one consumer with the same prefetch, so that frames are of one size
whatever the number of channels; counted messages were delivered once and accepted.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Coroutine
from typing import Any

import grpc
import grpc.aio
import harness
from harness import Measurement

from ackq import limits
from ackq.v1 import consuming_pb2 as pb
from ackq.wire import frame

MESSAGES = 50_000
PREFETCH = 50
_METHOD = "/ackq.v1.ConsumingService/Consume"
# Streams of a connection: a client has no more either.
_PER_CONNECTION = 100


def share(endpoint: str, channels: int, size: int) -> Measurement:
    """Takes messages by many channels while they are published."""
    return asyncio.run(_share(endpoint, channels, size))


async def _share(endpoint: str, channels: int, size: int) -> Measurement:
    async with contextlib.AsyncExitStack() as stack:
        queue = stack.enter_context(harness.queue(endpoint))
        count = _Count(MESSAGES)
        connections = [
            await stack.enter_async_context(_connection(endpoint, number))
            for number in range((channels + _PER_CONNECTION - 1) // _PER_CONNECTION)
        ]
        tasks = []
        for at in range(channels):
            consumer = _Consumer(connections[at // _PER_CONNECTION], count)
            await consumer.open(queue)
            tasks.append(asyncio.create_task(consumer.run()))
        with harness.clocked(MESSAGES) as found:
            await asyncio.to_thread(harness.fill, endpoint, queue, rows=MESSAGES, size=size)
            await _first(count.done.wait(), *tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return found[0]


async def _first(done: Coroutine[Any, Any, Any], *tasks: asyncio.Task[None]) -> None:
    """Waits for the end; raises the error that ended a channel before it."""
    end = asyncio.create_task(done)
    ended, _ = await asyncio.wait([end, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in ended:
        await task


def _connection(endpoint: str, number: int) -> grpc.aio.Channel:
    """A connection of its own: equal arguments would share one."""
    return grpc.aio.insecure_channel(endpoint, [("ackq.benchmark", number)])


class _Count:
    """The number of messages that are not accepted yet."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.done = asyncio.Event()

    def accepted(self, messages: int) -> None:
        self.left -= messages
        if not self.left:
            self.done.set()


class _Consumer:
    """A channel with one consumer that accepts each delivery as it comes."""

    def __init__(self, connection: grpc.aio.Channel, count: _Count) -> None:
        self._count = count
        self._writing = asyncio.Lock()
        self._settlements = 0
        self._next_tag = 1
        self._unanswered: dict[int, int] = {}
        self._call = connection.stream_stream(
            _METHOD,
            request_serializer=pb.ConsumeRequest.SerializeToString,
            response_deserializer=frame.deserializer(pb.ConsumeHeader),
        )()

    async def open(self, queue: str) -> None:
        """Opens the channel and starts the consumer."""
        opening = pb.ChannelOpen(channel_id=secrets.token_bytes(16), window_messages=10_000)
        await self._write(open=opening)
        assert (await self._call.read()).header.WhichOneof("kind") == "opened"
        subscribe = pb.Subscribe(consumer="c", queue=queue, prefetch=PREFETCH)
        await self._write(subscribe=subscribe)

    async def run(self) -> None:
        """Accepts deliveries, and sends heartbeats; runs until it is cancelled."""
        alive = asyncio.create_task(self._live())
        try:
            while True:
                answer = await self._call.read()
                if answer is grpc.aio.EOF:
                    raise RuntimeError(
                        f"The broker ended a channel: {await self._call.details()}. Is the machine"
                        " too busy for signs of life?"
                    )
                header = answer.header
                kind = header.WhichOneof("kind")
                if kind == "delivery":
                    await self._accept(header.delivery.runs)
                elif kind == "settled":
                    self._answered(header.settled.number)
        finally:
            alive.cancel()
            self._call.cancel()

    async def _accept(self, runs: pb.DeliveryRuns) -> None:
        """Settles the new tags: without a transport ack in time some are delivered again (C11)."""
        ends = [first + rows for first, rows in zip(runs.first_tag, runs.rows, strict=True)]
        await self._write(transport_ack=pb.TransportAck(delivery_tag=ends[-1] - 1))
        new = [
            (max(first, self._next_tag), end)
            for first, end in zip(runs.first_tag, ends, strict=True)
            if end > self._next_tag
        ]
        if not new:
            return
        self._next_tag = ends[-1]
        self._settlements += 1
        self._unanswered[self._settlements] = sum(end - first for first, end in new)
        await self._write(
            settle=pb.Settle(
                outcome=pb.OUTCOME_ACCEPTED,
                number=self._settlements,
                first_tag=[first for first, _ in new],
                rows=[end - first for first, end in new],
            )
        )

    def _answered(self, number: int) -> None:
        """Counts the settlements up to a number as done."""
        for each in [each for each in self._unanswered if each <= number]:
            self._count.accepted(self._unanswered.pop(each))

    async def _write(self, **kind: Any) -> None:
        async with self._writing:
            await self._call.write(pb.ConsumeRequest(**kind))

    async def _live(self) -> None:
        while True:
            await asyncio.sleep(limits.HEARTBEAT_SEND_MS / 1000)
            await self._write(heartbeat=pb.ChannelHeartbeat())
