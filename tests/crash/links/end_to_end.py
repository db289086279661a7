"""From RabbitMQ to Artemis over two links and Spark, exactly once under kills of any process.

    python -m tests.crash.links.end_to_end --minutes 10 [--seed N]

A publisher with confirms and ids fills a quorum queue of RabbitMQ; an inbound link moves it to the
local broker, a Spark query from there to a second queue of that broker (ackq's source and sink),
and an outbound link from there to Artemis, which remembers ids (L23). The links, the local broker,
Spark's driver, RabbitMQ and Artemis are killed, and connections are reset at any byte. In the end
each message that RabbitMQ had confirmed is in Artemis's queue once, and nothing is left before it.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.crash.links.chain import Chain
from tests.crash.links.summary import fault_lines, status


def burn(seed, seconds, folder):
    """A run; returns (violations, content of Artemis's queue, the chain)."""
    with Chain(seed, Path(folder)) as chain:
        found = chain.run(seconds)
    return ([f"{found}"] if found.wrong else []) + chain.problems, found, chain


def main(arguments=None):
    """Runs from the command line; the status is 1 if a message is not there exactly once."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    said = parser.parse_args(arguments)
    print(f"seed {said.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="ackq-chain-", ignore_cleanup_errors=True) as folder:
        wrong, found, chain = burn(said.seed, 60 * said.minutes, folder)
        print(*fault_lines(chain.figures), sep="\n")
        print(
            f"published again {chain.figures['published again']},"
            f" stored at the edge {chain.figures['stored']}"
        )
        print(", ".join(f"{name} {value}" for name, value in found._asdict().items()))
        return status(wrong, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
