"""The ledger under fire: every confirmed message arrives once, whichever processes are killed.

A publisher with confirms fills a queue; one Spark moves it into a second queue and that one into a
Delta table, exactly once each, while broker, driver, executors, the source's reader and Python
workers are killed by SIGKILL, at random and at named points of the journal and of the micro-batch.
Then everything is drained and counted. The seed decides which process is killed, how and after how
long; the timing of the processes is not controlled.

    python -m tests.crash.ledger --minutes 30 --seed 7
"""

import hashlib
import json
import sys
import time
from collections import Counter, defaultdict

import pyarrow as pa

from ackq.client import Admin
from ackq_broker import embedded
from tests.crash import harness, points, standing
from tests.crash.consuming import AROUND_THE_SYNC
from tests.crash.driver_run import DriverRun
from tests.crash.harness import FRAME, Publishing, in_queue, last_error, messages, verdict

DRIVER = "tests.crash.ledger_driver"
QUEUES = ("in", "mid")
DRAIN_TIMEOUT_S = 1800
# A driver that works longer on its first batch counts as stuck.
STUCK_S = 420
MOST_IDLE = 10
JOURNAL_POINTS = AROUND_THE_SYNC
# Weights of the kinds of kills, in percent.
WEIGHTS = {
    "broker": 30,
    "task": 24,
    "driver at": 22,
    "executor": 8,
    "driver": 6,
    "jvm": 5,
    "reader": 5,
}
# The weights of a run that concentrates on the named points.
AT_POINTS = {"broker": 8, "task": 8, "driver at": 78, "driver": 3, "jvm": 3}
FATES = ("accepted",) * 16 + ("rejected", "rejected", "failed", "released")


class Fated(Publishing):
    """Publishes messages that have their fates in their bodies."""

    def __init__(self, endpoint, rate, settle):
        super().__init__("m", endpoint, FRAME / rate)
        self.settle = settle
        self.fates = {}

    def batch(self, names):
        told = [FATES[int(name[2:]) % len(FATES)] if self.settle else "accepted" for name in names]
        self.fates.update(zip(names, told, strict=True))
        bodies = [f"{name} {fate} ".encode() for name, fate in zip(names, told, strict=True)]
        return messages(names).set_column(0, "body", pa.array(bodies, pa.binary()))


