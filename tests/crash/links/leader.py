"""Kills the leader of a quorum queue under a link and Spark; no message is lost or doubled.

    python -m tests.crash.links.leader --minutes 10 [--seed N] [--ack stored]

Three RabbitMQ nodes, one queue with a member on each, and the rest of a `World`: a local broker, an
inbound link by a relay that leads to one of the nodes, as a load balancer would, and a Spark query
that appends messages to a Delta table. A publisher with confirms and ids goes on all the while, by
a node that lives. Each time the leader is killed: in turn it is a node that the link is not
connected to, and its own; and every other time, beginning with the first, Spark's driver is killed
with it. At the end each confirmed message is in the table, and each publish once (L9, L17, K1).
"""

import sys

from tests.crash.links.fault_run import command_line
from tests.crash.links.fire import judged
from tests.crash.links.queue_ledger import SPARK, Combination
from tests.crash.links.summary import lines
from tests.crash.links.world import World
from tests.eventually import eventually
from tests.wire.brokers.rabbitmq_cluster import RabbitMqCluster

# Messages that arrive before and after a kill, in part by the two nodes that are left.
BETWEEN = 100
_LIMIT_S = 600


class Cluster(World):
    """A world whose one queue has a member on each of three nodes.

    Args:
        seed: Seed of all decisions.
        folder: Folder for data and logs.
        ack: The link's acknowledgement mode.
    """

    def __init__(self, seed, folder, ack):
        self.combination = Combination("quorum", "ids", ack, SPARK)
        super().__init__(seed, folder, (self.combination,))

    def start_rabbit(self, stack):
        self.cluster = stack.enter_context(RabbitMqCluster(self.folder / "rabbitmq"))
        return self.cluster.nodes[0]

    def declare_there(self):
        self.cluster.declare_quorum(self.combination.name, self.rabbit)

    def kinds(self):
        return {"kill leader": self.kill_leader}

    def kill_leader(self):
        """Kills the leader in mid-transfer, and starts it once the others have gone on."""
        number = self.figures["kill leader"]
        leader = self.cluster.leader(self.combination.name, self.rabbit)
        at = self.cluster.nodes.index(leader) + 1
        other = self.cluster.nodes[at % len(self.cluster.nodes)]
        # The link's connection moves to the leader, or away from it.
        there = self.relays["there"]
        there.lead_to((leader if number % 2 else other).endpoint)
        self.reset("there")()
        self._come()
        self.rabbit = other
        leader.kill()
        if number % 2 == 0:
            self.figures["kill driver"] += self.kill_driver()
        there.lead_to(other.endpoint)
        self._come()
        leader.start()

    def _come(self):
        """Waits until more messages have arrived in the table."""
        least = self.accepted + BETWEEN
        eventually(
            "the messages", lambda: self.accepted >= least or self.problems, within_s=_LIMIT_S
        )


def main():
    """Runs from the command line; the status is 1 on any violation."""
    return command_line(
        __doc__,
        lambda said, seconds, folder: judged(Cluster(said.seed, folder, said.ack), seconds),
        lambda verdicts, world: lines(verdicts, world.figures),
        {"--ack": {"choices": ("settled", "stored"), "default": "settled"}},
    )


if __name__ == "__main__":
    sys.exit(main())
