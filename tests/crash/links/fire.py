"""The ledger of links under fire: every process on the way is killed, connections are reset.

Run it for as long as wanted:

    python -m tests.crash.links --minutes 10 [--seed N] [--without-spark]
"""

import sys
from pathlib import Path

from tests.crash.links.fault_run import command_line
from tests.crash.links.summary import lines
from tests.crash.links.world import ALL, TWELVE, World


def burn(seed, seconds, folder, combinations=ALL):
    """A run; returns (violations, the verdicts, the world)."""
    return judged(World(seed, Path(folder), combinations), seconds)


def judged(world, seconds):
    """A run of a world; returns (violations, the verdicts, the world)."""
    with world:
        verdicts = world.run(seconds)
    wrong = [f"{each.name}: {verdict}" for each, verdict in verdicts.items() if verdict.wrong]
    return wrong + world.problems, verdicts, world


def main():
    """Runs from the command line; the status is 1 on any violation."""

    def burnt(said, seconds, folder):
        return burn(said.seed, seconds, folder, TWELVE if said.without_spark else ALL)

    return command_line(
        __doc__,
        burnt,
        lambda verdicts, world: lines(verdicts, world.figures),
        {"--without-spark": {"action": "store_true", "help": "twelve links, no driver"}},
    )


if __name__ == "__main__":
    sys.exit(main())
