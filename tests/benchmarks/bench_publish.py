"""The client's ways to publish persistent messages, against waiting for the confirm of each.

Invariant: every counted message was confirmed, so synced, within the time counted.
"""

from functools import partial

import harness
from ackq_sides import batches_streamed, confirm_each, confirms_streamed
from harness import Pair

HELP = "messages/s of batch and single publishes as a ratio to one confirm at a time"
OPTIONS = {"messages": (500_000, "rows of whole frames; of the other sides fewer")}
SMALL = (10, 100)
# The floors are set by the gain of streaming confirms elsewhere: a known broker with windowed
# confirms reached 10 times the rate of one at a time.
FLOORS = {"single publishes": 10, "batches": 100}


def run(args, endpoint):
    """Comparisons per body size: single publishes in a window, and batches of several sizes."""
    for size in args.sizes:
        body, frame = bytes(size), harness.bodies(harness.rows_per_frame(size), size)
        sides = {
            "one at a time": partial(confirm_each, endpoint, args.messages // 2_500, body),
            "single publishes": partial(confirms_streamed, endpoint, args.messages // 25, body),
            "batches": partial(
                batches_streamed, endpoint, args.messages // frame.num_rows or 1, frame
            ),
            **{
                f"batches of {rows}": partial(
                    batches_streamed, endpoint, args.messages // 100, harness.bodies(rows, size)
                )
                for rows in SMALL
            },
        }
        pairs = {
            f"publish, {size:,} B, {subject}": Pair(subject, "one at a time", FLOORS.get(subject))
            for subject in list(sides)[1:]
        }
        yield from harness.compare(sides, pairs, args.reps)
