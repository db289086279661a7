"""Publishes pairs of messages in transactions, of which one is rolled back.

    python jobs/examples/transactions.py [--endpoint HOST:PORT]

Without an endpoint it starts a broker of its own.
"""

import argparse
from contextlib import nullcontext

from ackq.client import Admin, TransactionalPublisher
from ackq.errors import TransactionRolledBackError
from ackq_broker import embedded

QUEUE = "example.transactions"


def transfer(publisher: TransactionalPublisher, amount: int) -> None:
    """Publishes a debit and its credit, both or none; raises ValueError without an amount."""
    with publisher.transaction():
        publisher.publish(f"debit {amount}")
        if not amount:
            raise ValueError("nothing to transfer")
        publisher.publish(f"credit {amount}")


def run(endpoint: str) -> None:
    """Makes ten transfers, and prints the counts."""
    admin = Admin(endpoint)
    admin.declare_queue(QUEUE)
    before = admin.queue(QUEUE).ready
    amounts, rolled_back = list(range(10)), 0
    with TransactionalPublisher(endpoint, routing_key=QUEUE) as publisher:
        while amounts:
            try:
                transfer(publisher, amounts[0])
            except ValueError:
                rolled_back += 1
            except TransactionRolledBackError:  # the connection was lost: run it again
                continue
            amounts.pop(0)
    messages = admin.queue(QUEUE).ready - before
    print(f"committed={10 - rolled_back} rolled_back={rolled_back} messages={messages}")


def main() -> None:
    """Runs on the broker of --endpoint, or on a temporary one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--endpoint", help="HOST:PORT of a running broker")
    args = parser.parse_args()
    with nullcontext(args) if args.endpoint else embedded() as broker:
        run(broker.endpoint)


if __name__ == "__main__":
    main()
