"""The client message by message, against pika with a real RabbitMQ.

Invariant: both sides publish persistent messages to a durable queue and settle each, over one
connection, from one thread of the application.
"""

from functools import partial

import ackq_sides as ours
import harness
import rabbitmq_sides as theirs
import synced_round_trip
from harness import Figures, Pair

HELP = "publishing and consuming message by message as ratios to pika with RabbitMQ"
OPTIONS = {
    "sizes": ([100], "body sizes"),
    "messages": (50_000, "in a stream; a fiftieth where each is waited for"),
}
ACK_EVERY = 100


def run(args, endpoint):
    """Comparisons per body size; without RabbitMQ there are none."""
    with theirs.running() as port, synced_round_trip.running() as sync_port:
        for size in args.sizes if port else ():
            many, few = (args.messages, bytes(size)), (args.messages // 50, bytes(size))
            take, take_100 = (partial(theirs.consume, every=n) for n in (1, ACK_EVERY))
            for title, subject, anchor in (
                ("publish, confirms streamed", ours.confirms_streamed, theirs.confirms_streamed),
                ("publish, a commit for each", ours.commit_each, theirs.commit_each),
                ("receive() and accept each", partial(ours.receive, every=1), take),
                ("callback and accept each", ours.callback, take),
                (
                    f"receive() and accept {ACK_EVERY} at once",
                    partial(ours.receive, every=ACK_EVERY),
                    take_100,
                ),
            ):
                given = few if "commit" in title else many
                yield from harness.compare(
                    {
                        "RabbitMQ": partial(anchor, port, *given),
                        "ackq": partial(subject, endpoint, *given),
                    },
                    {f"{title}, {size:,} B": Pair("ackq", "RabbitMQ")},
                    args.reps,
                )
            times = Figures(f"publish, waiting for each confirm, {size:,} B", "ms")
            sides = {
                "RabbitMQ": partial(theirs.confirm_each, port, *few),
                "synced round trip": partial(synced_round_trip.each, sync_port, *few),
                "ackq": partial(ours.confirm_each, endpoint, *few),
            }
            yield from harness.compare(
                {name: partial(_timed, times, name, side) for name, side in sides.items()},
                harness.against("ackq", list(sides)[:2], times.title),
                args.reps,
            )
            yield times.without_warm_up()


def _timed(times, name, side):
    """Measures a side, and adds the percentiles of a repetition."""
    seconds = []
    measured = side(seconds)
    times.add(harness.percentiles(seconds, name))
    return measured
