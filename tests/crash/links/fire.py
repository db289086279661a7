"""The ledger of links under fire: every process on the way is killed, connections are reset.

Run it for as long as wanted:

    python -m tests.crash.links --minutes 10 [--seed N] [--without-spark]
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.crash.links.summary import lines, status
from tests.crash.links.world import ALL, TWELVE, World


def burn(seed, seconds, folder, combinations=ALL):
    """A run; returns (violations, the verdicts, the world)."""
    with World(seed, Path(folder), combinations) as world:
        verdicts = world.run(seconds)
    wrong = [f"{each.name}: {verdict}" for each, verdict in verdicts.items() if verdict.wrong]
    return wrong + world.problems, verdicts, world


def main(arguments=None):
    """Runs from the command line; the status is 1 on any violation."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--without-spark", action="store_true", help="twelve links, no driver")
    said = parser.parse_args(arguments)
    print(f"seed {said.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="ackq-links-", ignore_cleanup_errors=True) as folder:
        combinations = TWELVE if said.without_spark else ALL
        wrong, verdicts, world = burn(said.seed, 60 * said.minutes, folder, combinations)
        print(*lines(verdicts, world.figures), sep="\n")
        return status(wrong, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
