"""Publishes and consumes a thousand messages with coroutines of one event loop.

    python jobs/examples/asyncio_client.py [--endpoint HOST:PORT]

Without an endpoint it starts a broker of its own.
"""

import argparse
import asyncio
from contextlib import nullcontext

from ackq.client import Admin, AsyncChannel, AsyncPublisher
from ackq_broker import embedded

QUEUE = "example.asyncio_client"
COUNT = 1_000


async def publish(endpoint: str) -> None:
    """Publishes half from waiting coroutines, half without waiting for each confirm."""
    async with AsyncPublisher(endpoint, routing_key=QUEUE) as publisher:
        await asyncio.gather(*(publisher.publish(f"order {n}") for n in range(COUNT // 2)))
        for n in range(COUNT // 2, COUNT):
            publisher.publish_nowait(f"order {n}")
            await publisher.drain()  # waits for room in the window


async def consume(endpoint: str) -> int:
    """Accepts the messages; returns their number."""
    accepted = 0
    async with AsyncChannel(endpoint) as channel:
        consumer = await channel.consume(QUEUE, mode="client")
        while accepted < COUNT and (message := await consumer.receive(timeout_s=30)):
            message.accept()
            accepted += 1
        await channel.flush()  # each accept has taken effect
    return accepted


def run(endpoint: str) -> None:
    """Publishes, consumes, and prints the counts."""
    admin = Admin(endpoint)
    admin.declare_queue(QUEUE)
    asyncio.run(publish(endpoint))
    accepted = asyncio.run(consume(endpoint))
    print(f"published={COUNT} accepted={accepted} left={admin.queue(QUEUE).ready}")


def main() -> None:
    """Runs on the broker of --endpoint, or on a temporary one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--endpoint", help="HOST:PORT of a running broker")
    args = parser.parse_args()
    with nullcontext(args) if args.endpoint else embedded() as broker:
        run(broker.endpoint)


if __name__ == "__main__":
    main()
