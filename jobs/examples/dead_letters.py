"""Rejects some messages, shows why they died, and brings them back with a redrive.

    python jobs/examples/dead_letters.py [--endpoint HOST:PORT]

Without an endpoint it starts a broker of its own.
"""

import argparse
from contextlib import nullcontext
from itertools import islice

from ackq.client import Admin, Channel, Publisher
from ackq_broker import embedded

QUEUE, DEAD = "example.dead_letters", "example.dead_letters.dead"
REASON = "no price"


def consume(endpoint: str, count: int, bad: str) -> None:
    """Settles a number of messages: rejects those whose body ends with some text."""
    with Channel(endpoint) as channel:
        consumer = channel.consume(QUEUE, mode="client", outcomes=["rejected"])
        for message in islice(consumer, count):
            if message.body.decode().endswith(bad):
                message.reject(REASON)
            else:
                message.accept()
        channel.flush()  # each outcome has taken effect


def run(endpoint: str) -> None:
    """Makes dead letters, redrives them, and prints the counts."""
    admin = Admin(endpoint)
    admin.declare_queue(DEAD)
    admin.declare_queue(QUEUE, dead_letter_queue=DEAD)
    with Publisher(endpoint, routing_key=QUEUE) as publisher:
        for number in range(100):
            publisher.publish(f"order {number}")
    consume(endpoint, 100, bad="7")
    letters = [row for batch in admin.browse(DEAD) for row in batch.to_pylist()]
    for letter in letters[:3]:
        print(letter["body"], dict(letter["headers"])["ackq-dead-reason"])
    moved = admin.redrive(DEAD, cause="rejected", reason=REASON)
    consume(endpoint, moved.messages, bad="none")  # their cause is repaired now
    left = admin.queue(QUEUE).ready + admin.queue(DEAD).ready
    print(f"rejected={len(letters)} redriven={moved.messages} left={left}")


def main() -> None:
    """Runs on the broker of --endpoint, or on a temporary one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--endpoint", help="HOST:PORT of a running broker")
    args = parser.parse_args()
    with nullcontext(args) if args.endpoint else embedded() as broker:
        run(broker.endpoint)


if __name__ == "__main__":
    main()
