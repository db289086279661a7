"""The ledger of links under fire: kills of a link, the edge and RabbitMQ, and resets at any byte.

Run it for as long as wanted:

    python -m tests.crash.links --minutes 10 [--seed N]
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.crash.links.world import ALL, World


def burn(seed, seconds, folder, combinations=ALL):
    """A run; returns (what is wrong, the verdicts, the world)."""
    with World(seed, Path(folder), combinations) as world:
        verdicts = world.run(seconds)
        world.figures["resets at a byte"] = len(world.there.struck) + len(world.here.struck)
    wrong = [f"{each.name}: {verdict}" for each, verdict in verdicts.items() if verdict.wrong]
    return wrong + world.problems, verdicts, world


def main(arguments=None):
    """Runs from the command line; the status is 1 when something does not add up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    said = parser.parse_args(arguments)
    print(f"seed {said.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="ackq-links-", ignore_cleanup_errors=True) as folder:
        wrong, verdicts, world = burn(said.seed, 60 * said.minutes, folder)
        for each, found in verdicts.items():
            print(
                f"{each.name:26} published {found.published:6} accepted {found.accepted:6}"
                f" lost {found.lost} doubled {found.doubled} (allowed {found.allowed})"
            )
        shown = {k: v for k, v in sorted(world.figures.items()) if not k.startswith("accepted ")}
        print(", ".join(f"{name} {count}" for name, count in shown.items()))
        for each in wrong:
            print(f"WRONG {each}")
        if wrong:
            print((Path(folder) / "link.log").read_text()[-8000:])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
