"""The explorer by hand: `python -m tests.model --crashes 3 --deliveries 1 --deletions 1`.

Or of a link: `python -m tests.model --link content --messages aab --fault cuts=2`.
"""

import argparse
import sys

from ackq_broker.core.commands import LinkAck
from tests.model.broker import Broker
from tests.model.edge import Edge
from tests.model.explorer import explore
from tests.model.linking import Linking, flaw
from tests.model.rewinding import Rewinding
from tests.model.rewinding import flaw as rewinding_flaw
from tests.model.settling import Settling
from tests.model.world import Spark


def main():
    """Explores all worlds, prints the result, and returns true if a flaw was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", default="3", help="how many; of a link: their bodies")
    parser.add_argument("--bound", type=int, default=10_000_000, help="worlds at most")
    parser.add_argument("--settling", action="store_true", help="the query settles rows (S6)")
    parser.add_argument("--link", choices=("id", "content", "none"), help="a link, by its keys")
    parser.add_argument("--rewinds", type=int, help="the session retains, and is rewound (S14)")
    parser.add_argument("--stored", action="store_true", help="of a link: ack=stored")
    parser.add_argument("--fault", action="append", default=[], help="of a link: cuts=2, say")
    for fault, count in {"crashes": 3, "deliveries": 1, "deletions": 1, "operations": 0}.items():
        parser.add_argument(f"--{fault}", type=int, default=count)
    args = parser.parse_args()
    if args.link:
        found = of_a_link(args)
        print(found)
        return bool(found.wrong)
    faults = {"crashes": args.crashes, "deliveries": args.deliveries, "deletions": args.deletions}
    judge = None
    if args.rewinds is not None:
        spark, judge = Rewinding(Broker(), rewinds=args.rewinds, **faults), rewinding_flaw
    elif args.settling:
        spark = Settling(Broker(), operations=args.operations, **faults)
    else:
        spark = Spark(Broker(), **faults)
    found = explore(spark, int(args.messages), args.bound, judge)
    print(found)
    return bool(found.wrong)


def of_a_link(args):
    """Explores the worlds of a link."""
    faults = {name: int(count) for name, count in (each.split("=") for each in args.fault)}
    edge = Edge(args.link, LinkAck.STORED if args.stored else LinkAck.SETTLED)
    linking = Linking(edge, args.messages, together=sum(faults.values()), **faults)
    return explore(linking, bound=args.bound, judge=flaw(linking))


if __name__ == "__main__":
    sys.exit(main())
