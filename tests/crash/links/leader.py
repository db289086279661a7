"""Kills the leader of a quorum queue under a link and Spark; no message is lost or doubled.

    python -m tests.crash.links.leader                     # a few kills: some minutes
    python -m tests.crash.links.leader --messages 600 --kills 1 --ack stored    # the short form

Three RabbitMQ nodes, one queue with a member on each, a local broker, an inbound link by a relay
that leads to one of the nodes, as a load balancer would, and a Spark query that appends messages to
a Delta table. A publisher with confirms and ids goes on all the while, by a node that lives. Each
time the leader is killed: in turn it is a node that the link is not connected to, and its own; and
every other time, beginning with the first, Spark's driver is killed with it. At the end each
confirmed message is in the table, and each publish once (L9, L17, K1): ids that RabbitMQ has twice,
as their publisher had no answer and sent again, are counted separately.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pika

from ackq.client import Admin
from ackq_broker import embedded
from tests.crash.links.driver import DriverProcess
from tests.crash.links.numbered import NumberedPublishing
from tests.crash.links.table import TableRows, table_folder
from tests.eventually import eventually
from tests.fakes.relay import Relay
from tests.wire.brokers.rabbitmq_cluster import RabbitMqCluster
from tests.wire.brokers.rabbitmq_server import parameters
from tests.wire.links.conftest import LinkProcess

QUEUE, HERE = "ledger", "q"
PREFETCH = 1_000
# Between two publishes: a rate that Spark can keep pace with on a busy machine.
PAUSE_S = 0.01
_LIMIT_S = 600


class Transfer:
    """The way from the cluster to the table.

    Args:
        folder: Folder for data and logs.
        cluster: The RabbitMQ cluster; its first node leads the queue.
        ack: The link's acknowledgement mode.
    """

    def __init__(self, folder, cluster, edge, ack):
        self._cluster = cluster
        self.leader = cluster.nodes[0]
        self._relay = Relay(self.leader.endpoint)
        with Admin(edge.endpoint) as admin:
            admin.declare_queue(HERE)
        self.link = LinkProcess(
            folder,
            edge=edge.endpoint,
            direction="in",
            broker=f"amqp://{self._relay.endpoint}",
            broker_queue=QUEUE,
            queue=HERE,
            ack=ack,
            prefetch=PREFETCH,
        )
        self.driver = DriverProcess(folder / "spark", edge.endpoint, to_table=[HERE])
        self.table = TableRows(table_folder(self.driver.folder, HERE))
        self.drivers_killed = 0

    def start(self):
        """Starts link and driver, and waits until Spark works."""
        self.link.start()
        self.driver.start()
        self._wait(lambda: self.driver.working)

    def kill(self, number, between):
        """Kills the leader in mid-transfer, with the driver every other time, and goes on."""
        leader = self.leader
        # In turn another node than the link's own, and that one.
        self._move(leader if number % 2 == 0 else self._other(leader))
        at = self.come(between)
        leader.kill()
        with_driver = number % 2 == 1
        if with_driver:
            self.driver.kill()
            self.driver.start()
            self.drivers_killed += 1
        what = "leader, and Spark's driver" if with_driver else "leader"
        _say(f"kill {number}: {leader.node}, {what}, with {at:,} in the table")
        self._relay.lead_to(self._other(leader).endpoint)
        # Without the former leader, by the two nodes that are left.
        self.come(between // 2)
        self.leader = self._cluster.leader(QUEUE, self._other(leader))
        _say(f"  {self.leader.node} leads, the transfer goes on")
        leader.start()

    def come(self, more):
        """Waits until `more` rows are added to the table; returns their total."""
        least = self.table.read() + more
        self._wait(lambda: self.table.read() >= least)
        return len(self.table.rows)

    def finish(self, confirmed):
        """Waits until all rows are in the table and acknowledged; returns (left, exit status)."""
        self._wait(lambda: self.table.read() and self._ids >= confirmed)
        deadline = time.monotonic() + _LIMIT_S
        while True:
            self._wait(lambda: self._left() == 0)
            status = self.link.stop()
            left = self._left()
            # The queue does not count what it delivered and the link has not taken.
            if not left or status or time.monotonic() > deadline:
                break
            self.link.start()
        self.driver.kill()
        self.table.read()
        return left, status

    def end(self):
        """Ends the processes that still run."""
        self.driver.kill()
        self.link.end()
        self._relay.close()

    @property
    def _ids(self):
        return {int(name) for name, _ in self.table.rows}

    def _move(self, node):
        """Moves the link's connection to a node."""
        self._relay.lead_to(node.endpoint)
        self._relay.cut()
        self._relay.heal()

    def _other(self, node):
        nodes = self._cluster.nodes
        return nodes[(nodes.index(node) + 1) % len(nodes)]

    def _left(self):
        with pika.BlockingConnection(parameters(self.leader.port)) as connection:
            found = connection.channel().queue_declare(QUEUE, passive=True)
        return found.method.message_count

    def _wait(self, ready):
        def looked_after():
            self.driver.look_after()
            return ready()

        eventually("the transfer", looked_after, within_s=_LIMIT_S, every_s=0.2)


