"""Rounds of clients over a network with faults; exit status 1 on any violation.

    python -m tests.crash.network --minutes 10 --seed 1
    python -m tests.crash.network --rounds 1 --seed 17 --clients sink --faults half-open

A round has one broker, one client of each kind, and its own seed, counted up from the one given. A
client's actions and the faults of its connections follow from the seed; a failing round prints the
faults that struck.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from ackq_broker import embedded
from tests.crash.network import consuming, publishing, rounds, sessions, timeouts
from tests.fakes.faults import KINDS


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--rounds", type=int, help="so many rounds, instead of minutes")
    parser.add_argument("--seconds", type=float, default=10, help="of faults in each round")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", nargs="+", help="of these kinds alone")
    parser.add_argument("--faults", nargs="+", choices=KINDS, default=list(KINDS))
    return parser.parse_args()


def main():
    """Runs rounds, prints each one's result, and sums them up."""
    options = arguments()
    timeouts.lower()
    kinds = [
        kind
        for module in (publishing, consuming, sessions)
        for kind in module.ACTORS
        if not options.clients or kind.kind in options.clients
    ]
    guard, figures, struck = rounds.Guard(), Counter(), Counter()
    end = time.monotonic() + options.minutes * 60
    seed, failed = options.seed, []
    while seed - options.seed < options.rounds if options.rounds else time.monotonic() < end:
        with tempfile.TemporaryDirectory() as folder, embedded(Path(folder, "data")) as broker:
            actors = [
                kind(broker.endpoint, seed, guard, options.seconds, options.faults)
                for kind in kinds
            ]
            begun = time.monotonic()
            wrong = rounds.play(broker.endpoint, actors, guard, options.seconds)
        print(f"seed {seed}: {time.monotonic() - begun:.1f} s", flush=True)
        print(*rounds.told(actors), *(f"  WRONG {each}" for each in wrong), sep="\n", flush=True)
        for each in actors:
            figures.update({f"{each.kind}: {name}": n for name, n in each.figures.items()})
            struck.update(f"{each.kind}: {fault.kind}" for _, fault in each.relay.struck)
        failed += [seed] if wrong else []
        seed += 1
    for title, counted in (("figures", figures), ("faults", struck)):
        print(title, *(f"  {name} {n}" for name, n in sorted(counted.items())), sep="\n")
    print("longest", *(f"  {what} {took:.1f} s" for what, took in guard.longest.items()), sep="\n")
    print(f"WRONG in seeds {failed}" if failed else f"OK: seeds {options.seed} to {seed - 1}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
