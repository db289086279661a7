"""A cluster of three RabbitMQ nodes on one machine, with queues replicated to all of them.

Invariant: they share a port mapper and a cookie, and nothing with another node of the machine; the
processes end with the context, by their process ids.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

import pika

from tests.eventually import eventually
from tests.wire.brokers.rabbitmq_server import RabbitMqServer, parameters

NODES: Final = 3
_FORM_S: Final = 240.0
_DISCOVERY: Final = "cluster_formation.peer_discovery_backend = classic_config\n"


class RabbitMqCluster:
    """A context manager that starts and stops the nodes in a folder.

    Attributes:
        nodes: Each can be killed and started again by itself.
    """

    def __init__(self, folder: Path) -> None:
        names = [f"ackq-cluster-{number}" for number in range(1, NODES + 1)]
        listed = (
            f"cluster_formation.classic_config.nodes.{number} = {name}@localhost\n"
            for number, name in enumerate(names, 1)
        )
        config = _DISCOVERY + "".join(listed)
        first = RabbitMqServer(folder / "1", name=names[0], config=config)
        self.nodes = [first] + [
            RabbitMqServer(folder / str(number), name=name, beside=first, config=config)
            for number, name in enumerate(names[1:], 2)
        ]
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            for node in self.nodes:
                # Stopped in reverse order, as the first node runs the port mapper of all.
                starting.callback(node.stop)
                node.launch()
            for node in self.nodes:
                node.wait_ready()
            self.nodes[0].control("await_online_nodes", str(NODES))
            self._stack = starting.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def declare_quorum(self, queue: str, leader: RabbitMqServer) -> None:
        """Declares a quorum queue with a member on each node, led by the given node."""
        with pika.BlockingConnection(parameters(leader.port)) as connection:
            connection.channel().queue_declare(
                queue,
                durable=True,
                arguments={
                    "x-queue-type": "quorum",
                    "x-quorum-initial-group-size": NODES,
                    "x-queue-leader-locator": "client-local",
                },
            )

    def leader(self, queue: str, ask: RabbitMqServer) -> RabbitMqServer:
        """The node that leads a quorum queue, according to another one; waits for an election."""

        def found() -> RabbitMqServer | None:
            listed = ask.control("list_queues", "--no-table-headers", "name", "leader")
            names = dict(line.split("\t") for line in listed.splitlines() if "\t" in line)
            return next((node for node in self.nodes if node.node == names.get(queue)), None)

        return eventually(f"a leader of {queue}", found, within_s=_FORM_S, every_s=0.5)
