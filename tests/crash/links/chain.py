"""A chain under faults: RabbitMQ, a link, the local broker, Spark, a second link, Artemis."""

from contextlib import suppress

import pika

from tests.crash.links.fault_run import QueryRun, delivered
from tests.crash.links.numbered import NumberedPublishing
from tests.eventually import eventually
from tests.fakes.certificates import Authority
from tests.wire.brokers.rabbitmq_server import RabbitMqServer, parameters
from tests.wire.links.amqp1.artemis import Artemis
from tests.wire.links.amqp1.servers import DEAD_LETTERS, PASSWORD, QUEUES, USER
from tests.wire.links.managed.node import password_file

QUEUE = "orders"
PAUSE_S = 0.03


def compared(rows, confirmed):
    """Compares rows, (id, body), with the confirmed numbers; the next number may be there."""
    return delivered(
        [name for name, _ in rows],
        {str(number) for number in confirmed},
        {str(len(confirmed))},
        {name for name, body in rows if name.encode() != body},
    )


class Chain(QueryRun):
    """Messages with ids from RabbitMQ to Artemis, each exactly once.

    Args:
        seed: Seed of all decisions.
        folder: Folder for data and logs.
    """

    def links(self, stack):
        from tests.wire.links.amqp1.peer import Peer  # `--help` needs no client of AMQP 1.0

        self.artemis = stack.enter_context(
            Artemis(self.folder / "artemis", Authority(self.folder / "authority"))
        )
        self.peer = Peer(self.artemis, QUEUES[0])
        self.rabbit = stack.enter_context(RabbitMqServer(self.folder / "rabbitmq"))
        there = self.relay(stack, "there", self.rabbit.endpoint)
        beyond = self.relay(stack, "artemis", f"127.0.0.1:{self.artemis.port}")
        quorum = {"x-queue-type": "quorum"}
        self._call(lambda channel: channel.queue_declare(QUEUE, durable=True, arguments=quorum))
        # A queue is declared before it is on disk: a killed node could lose it.
        self.rabbit.evaluate("mnesia:sync_log().")
        inbound = {"broker": f"amqp://127.0.0.1:{there.port}", "broker-queue": QUEUE}
        outbound = {"protocol": "amqp1", "broker": f"amqp://{USER}@127.0.0.1:{beyond.port}"}
        outbound |= {"password-file": password_file(self.folder, PASSWORD)}
        return inbound, outbound | {"broker-queue": self.peer.queue}

    def run(self, seconds):
        """Runs faults for `seconds`; returns the result in Artemis."""
        publishing = NumberedPublishing(
            self.rabbit.port, QUEUE, PAUSE_S, lambda: self.figures["written"]
        )
        self.burn(publishing, seconds)
        self.figures["published again"] = publishing.sent - len(publishing.confirmed)
        if dead := self.peer.browse(DEAD_LETTERS):
            self.report(f"{len(dead)} dead letters in Artemis")
        return compared(self._rows_there(publishing.confirmed), publishing.confirmed)

    def left_there(self):
        # A node that was killed counts none until the queue has its leader again; nor does it give
        # back to a link that waits before it connects.
        found = self._queue_there()
        return "" if found.consumer_count and not found.message_count else f"RabbitMQ: {found}"

    def given_back(self):
        return self._queue_there().message_count

    # --- inside ---

    def kinds(self):
        return {
            **super().kinds(),
            "kill rabbitmq": self.kill_and_start(self.rabbit),
            "kill artemis": self.kill_and_start(self.artemis),
        }

    def _queue_there(self):
        return self._call(lambda channel: channel.queue_declare(QUEUE, passive=True)).method

    def _rows_there(self, confirmed):
        """The rows in Artemis's queue, (id, body), taken until all are there, and once more."""
        wanted, rows = {str(number) for number in confirmed}, []

        def all_came():
            rows.extend((each.id, bytes(each.body)) for each in self.peer.take())
            return wanted <= {name for name, _ in rows}

        with suppress(AssertionError):  # what is missing is lost
            eventually("the rows", all_came)
        all_came()
        return rows

    def _call(self, work):
        """The result of `work` on a channel of RabbitMQ."""
        with pika.BlockingConnection(parameters(self.rabbit.port)) as connection:
            return work(connection.channel())
