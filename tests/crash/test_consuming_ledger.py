"""Consuming under kills and cuts: the ledger finds no violation; and it finds planted ones.

The long form, over many seeds, each printed before it begins:

    python -m tests.crash.test_consuming_ledger --minutes 10 [--seed N]
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.crash.consuming import crash
from tests.crash.settlements import Delivery, Ledger
from tests.sizes import sized

RUN_S = 40


@pytest.mark.crash
@pytest.mark.timeout(1800)
def test_the_ledger_adds_up(tmp_path):
    """Q7, C4, C7, C11-C13, C15, C17: no message is lost or doubled under kills and cuts.

    Brokers are killed, connections are cut and held, outcomes are random. Every confirmed message
    is in one place: accepted, in the queue, in the dead-letter queue.
    """
    seed = time.time_ns() % 1_000_000
    print("seed", seed)
    wrong, ledger = crash(seed, sized(5, 12), tmp_path / "data")
    assert wrong == [], f"seed {seed}: {dict(ledger.figures)}"
    assert ledger.figures["accepted done"] > 0


# --- the ledger itself ---


def history(*deliveries, dead=(), confirmed=True):
    """The violations that a ledger finds for message `m` with these deliveries.

    Each is (count, begun_at, outcome, told, told_at), on a channel of its own.
    """
    ledger = Ledger(delivery_limit=1)
    ledger.publish(["m"])
    if confirmed:
        ledger.confirm(["m"])
    for channel, (count, begun_at, outcome, told, told_at) in enumerate(deliveries, 1):
        ledger.deliver(
            Delivery("m", count, count > 1, channel, 1, begun_at, begun_at, outcome, told, told_at)
        )
    for reason, count in dead:
        ledger.bury("m", reason, count)
    return [each.split(": ")[1] for each in ledger.wrong()]


ACCEPTED = (1, 1.0, "accepted", "done", 2.0)


@pytest.mark.parametrize(
    "fields",
    [
        {"deliveries": [ACCEPTED]},
        {"deliveries": [], "confirmed": False},
        {"deliveries": [(1, 1.0, "accepted", "unknown", 2.0)]},
        {"deliveries": [(1, 1.0, "", "", 0), (2, 3.0, "accepted", "done", 4.0)]},
        {"deliveries": [(1, 1.0, "rejected", "done", 2.0)], "dead": [("rejected", 1)]},
        {
            "deliveries": [(1, 1.0, "failed", "done", 2.0), (2, 1.0, "failed", "unknown", 2.0)],
            "dead": [("delivery_limit", 2)],
        },
        # Read late, from a stream that was cut before its message was delivered again.
        {"deliveries": [(2, 5.0, "accepted", "done", 6.0), (1, 4.0, "", "", 0)]},
    ],
)
def test_histories_that_add_up(fields):
    """C15: an unknown settlement may have either result, and a late read is no violation."""
    assert history(*fields.pop("deliveries"), **fields) == []


@pytest.mark.parametrize(
    ("deliveries", "dead", "wrong"),
    [
        ([], [], "is lost"),
        ([(1, 1.0, "accepted", "refused", 2.0)], [], "is lost"),
        ([(1, 1.0, "released", "done", 2.0)], [], "is lost"),
        ([(1, 1.0, "accepted", "unknown", 2.0), (2, 3.0, "", "", 0)], [], "is lost"),
        ([ACCEPTED], [("rejected", 1)], "is in 2 places"),
        ([ACCEPTED, (2, 0.0, "accepted", "done", 4.0)], [], "is in 2 places"),
        ([ACCEPTED, (2, 0.0, "", "", 0)], [], "came again, as [channel 2 tag 1 count 2], after"),
        ([(2, 1.0, "accepted", "done", 2.0), (1, 3.0, "", "", 0)], [], "came again, as"),
        ([(2, 1.0, "", "", 0), (1, 3.0, "accepted", "done", 4.0)], [], "counts down from"),
        ([(1, 0.0, "", "", 0), ACCEPTED], [], "has count 1 twice"),
        ([(1, 1.0, "rejected", "done", 2.0)], [], "is not in the dead-letter queue"),
        ([(1, 1.0, "released", "done", 2.0)], [("rejected", 1)], "died of nothing"),
        ([(1, 1.0, "failed", "done", 2.0)], [("delivery_limit", 1)], "died of nothing"),
    ],
)
def test_histories_that_do_not_add_up(deliveries, dead, wrong):
    """C4, C7, C13, Q7: each violation is found, and named."""
    assert any(each.startswith(wrong) for each in history(*deliveries, dead=dead))


def main():
    """Runs the long form from the command line."""
    parser = argparse.ArgumentParser(description="Consuming under kills and cuts.")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, help="this seed, instead of new ones")
    options = parser.parse_args()
    end = time.monotonic() + options.minutes * 60
    failed, runs, total = False, 0, Counter()
    while time.monotonic() < end:
        seed = options.seed if options.seed is not None else time.time_ns() % 1_000_000
        print(f"seed {seed}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            wrong, ledger = crash(seed, min(RUN_S, end - time.monotonic()), Path(folder, "data"))
        print(f"  {figures(ledger.figures)}")
        for each in wrong:
            print(f"  WRONG {each}", flush=True)
        failed, runs = failed or bool(wrong), runs + 1
        total.update(ledger.figures)
    print(f"in {runs} runs: {figures(total)}")
    return int(failed)


def figures(counts):
    """All counts on one line; `kill` and `failpoint` are the deaths of brokers."""
    return ", ".join(f"{name} {n}" for name, n in sorted(counts.items()))


if __name__ == "__main__":
    sys.exit(main())
