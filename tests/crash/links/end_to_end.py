"""From RabbitMQ to Artemis over two links and Spark, exactly once under kills of any process.

    python -m tests.crash.links.end_to_end --minutes 10 [--seed N]

A publisher with confirms and ids fills a quorum queue of RabbitMQ; an inbound link moves it to the
local broker, a Spark query from there to a second queue of that broker (ackq's source and sink),
and an outbound link from there to Artemis, which remembers ids (L23). The links, the local broker,
Spark's driver, RabbitMQ and Artemis are killed, and connections are reset at any byte. In the end
each message that RabbitMQ had confirmed is in Artemis's queue once, and nothing is left before it.
"""

import sys

from tests.crash.links.chain import Chain
from tests.crash.links.fault_run import burnt, command_line, delivered_lines


def lines(found, chain):
    """The result of a run, as lines of text."""
    yield from delivered_lines(found, chain)
    figures = chain.figures
    yield f"published again {figures['published again']}, stored at the edge {figures['stored']}"


def burn(said, seconds, folder):
    """A run; returns (violations, content of Artemis's queue, the chain)."""
    return burnt(Chain(said.seed, folder), seconds)


if __name__ == "__main__":
    sys.exit(command_line(__doc__, burn, lines))
