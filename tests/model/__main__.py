"""The explorer by hand: `python -m tests.model --crashes 3 --deliveries 1 --deletions 1`."""

import argparse
import sys

from tests.model.broker import Broker
from tests.model.explorer import explore
from tests.model.settling import Settling
from tests.model.world import Spark


def main():
    """Explores, tells what it found, and fails when something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=3)
    parser.add_argument("--bound", type=int, default=10_000_000, help="worlds at most")
    parser.add_argument("--settling", action="store_true", help="the query settles rows (S6)")
    for fault, count in {"crashes": 3, "deliveries": 1, "deletions": 1, "operations": 0}.items():
        parser.add_argument(f"--{fault}", type=int, default=count)
    args = parser.parse_args()
    faults = {"crashes": args.crashes, "deliveries": args.deliveries, "deletions": args.deletions}
    if args.settling:
        spark = Settling(Broker(), operations=args.operations, **faults)
    else:
        spark = Spark(Broker(), **faults)
    found = explore(spark, args.messages, args.bound)
    print(found)
    return bool(found.wrong)


if __name__ == "__main__":
    sys.exit(main())