def run(folder, *, messages, kills, ack="settled"):
    """Runs a transfer in a folder; returns the figures and the violations."""
    with RabbitMqCluster(folder / "rabbitmq") as cluster, embedded(folder / "edge") as edge:
        cluster.declare_quorum(QUEUE, cluster.nodes[0])
        transfer = Transfer(folder, cluster, edge, ack)
        ports = [node.port for node in cluster.nodes]
        publishing = NumberedPublishing(
            ports, QUEUE, PAUSE_S, lambda: len(transfer.table.rows), tell_attempts=True
        )
        try:
            publishing.start()
            transfer.start()
            between = messages // (kills + 1)
            for number in range(1, kills + 1):
                transfer.kill(number, between)
            transfer.come(between)
            publishing.over.set()
            publishing.join(_LIMIT_S)
            left, status = transfer.finish(publishing.confirmed)
        finally:
            publishing.over.set()
            transfer.end()
        for reason in transfer.driver.ended:
            _say(f"a driver ended by itself: {reason}")
    figures, wrong = judge(transfer.table.rows, publishing.confirmed, left, status)
    figures["sent_again"] = publishing.sent - len(publishing.confirmed)
    figures |= {"kills": kills, "drivers_killed": transfer.drivers_killed}
    return figures, wrong


def judge(rows, confirmed, left, status):
    """The figures of a run, and its violations (L6, L9).

    Args:
        rows: (id, body) of each row of the table; the body says which publish it was.
        confirmed: The numbers that RabbitMQ has confirmed.
        left: Number of messages left in RabbitMQ.
        status: The exit status of the link.
    """
    publishes = Counter(rows)
    ids = {int(name) for name, _ in rows}
    figures = {
        "confirmed": len(confirmed),
        "in_the_table": len(rows),
        "lost": len(confirmed - ids),
        "doubled": len(rows) - len(publishes),
        "published_twice": len(publishes) - len(ids),
        "left": left,
    }
    wrong = [f"{name}: {figures[name]}" for name in ("lost", "doubled", "left") if figures[name]]
    if status:
        wrong.append(f"the link's exit status is {status}")
    return figures, wrong


def _say(line):
    print(line, flush=True)


def main():
    """Runs it in a temporary folder; exit status 1 on any violation."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=5_000, help="about so many")
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--ack", choices=("settled", "stored"), default="settled")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ackq-leader-") as folder:
        figures, wrong = run(
            Path(folder), messages=options.messages, kills=options.kills, ack=options.ack
        )
    _say(" ".join(f"{name}={value}" for name, value in figures.items()))
    for each in wrong:
        _say(f"WRONG: {each}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
