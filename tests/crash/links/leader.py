"""The leader of a quorum queue is killed under a link, again and again; the ledger must add up.

    python -m tests.crash.links.leader                     # a few kills: some minutes
    python -m tests.crash.links.leader --messages 500 --kills 1    # the short form

Three RabbitMQ nodes, one queue with a member on each, an edge, and an inbound link by a relay that
leads to one of the nodes, as a load balancer would. A publisher with confirms goes on all the
while, by a node that lives. Each time the leader is killed: in turn it is the node that the link is
connected to, and another one. At the end each confirmed message is at the edge; how often one is
there twice is told, and bounded (L9, L17).
"""

import argparse
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path

import pika
from pika.exceptions import AMQPError

from ackq.client import Admin
from ackq_broker import embedded
from tests.fakes.relay import Relay
from tests.wire.brokers.rabbitmq_cluster import RabbitMqCluster
from tests.wire.brokers.streams import until
from tests.wire.links.conftest import LinkProcess

QUEUE = "ledger"
PREFETCH = 200
_LIMIT_S = 300
_PAUSE_S = 0.002


class Publishing(threading.Thread):
    """Publishes messages whose id and body are a number, by whichever node confirms them.

    Attributes:
        confirmed: The numbers that are.
        sent: How many publishes there were; one without an answer is sent again.
        over: Set to end it.
    """

    def __init__(self, ports):
        super().__init__(name="publishing", daemon=True)
        self._ports = ports
        self.confirmed = set()
        self.sent = 0
        self.over = threading.Event()

    def run(self):
        attempt = 0
        while not self.over.is_set():
            port = self._ports[attempt % len(self._ports)]
            attempt += 1
            try:
                with pika.BlockingConnection(
                    pika.ConnectionParameters("127.0.0.1", port, heartbeat=10)
                ) as connection:
                    self._publish(connection.channel())
            except (AMQPError, OSError):
                self.over.wait(0.1)

    def _publish(self, channel):
        channel.confirm_delivery()
        while not self.over.wait(_PAUSE_S):
            number = len(self.confirmed)
            properties = pika.BasicProperties(message_id=str(number), delivery_mode=2)
            self.sent += 1
            channel.basic_publish("", QUEUE, str(number).encode(), properties, mandatory=True)
            self.confirmed.add(number)


def run(folder, *, messages, kills):
    """Runs it in a folder; the figures, and what is wrong."""
    with RabbitMqCluster(folder / "rabbitmq") as cluster, embedded(folder / "edge") as edge:
        leader = cluster.nodes[0]
        cluster.declare_quorum(QUEUE, leader)
        relay = Relay(leader.endpoint)
        link = _link(folder, relay, edge)
        try:
            with Admin(edge.endpoint) as admin:
                publishing = Publishing([node.port for node in cluster.nodes])
                publishing.start()
                between = messages // (kills + 1)
                for kill in range(1, kills + 1):
                    # In turn another node than the link's own, and that one.
                    _move(relay, leader if kill % 2 == 0 else _other(cluster, leader))
                    at = _come(admin, between)
                    leader.kill()
                    _say(f"kill {kill}: {leader.node}, leader, with {at:,} at the edge")
                    relay.lead_to(_other(cluster, leader).endpoint)
                    # Without the leader that was: by the two nodes that are left.
                    _come(admin, between // 2)
                    dead, leader = leader, cluster.leader(QUEUE, _other(cluster, leader))
                    _say(f"  {leader.node} leads, the transfer goes on")
                    dead.start()
                _come(admin, between)
                publishing.over.set()
                publishing.join(_LIMIT_S)
                until(lambda: {*_ids(admin)} >= publishing.confirmed, _LIMIT_S, 1.0)
                until(lambda: _left(leader) == 0, _LIMIT_S, 0.5)
                status = link.stop()
                left = _left(leader)
                times = Counter(_ids(admin))
        finally:
            link.end()
            relay.close()
    return judge(times, publishing.confirmed, publishing.sent, kills, left, status)


def _move(relay, node):
    """The link goes on by a node."""
    relay.lead_to(node.endpoint)
    relay.cut()
    relay.heal()


def _come(admin, more):
    """Waits until so many more are at the edge; how many are then."""
    least = admin.queue("q").published + more
    until(lambda: admin.queue("q").published >= least, _LIMIT_S)
    return admin.queue("q").published


def judge(times, confirmed, sent, kills, left, status):
    """The figures of a run, and what of it no order of events explains (L9)."""
    doubled = sum(times.values()) - len(times)
    figures = {
        "confirmed": len(confirmed),
        "sent_again": sent - len(confirmed),
        "at_the_edge": sum(times.values()),
        "lost": len(confirmed - set(times)),
        "doubled": doubled,
        "left": left,
    }
    wrong = []
    if figures["lost"]:
        wrong.append(f"lost: {sorted(confirmed - set(times))[:10]}")
    # Each kill may be a cut of the link, and its move before that is one.
    most = 2 * kills * PREFETCH + figures["sent_again"]
    if doubled > most:
        wrong.append(f"{doubled} doubled, and {most} at most are explained")
    if left or status:
        wrong.append(f"{left} left there; the link's exit status is {status}")
    return figures, wrong


def _link(folder, relay, edge):
    with Admin(edge.endpoint) as admin:
        admin.declare_queue("q")
    link = LinkProcess(
        folder,
        edge=edge.endpoint,
        direction="in",
        broker=f"amqp://{relay.endpoint}",
        broker_queue=QUEUE,
        queue="q",
        ack="stored",
        prefetch=PREFETCH,
    )
    link.start()
    return link


def _other(cluster, node):
    return cluster.nodes[(cluster.nodes.index(node) + 1) % len(cluster.nodes)]


def _ids(admin):
    for batch in admin.browse("q", columns=["message_id"]):
        yield from map(int, batch["message_id"].to_pylist())


def _left(node):
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port)) as connection:
        found = connection.channel().queue_declare(QUEUE, passive=True)
    return found.method.message_count


def _say(line):
    print(line, flush=True)


def main():
    """Runs it in a temporary folder; exit status 1 when the ledger does not add up."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=5_000, help="about so many")
    parser.add_argument("--kills", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ackq-leader-") as folder:
        figures, wrong = run(Path(folder), messages=options.messages, kills=options.kills)
    _say(" ".join(f"{name}={value}" for name, value in figures.items()))
    for each in wrong:
        _say(f"WRONG: {each}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
