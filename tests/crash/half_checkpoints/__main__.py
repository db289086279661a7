"""A ledger of queries whose checkpoints lose their newest files; status 1 on any violation.

    python -m tests.crash.half_checkpoints --sequences 500 --seed 7

Each sequence has a queue and a query of its own, drawn from the seed: batches with rows and
without, some of them from a second source alone, stops, a sink that dies, and power losses, each of
which removes the newest offsets and commits. The sink records the id of each batch, and skips
batches that it has. A query that is refused goes on as the refusal says (S2, S9, S11, K1, K5).
"""

import argparse
import secrets
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ackq.client import Admin
from ackq_broker import embedded
from tests import prefork
from tests.crash import local_spark
from tests.crash.half_checkpoints.sequence import REFUSALS, Sequence
from tests.fakes import machine

# A query restarts sooner: the broker waits less for the process that ended.
LIMITS = {"HOLDER_CUT_GRACE_MS": 200, "UPTIME_TICK_MS": 100}
# Without S11 a batch id may read any lease, and an unread lease is accepted.
PLANTED = """
from ackq_broker.core.sessions import planned

planned.check_batch = planned.check_read = lambda *_: None
"""
ORDER = ("sequences", "power losses", "batches", "with rows", "empty", "skipped", "sink died")
WRONG = ("lost", "doubled", "failed")


def start_spark(folder, *, delta):
    """The Spark session of this process."""
    from ackq.spark import configure

    settings = {
        "spark.log.level": "OFF",
        # Tests have a JVM with one compiler (tests/conftest.py), whose code cache is too small.
        "spark.driver.extraJavaOptions": "-XX:ReservedCodeCacheSize=192m",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.ui.retainedExecutions": "10",
        "spark.local.dir": str(folder / "local"),
    }
    prefork.use_python()
    made = local_spark.builder("half checkpoints", "local[2]", settings, delta=delta)
    return configure(made).getOrCreate()


def run(spark, folder, args, say):
    """Runs all sequences; returns the totals."""
    totals = Counter()
    env = machine.with_limits(folder, LIMITS)
    if args.planted:
        env = machine.with_change(folder, PLANTED)
    with embedded(folder / "data", env=env) as broker, Admin(broker.endpoint) as admin:

        def one(number):
            sequence = Sequence(
                spark,
                admin,
                broker.endpoint,
                folder / f"s{number}",
                f"{args.seed}:{number}",
                delta=bool(args.delta) and number % args.delta == 0,
            )
            try:
                sequence.go()
            except Exception as error:  # noqa: BLE001 - the other sequences go on
                sequence.figures["failed"] = 1
                sequence.trace.append(f"{type(error).__name__}: {error}")
            if any(sequence.figures[name] for name in WRONG):
                say("\n".join([f"WRONG sequence {number}", *sequence.trace]))
            return sequence.figures

        numbers = range(args.first, args.first + args.sequences)
        with ThreadPoolExecutor(args.at_once) as pool:
            for done, figures in enumerate(pool.map(one, numbers), 1):
                totals += figures
                totals["sequences"] = done
                if done % 10 == 0:
                    say(line(args.seed, totals))
    return totals


def line(seed, totals):
    """The totals in one line."""
    more = ("messages", *WRONG, "doubled by a remedy", "released")
    counts = [f"{name} {totals[name]}" for name in (*ORDER, *more)]
    refusals = [f"{name} {totals[name]}" for name in REFUSALS if totals[name]]
    return f"seed {seed}: {', '.join(counts)}; refusals: {', '.join(refusals) or 'none'}"


def main():
    """Runs the long form from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sequences", type=int, default=500)
    parser.add_argument("--first", type=int, default=1, help="number of the first")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--delta", type=int, default=25, help="one of so many writes Delta")
    parser.add_argument("--at-once", type=int, default=4, help="sequences at once")
    parser.add_argument("--planted", action="store_true", help="the broker is without S11")
    args = parser.parse_args()

    def say(text):
        print(text, flush=True)

    with tempfile.TemporaryDirectory(prefix="ackq-half-") as made:
        folder = Path(made)
        spark = start_spark(folder, delta=bool(args.delta))
        totals = run(spark, folder, args, say)
        spark.stop()
    wrong = any(totals[name] for name in WRONG)
    say(f"{'WRONG' if wrong else 'OK'}: {line(args.seed, totals)}")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
