"""One queue to many channels, by the protocol's frames: thousands of clients' threads do not fit.

Invariant: every channel has one consumer with the same prefetch, so that frames are of one size
whatever the number of channels; counted messages were delivered once and accepted.
"""

import asyncio
import contextlib
import itertools
import secrets

import grpc.aio
import harness

from ackq import limits
from ackq.client import Admin
from ackq.v1 import consuming_pb2 as pb
from ackq.wire import frame
from tests.eventually import equals, eventually_async

MESSAGES = 50_000
PREFETCH = 50
_METHOD = "/ackq.v1.ConsumingService/Consume"
# Streams of a connection: a client has no more either.
_PER_CONNECTION = 100
_POLL_S = 0.01
_LONGEST_S = 600.0


def share(endpoint, channels, size):
    """Takes messages by many channels while they are published."""
    return asyncio.run(_share(endpoint, channels, size))


async def _share(endpoint, channels, size):
    async with contextlib.AsyncExitStack() as stack:
        queue = stack.enter_context(harness.queue(endpoint))
        admin = stack.enter_context(Admin(endpoint))
        consumers = []
        for number in range(channels):
            if number % _PER_CONNECTION == 0:
                # Equal arguments would share a connection.
                connection = grpc.aio.insecure_channel(endpoint, [("ackq.benchmark", number)])
                await stack.enter_async_context(connection)
            call = connection.stream_stream(
                _METHOD,
                request_serializer=pb.ConsumeRequest.SerializeToString,
                response_deserializer=frame.deserializer(pb.ConsumeHeader),
            )()
            opening = pb.ChannelOpen(channel_id=secrets.token_bytes(16), window_messages=10_000)
            await call.write(pb.ConsumeRequest(open=opening))
            assert (await call.read()).header.WhichOneof("kind") == "opened"
            subscribe = pb.Subscribe(consumer="c", queue=queue, prefetch=PREFETCH)
            await call.write(pb.ConsumeRequest(subscribe=subscribe))
            consumers.append(asyncio.create_task(_consume(call)))
        with harness.clocked(MESSAGES) as found:
            await asyncio.to_thread(harness.fill, endpoint, queue, rows=MESSAGES, size=size)
            accepted = eventually_async(
                "all accepted",
                lambda: admin.queue(queue).accepted,
                equals(MESSAGES),
                every_s=_POLL_S,
                within_s=_LONGEST_S,
            )
            ends = [asyncio.create_task(accepted), *consumers]
            ended, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for each in ended:
                await each  # raises the error that ended a channel before
        for each in consumers:
            each.cancel()
        await asyncio.gather(*consumers, return_exceptions=True)
    return found[0]


async def _consume(call):
    """Accepts each delivery as it comes, and sends heartbeats; runs until it is cancelled."""
    writing, settlements, next_tag = asyncio.Lock(), itertools.count(1), 1

    async def write(**kind):
        async with writing:
            await call.write(pb.ConsumeRequest(**kind))

    async def live():
        while True:
            await asyncio.sleep(limits.HEARTBEAT_SEND_MS / 1000)
            await write(heartbeat=pb.ChannelHeartbeat())

    alive = asyncio.create_task(live())
    try:
        while (answer := await call.read()) is not grpc.aio.EOF:
            runs = answer.header.delivery.runs
            ends = [first + rows for first, rows in zip(runs.first_tag, runs.rows, strict=True)]
            # Without a transport ack in time some are delivered again (C11).
            firsts = [max(first, next_tag) for first in runs.first_tag]
            new = [(first, end - first) for first, end in zip(firsts, ends, strict=True)]
            new = [run for run in new if run[1] > 0]
            if new:
                next_tag = ends[-1]
                await write(transport_ack=pb.TransportAck(delivery_tag=ends[-1] - 1))
                tags, rows = zip(*new, strict=True)
                settled = {"number": next(settlements), "first_tag": tags, "rows": rows}
                await write(settle=pb.Settle(outcome=pb.OUTCOME_ACCEPTED, **settled))
        raise RuntimeError(
            f"The broker ended a channel: {await call.details()}. Is the machine too busy for signs"
            " of life?"
        )
    finally:
        alive.cancel()
        call.cancel()
