"""Publishes a thousand messages, waits until they are on disk, and accepts each of them.

    python jobs/examples/publish_consume.py [--endpoint HOST:PORT]

Without an endpoint it starts a broker of its own.
"""

import argparse
from contextlib import nullcontext
from itertools import islice

from ackq.client import Admin, Channel, Publisher
from ackq_broker import embedded

QUEUE = "example.publish_consume"
COUNT = 1_000


def run(endpoint: str) -> None:
    """Publishes, consumes, and prints the counts."""
    admin = Admin(endpoint)
    admin.declare_queue(QUEUE)
    with Publisher(endpoint) as publisher:
        futures = [publisher.publish(f"order {n}", queue=QUEUE) for n in range(COUNT)]
        confirms = [future.result() for future in futures]  # each is on disk
    with Channel(endpoint) as channel:
        consumer = channel.consume(QUEUE, mode="client", prefetch=200)
        accepts = [message.accept() for message in islice(consumer, COUNT)]
        channel.flush()  # each accept has taken effect
    print(f"confirmed={len(confirms)} accepted={len(accepts)} left={admin.queue(QUEUE).ready}")


def main() -> None:
    """Runs on the broker of --endpoint, or on a temporary one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--endpoint", help="HOST:PORT of a running broker")
    args = parser.parse_args()
    with nullcontext(args) if args.endpoint else embedded() as broker:
        run(broker.endpoint)


if __name__ == "__main__":
    main()
