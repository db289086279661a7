"""A Spark query from queue to queue whose source and sink are behind a network with faults.

    python -m tests.crash.network.spark --seed 1

The query is started again when it fails, as a supervisor would, and once more in calm. Then every
row stands in the target once, and nothing is left in the source (K1-K3).
"""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

from tests.crash.harness import Driver, fill, ids, in_queue, unacked
from tests.crash.network.timeouts import LOW
from tests.fakes import machine
from tests.fakes.faults import Schedule
from tests.fakes.relay import Relay

MESSAGES = 20_000
STARTS = 6


def main():
    """Runs one query, and prints what it met; the status is 1 if the books are wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    seed = parser.parse_args().seed
    from ackq.client import Admin
    from ackq_broker import embedded

    with tempfile.TemporaryDirectory() as folder:
        low = machine.with_limits(folder, LOW)
        with (
            embedded(Path(folder, "data"), env=low) as broker,
            closing(Relay(broker.endpoint, Schedule(seed))) as relay,
        ):
            names = ids(1, MESSAGES)
            fill(broker.endpoint, "in", names, frame=500)
            with Admin(broker.endpoint) as admin:
                admin.declare_queue("out")
            os.environ.update(low)  # Spark's processes notice a dead connection as soon
            driver = Driver(
                Path(folder, "run"), relay.endpoint, queue="in", target="out", max_messages=500
            )
            begun, status = time.monotonic(), 1
            while status:
                if driver.runs == STARTS:
                    relay.calm()
                status, _ = driver.run()
                assert not status or driver.runs <= STARTS, driver.output()
            found, left = in_queue(broker.endpoint, "out"), unacked(broker.endpoint, "in")
            struck = Counter(fault.kind for _, fault in relay.struck)
    lost = MESSAGES - len(found)
    doubled = found.total() - len(found)
    print(f"seed {seed}: {time.monotonic() - begun:.0f} s, {driver.runs} starts, {dict(struck)}")
    print(f"messages {MESSAGES}, lost {lost}, doubled {doubled}, left in the source {left}")
    return int(found != Counter(names) or left != (0, 0))


if __name__ == "__main__":
    sys.exit(main())