class Run(DriverRun):
    """One run: its processes, schedule and figures."""

    def __init__(
        self,
        folder,
        seed,
        *,
        rate=200,
        settle=False,
        master=None,
        weights=None,
        at=(),
        once=(),
        say=print,
    ):
        super().__init__(folder, seed, say)
        self.settle = settle
        self.rate = rate
        self.flags = ["--settle"] if settle else []
        self.flags += ["--master", master] if master else []
        local = bool(master) and not master.startswith("local-cluster")
        self.weights = dict(weights or WEIGHTS)
        # Kinds of kills that come first, one of each in this order.
        self.once = list(once)
        special = points.SETTLING if settle else points.SINK
        every = points.SOURCE + points.COMMITTED * 2 + special * 2 + points.TABLE
        self.points = at or every
        if local:
            self.weights.pop("executor", None)
        self.stood = Counter()
        self.lost_commits = 0
        # Drivers in a row that ended by themselves without getting to work.
        self.idle_drivers = 0
        self.failpoint = None

    # --- the driver ---

    def start_driver(self, *more):
        """Starts a driver."""
        self.launch(DRIVER, "--endpoint", self.broker.endpoint, *self.flags, *more)
        self.started = time.monotonic()
        self.broker_died_at_start = False

    def batches(self):
        """The newest batch in each query's commit log."""
        return tuple(standing.newest(self.checkpoint(name) / "commits") for name in QUEUES)

    def checkpoint(self, name):
        """The checkpoint of the query that reads a queue."""
        return self.folder / f"checkpoint-{name}"

    def working(self):
        """Whether this driver has finished a batch of each query."""
        now = self.batches()
        return all(after > before for after, before in zip(now, self.batches_before, strict=True))

    def look_after_driver(self):
        """Restarts a driver that has ended; counts a death at a named point."""
        if self.driver.poll() is None:
            if self.working():
                self.idle_drivers = 0
            elif time.monotonic() - self.started > STUCK_S:
                raise AssertionError(f"the driver does not get to work: {self.log}")
            return
        at = self.died_at()
        if at:
            self.count(f"driver at {at}")
        elif self.driver.returncode != -9:
            said = f"the driver ended with {self.driver.returncode}: {last_error(self.log)}"
            self.note(said)
            self.idle_drivers += 1
            assert self.idle_drivers < MOST_IDLE, said
        self.replace_driver(at)

    def replace_driver(self, at=None):
        """Restarts the driver; logs the state of the last one's queries, which died at `at`."""
        self.end_driver()
        for name in QUEUES:
            where = standing.of(self.checkpoint(name), self.broker.endpoint, name)
            self.stood[where] += 1
            self.note(f"query {name}: {where}")
            lost = at == points.COMMIT_LOST and points.passed(self.arm) == name
            if lost and where == standing.NOT_ACCEPTED:
                batch = standing.lose_commit(self.checkpoint(name))
                self.lost_commits += 1
                self.note(f"query {name}: commits/{batch} is lost")
        self.start_driver()

    # --- the broker ---

    def look_after_broker(self):
        """Restarts a broker that died at a failpoint."""
        if not self.broker.alive():
            assert self.failpoint, "the broker died by itself"
            self.count(f"broker at {self.failpoint}")
            self.restart_broker()

    def restart_broker(self):
        """Restarts the broker after a moment, sometimes with a failpoint armed."""
        time.sleep(self.random.choice((0, 0, 0.3, 1.5)))
        self.failpoint = self.random.choice((None, *JOURNAL_POINTS)) if self.working() else None
        hit = self.random.randint(2, 150)
        self.broker.restart(
            env={"ACKQ_FAILPOINT": f"{self.failpoint}:{hit}"} if self.failpoint else {}
        )

    # --- the schedule ---

    def count(self, kind):
        """Counts one more kill."""
        self.once = [each for each in self.once if not kind.startswith(each)]
        super().count(kind)

    def strike(self):
        """Kills a process of a drawn kind, unless that kind is not at work yet."""
        drawn = self.random.choices(list(self.weights), list(self.weights.values()))
        kind = (self.once or drawn)[0]
        if kind == "broker":
            # After each of its starts the broker waits a heartbeat for the holder it knows (S3): a
            # new driver gets a session only if the broker lives that long.
            if not self.working():
                if self.broker_died_at_start:
                    return
                self.broker_died_at_start = True
            self.broker.kill()
            self.count("broker")
            self.restart_broker()
        elif kind in {"task", "executor"}:
            self.kill_one(kind)
        elif not self.working():
            return
        elif kind == "driver":
            self.count("driver")
            self.replace_driver()
        elif kind == "driver at":
            self.arm_one(self.points)
        else:
            self.kill_one(kind)

    def burn(self, seconds, pause_s):
        """Publishes; once the first driver works, kills for `seconds`, and each kind of `once`."""
        publishing = Fated(self.broker.endpoint, self.rate, self.settle)
        publishing.start()
        self.start_driver()
        end = strike_at = None
        while end is None or self.once or time.monotonic() < end:
            time.sleep(0.05)
            assert publishing.failure is None, publishing.failure
            self.look_after_broker()
            self.look_after_driver()
            if end is None and self.working():
                self.note("the first driver works")
                end = time.monotonic() + seconds
                strike_at = time.monotonic()
            if end is not None and time.monotonic() >= strike_at:
                self.strike()
                strike_at = time.monotonic() + self.random.expovariate(1 / pause_s)
        publishing.ended.set()
        self.end_driver()
        self.failpoint = None
        self.broker.restart(env={})
        publishing.join(2 * STUCK_S)
        assert publishing.failure is None, publishing.failure
        return publishing

    def go(self, seconds, pause_s):
        """Runs everything; returns the figures."""
        with embedded(data=self.folder / "data") as self.broker:
            with Admin(self.broker.endpoint) as admin:
                admin.declare_queue("mid")
                admin.declare_queue("in", **({"dead_letter_queue": "dead"} if self.settle else {}))
                if self.settle:
                    admin.declare_queue("dead")
            try:
                publishing = self.burn(seconds, pause_s)
                self.drain(DRAIN_TIMEOUT_S, "--max-messages", "20000")
                return self.figures(publishing)
            finally:
                self.end_driver()

    def figures(self, publishing):
        """The figures; each one in `WRONG` must be 0."""
        good = {name for name, fate in publishing.fates.items() if fate != "rejected"}
        bad = set(publishing.fates) - good
        table = Counter(json.loads((self.folder / "ledger.json").read_text()))
        dead = in_queue(self.broker.endpoint, "dead") if self.settle else Counter()
        with Admin(self.broker.endpoint) as admin:
            infos = [admin.queue(name) for name in QUEUES]
        attempts = Attempts(self.folder / "trace.jsonl")
        return {
            "messages": len(publishing.fates),
            "confirmed": publishing.confirmed,
            "table_rows": table.total(),
            "dead_letters": dead.total(),
            "kills": sum(self.kills.values()),
            "drivers": self.drivers,
            "batches": self.batches(),
            "attempts": attempts.attempts,
            "attempts_again": attempts.again,
            "unconfirmed": len(publishing.fates) - publishing.confirmed,
            "lost": len(good - set(table)) + len(bad - set(dead)),
            "duplicated": sum(n - 1 for n in table.values()) + sum(n - 1 for n in dead.values()),
            "strayed": len(set(table) - good) + len(set(dead) - bad),
            "unacked": sum(info.unacked for info in infos),
            "ready": sum(info.ready + info.delayed for info in infos),
            "batches_with_differing_rows": len(attempts.differing),
            "rows_in_two_batches": 0 if self.settle else attempts.rows_in_two_batches(),
        }


