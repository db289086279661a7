"""The ledger of rewinds: what was accepted is processed once more for each rewind (S13, S14, K15).

One Spark driver moves a queue to a Delta table and another one to a queue, while broker, driver and
tasks are killed by SIGKILL. Every now and then a session is rewound to a random batch, or its query
begins with a new checkpoint; the broker is killed before, amid or after that. In the end each
message is there once, and once more for each rewind that had it in its range.

    python -m tests.crash.rewinds --minutes 30 --seed 7
"""

import random
import shutil
import sys
import threading
import time
from collections import Counter
from contextlib import suppress

from ackq.client import Admin
from ackq.errors import AckqError
from ackq_broker import embedded
from tests.crash import fire, harness
from tests.crash.harness import Publishing, in_queue, verdict
from tests.crash.links.driver import DriverProcess
from tests.crash.links.table import TableRows, table_folder
from tests.eventually import eventually

TABLE, MOVED, OUT = "table", "moved", "out"
IDLE_S = 600
# What is killed beside a rewind.
BESIDE = ("nothing", "broker before", "broker amid", "broker after")


class Run:
    """One run: its broker, driver, schedule and figures."""

    def __init__(self, folder, seed, *, say=print):
        self.folder, self.say = folder, say
        self.random = random.Random(seed)
        self.kills, self.rewinds = Counter(), Counter()
        self.wanted = {TABLE: Counter(), MOVED: Counter()}

    def go(self, seconds, every_s, pause_s):
        """Kills for some seconds, with a rewind every `every_s`; returns the figures."""
        with (
            embedded(self.folder / "data") as self.broker,
            Admin(self.broker.endpoint) as self.admin,
        ):
            for queue in (*self.wanted, OUT):
                self.admin.declare_queue(queue)
            endpoint = self.broker.endpoint
            self.publishings = [Publishing(name, endpoint, 0.2, name) for name in self.wanted]
            self.driver = DriverProcess(
                self.folder / "spark",
                endpoint,
                to_table=[TABLE],
                to_queue=[(MOVED, OUT)],
                retain=True,
            )
            for publishing in self.publishings:
                publishing.start()
            self.driver.start()
            try:
                end = time.monotonic() + seconds
                while time.monotonic() < end:
                    self.kill_for(every_s, pause_s)
                    self.drain()
                    self.rewind()
                return self.figures()
            finally:
                self.driver.kill()

    def kill_for(self, seconds, pause_s):
        """Kills something every now and then, once the driver works."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(self.random.uniform(0, 2 * pause_s))
            self.driver.look_after()
            if self.driver.working:
                kind = self.random.choice(("broker", "driver", "task"))
                self.kills[kind] += getattr(self, f"kill_{kind}")()
                self.say(f"kills {dict(self.kills)}")

    def kill_broker(self):
        self.broker.kill()
        self.broker.restart()
        return 1

    def kill_driver(self):
        self.driver.kill()
        self.driver.start()
        return 1

    def kill_task(self):
        found = fire.targets(self.driver.pid, "task")
        return bool(found and fire.kill(self.random.choice(found)))

    def drain(self):
        """Stops publishing, and waits until the driver has accepted everything."""
        for publishing in self.publishings:
            publishing.pause()

        def left():
            self.driver.look_after()
            queues = [self.admin.queue(name) for name in self.wanted]
            return [each.ready + each.unacked for each in queues]

        eventually("all is accepted", left, lambda found: not any(found), within_s=IDLE_S)

    def rewind(self):
        """Rewinds both sessions, or gives their queries new checkpoints."""
        beside = self.random.choice(BESIDE)
        renewed = self.random.random() < 0.3
        # While the broker is killed amid a rewind nobody may read what it made ready.
        if renewed or beside == "broker amid":
            self.driver.kill()
        for name in self.wanted:
            batches = self.admin.retained(name).batches
            first = 0 if renewed else self.random.randrange(len(batches))
            chosen = self.ids(name, batches[first].after_tag, batches[-1].last_tag)
            self.wanted[name].update(chosen)
            if beside == "broker before":
                self.kill_broker()
            if renewed:
                shutil.rmtree(self.folder / "spark" / f"checkpoint-{name}")
            elif beside == "broker amid":
                self.amid(name, batches[first].batch_id, len(chosen))
            else:
                done = self.admin.rewind_session(name, batch=batches[first].batch_id)
                assert done.messages == len(chosen), (done, len(chosen))
            if beside == "broker after":
                self.kill_broker()
        self.rewinds[("a new checkpoint" if renewed else "a rewind") + f", {beside}"] += 1
        self.say(f"rewinds {dict(self.rewinds)}")
        if renewed or beside == "broker amid":
            self.driver.start()
        for publishing in self.publishings:
            publishing.paused.clear()

    def amid(self, name, batch, messages):
        """Rewinds while the broker is killed, so that only its queue says whether it was done."""

        def call():
            with suppress(AckqError):
                self.admin.rewind_session(name, batch=batch)

        thread = threading.Thread(target=call)
        thread.start()
        time.sleep(self.random.uniform(0, 0.01))
        self.kill_broker()
        thread.join()
        if self.admin.queue(name).ready == 0:
            self.admin.rewind_session(name, batch=batch)
        assert self.admin.queue(name).ready == messages

    def ids(self, name, after, last):
        """The ids of the messages in retained batches."""
        incarnation = self.admin.session(name).incarnation
        rows = self.admin.browse_lease(
            name,
            first_tag=after + 1,
            last_tag=last,
            columns=["message_id"],
            incarnation=incarnation,
        )
        return {each for batch in rows for each in batch.column(0).to_pylist()}

    def figures(self):
        """The figures; those of `WRONG` must be 0."""
        self.drain()
        for publishing in self.publishings:
            publishing.ended.set()
            publishing.join()
        self.driver.kill()
        table = TableRows(table_folder(self.driver.folder, TABLE))
        table.read()
        found = {
            TABLE: Counter(name for name, _ in table.rows),
            MOVED: in_queue(self.broker.endpoint, OUT),
        }
        once = {each.queue: Counter(each.names) for each in self.publishings}
        wanted = {name: self.wanted[name] + once[name] for name in found}
        return {
            "messages": sum(map(len, once.values())),
            "rewound": sum(each.total() for each in self.wanted.values()),
            "kills": sum(self.kills.values()),
            "rewinds": sum(self.rewinds.values()),
            "lost": sum((wanted[name] - found[name]).total() for name in found),
            "doubled": sum((found[name] - wanted[name]).total() for name in found),
        }


WRONG = ("lost", "doubled")


def main():
    """Runs the ledger."""
    parser = harness.parser(__doc__)
    parser.add_argument("--every", type=float, default=120, help="seconds between two rewinds")
    parser.add_argument("--pause", type=float, default=5, help="seconds between two kills")
    args = parser.parse_args()
    folder = harness.new_folder("rewinds", args.seed)
    run = Run(folder, args.seed, say=lambda text: harness.say(f"{time.strftime('%X')} {text}"))
    figures = run.go(args.minutes * 60, args.every, args.pause)
    print(figures, dict(run.kills), dict(run.rewinds))
    sys.exit(verdict(figures, WRONG, folder))


if __name__ == "__main__":
    main()
