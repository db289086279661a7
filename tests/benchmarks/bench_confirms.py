"""The classic comparison: persistent publishes one by one, in transactions and with confirms.

Invariant: all sides publish the same messages to a durable queue, and counted messages were synced
within the time counted. RabbitMQ's own two figures are added if it is installed; they have no
bound. Rates are compared, so the commits are fewer.

The gain of streaming is bounded against one synced round trip of this machine: against a commit for
each message the ratio falls when commits get faster, which is no loss.
"""

import statistics
from functools import partial

import ackq_sides
import harness
import rabbitmq_sides
import synced_round_trip
from harness import Pair

HELP = "10,000 persistent publishes one by one: streamed with confirms against waiting for each"
OPTIONS = {"sizes": ([100], "body sizes"), "messages": (10_000, "a tenth of them with commits")}
# Multiple of one synced round trip, where that takes `ROUND_TRIP_S` or longer. A disk or a cache
# that answers sooner would require more messages/s than one thread of Python hands over one by one,
# so there the floor is lower in proportion.
FLOOR = 100
ROUND_TRIP_S = 0.002
COMMIT, STREAMED, TRIP = "commit for each", "streamed confirms", synced_round_trip.NAME


def run(args, endpoint):
    """Comparisons for each body size; also RabbitMQ's, if it is installed."""
    with synced_round_trip.running() as trip, rabbitmq_sides.running() as port:
        for size in args.sizes:
            many, few = (args.messages, bytes(size)), (args.messages // 10, bytes(size))
            sides = {
                COMMIT: partial(ackq_sides.commit_each, endpoint, *few),
                TRIP: partial(synced_round_trip.each, trip, *few, []),
                STREAMED: partial(ackq_sides.confirms_streamed, endpoint, *many),
            }
            pairs = {
                f"ackq, {size:,} B": Pair(STREAMED, COMMIT),
                f"ackq, {size:,} B, against a round trip": Pair(STREAMED, TRIP),
            }
            if port:
                theirs = f"RabbitMQ, {STREAMED}", f"RabbitMQ, {COMMIT}"
                sides[theirs[0]] = partial(rabbitmq_sides.confirms_streamed, port, *many)
                sides[theirs[1]] = partial(rabbitmq_sides.commit_each, port, *few)
                pairs[f"RabbitMQ, {size:,} B, beside it"] = Pair(*theirs)
                for ours, each in zip((STREAMED, COMMIT), theirs, strict=True):
                    pairs[f"{ours}, {size:,} B: ackq / RabbitMQ"] = Pair(ours, each)
            found = harness.compare(sides, pairs, args.reps)
            seconds = statistics.median(
                each.seconds["wall"] / each.rows for each in found[1].anchors
            )
            found[1].floor = FLOOR * min(1.0, seconds / ROUND_TRIP_S)
            yield from found