WRONG = (
    "unconfirmed",
    "lost",
    "duplicated",
    "strayed",
    "unacked",
    "ready",
    "batches_with_differing_rows",
    "rows_in_two_batches",
)


class Attempts:
    """The rows that all attempts of all tasks read: equal for an equal batch (K2).

    An attempt whose JVM died may see its input end early, at a frame: then its rows are the first
    of the others'. Their number, tags and delivery counts are compared all the same.
    """

    def __init__(self, file):
        self.attempts = self.again = 0
        self.rows = {}
        self.differing = []
        for line in file.read_text().splitlines():
            try:
                seen = json.loads(line)
            except ValueError:
                continue  # its writer was killed
            self._add((seen["query"], seen["batch"], seen["partition"]), seen["rows"])

    def _add(self, task, rows):
        self.attempts += 1
        before = self.rows.setdefault(task, rows)
        if before is rows:
            return
        self.again += 1
        short, long = sorted((before, rows), key=len)
        if digest(long[: len(short)]) != digest(short):
            self.differing.append(task)
        self.rows[task] = long

    def rows_in_two_batches(self):
        """The number of messages that one query had in two of its batches."""
        where = defaultdict(set)
        for (query, batch, _), rows in self.rows.items():
            for name, *_ in rows:
                where[query, name].add(batch)
        return sum(len(batches) > 1 for batches in where.values())


def digest(rows):
    """A hash of rows."""
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def main():
    """Runs the long form from the command line."""
    parser = harness.parser(__doc__)
    parser.add_argument("--pause", type=float, default=6, help="seconds between kills, on average")
    parser.add_argument("--rate", type=float, default=200, help="messages per second")
    parser.add_argument("--settle", action="store_true", help="the query decides fates (S6, K8)")
    parser.add_argument("--points", action="store_true", help="most kills at the named points")
    parser.add_argument(
        "--at",
        nargs="+",
        default=(),
        metavar="POINT",
        help="named points to kill at; all otherwise",
    )
    parser.add_argument("--master", help="of Spark; a local-cluster of two executors by default")
    args = parser.parse_args()
    folder = harness.new_folder("ledger", args.seed)
    run = Run(
        folder,
        args.seed,
        rate=args.rate,
        settle=args.settle,
        master=args.master,
        weights=AT_POINTS if args.points else None,
        at=tuple(args.at),
        say=harness.say,
    )
    figures = run.go(args.minutes * 60, args.pause)
    told = {"seed": args.seed, **figures, "kills_by_kind": run.kills}
    told["queries_of_dead_drivers"] = run.stood
    told["commits_lost"] = run.lost_commits
    print(json.dumps(told, indent=1))
    return verdict(figures, WRONG, folder)


if __name__ == "__main__":
    sys.exit(main())
