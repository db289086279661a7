"""Every failpoint of the journal: a broker under load is killed there, and loses no message.

Publishers, consumers with random outcomes, transient messages and backups go on through all kills
(`tests.crash.consuming`); the files of the broker are small, so that each process lifetime reaches
every step.

    python -m tests.crash.disk.failpoints --rounds 3 [--seed N]
"""

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

from ackq.client import Admin, Publisher, close_channels
from ackq.errors import AckqError, BrokerUnavailableError
from ackq_broker import embedded
from ackq_broker.journal import POINTS
from tests.crash.consuming import PATIENT_MS, Actor, Run
from tests.crash.harness import fill, ids, in_queue, messages
from tests.wire.links.accepting import COLUMNS, Accepting, rows_of

SMALL_FILES = Path(__file__).with_name("small_files")
# Points before there is a journal; the broker gets a directory whose parent exists.
AT_BIRTH = POINTS[
    POINTS.index("before_make_directory_data") : POINTS.index("after_rename_format") + 1
]
# Points of a broker that has a journal.
IN_LIFE = tuple(point for point in POINTS if "make_directory_" not in point or "backup" in point)
# A point that is reached only where another process died before; and where.
LEFT_BY = {"before_unlink_format": "before_rename_format"}
# A broker that does not reach its point is stopped, as the stop reaches other points: after this
# many seconds, answers, backups, snapshots and dead segments (each becomes a spare or is deleted).
# A busy machine needs longer for those: up to the last value.
LIFE_S, ANSWERS, BACKUPS, SNAPSHOTS, DEAD_SEGMENTS, LONGEST_S = 6, 2_000, 2, 3, 4, 300
# A dead segment is certainly deleted only if a backup has it, too: two spares are kept.
DELETES_SEGMENT = "unlink_segment"
LOOK_S = 0.1
OFTEN = ("write_segment", "sync_data_segment", "write_transient")
KILLED = "killed by SIGKILL"
BACKUP_EVERY = 5
# Payload bytes of accepted messages that a session retains: three batches, and some.
RETAINED = 15_000


def environment(folder, failpoint=""):
    """The environment of a broker with small files that makes backups in a folder."""
    armed = {"ACKQ_FAILPOINT": failpoint} if failpoint else {}
    path = os.pathsep.join([str(SMALL_FILES), *filter(None, sys.path)])
    return {"PYTHONPATH": path, "ACKQ_BROKER_BACKUP_DIR": str(folder / "backups"), **armed}


class Operating(Actor):
    """Makes backups, and publishes and purges transient messages."""

    def act(self):
        with (
            Admin(self.relay.endpoint) as admin,
            Publisher(
                self.relay.endpoint,
                routing_key="volatile",
                persistent=False,
                mandatory=False,
                retry_total_ms=PATIENT_MS,
            ) as out,
        ):
            turn = 0
            while not self.run_.stopping.wait(0.1):
                for _ in range(20):
                    out.publish(bytes(4096))
                turn += 1
                with suppress(AckqError):
                    admin.declare_queue("volatile", durable=False)
                    admin.purge_queue("volatile")
                    if not turn % BACKUP_EVERY:
                        # It would keep the segments that it shares from being overwritten.
                        shutil.rmtree(admin.backup(f"b-{turn}").directory)
                        self.ledger.figures["backups"] += 1


class Retaining(Actor):
    """Accepts batches of a session that retains some, and reads these again (S13)."""

    def act(self):
        read = Accepting(self.relay.endpoint, "retained", retain_bytes=RETAINED)
        patient = {"routing_key": "retained", "retry_total_ms": PATIENT_MS}
        with Admin(self.relay.endpoint) as admin, Publisher(self.relay.endpoint, **patient) as out:
            figures = self.ledger.figures
            # Also after the last kill, which may come before a batch is accepted.
            while not self.run_.stopping.wait(0.2) or not figures["retained batches read"]:
                first = len(read.rows) + 1
                out.publish_batch(messages(ids(first, first + 19), 200)).result()
                read.step()
                # The last one is not accepted yet.
                if accepted := read.batches[-3:-1]:
                    with suppress(BrokerUnavailableError):
                        self._look_back(admin, *self.rng.choice(accepted))

    def _look_back(self, admin, session, incarnation, after, last, rows):
        tags = {"first_tag": after + 1, "last_tag": last, "incarnation": incarnation}
        if rows_of(admin.browse_lease(session, columns=COLUMNS, **tags)) != rows:
            self.ledger.report(f"batch ({after}, {last}] is not as it was")
        self.ledger.figures["retained batches read"] += 1


class Deaths:
    """Kills the broker at one point after another; `figures["killed"]` counts the points.

    Args:
        folder: The folder of the run.
        points: The points, of `IN_LIFE`.
    """

    def __init__(self, folder, points, run, _relays):
        self.folder = folder
        self.points = points
        self.broker = run.broker
        self.ledger = run.ledger
        self.rng = random.Random(f"{run.seed} deaths")

    def go_on(self, _seconds):
        """Kills the broker at every point; it serves again at the end."""
        for point in self.points:
            hit = self.rng.randint(1, 40) if point.endswith(OFTEN) else self.rng.choice((1, 1, 2))
            if point in LEFT_BY:
                # The other process leaves one file only.
                self._die_at(LEFT_BY[point], 1)
                hit = 1
            if self._die_at(point, hit) or (hit > 1 and self._die_at(point, 1)):
                self.ledger.figures["killed"] += 1
            else:
                self.ledger.report(f"{point} was not met")
        self.broker.restart(env=environment(self.folder))

    def _die_at(self, point, hit):
        """Whether a broker started with this point armed was killed there."""
        self.broker.kill()
        try:
            self.broker.restart(env=environment(self.folder, f"{point}:{hit}"))
        except BrokerUnavailableError as error:
            return KILLED in str(error)
        if not point.endswith(DELETES_SEGMENT):
            return self._dies_alive() or self._dies_of_its_end()
        with suppress(AckqError), Admin(self.broker.endpoint) as admin:
            admin.backup("kept")
        died = self._dies_alive() or self._dies_of_its_end()
        shutil.rmtree(self.folder / "backups" / "kept", ignore_errors=True)
        return died

    def _dies_alive(self):
        answers = self.ledger.answers + ANSWERS
        backups = self.ledger.figures["backups"] + BACKUPS
        snapshots, segments, dead = set(), set(), set()
        begun_at = time.monotonic()
        while not self.broker.wait_dead(LOOK_S):
            snapshots.update(path.name for path in self.broker.data_dir.glob("snapshot-*.snap"))
            dead |= segments - (segments := set(self.broker.data_dir.glob("journal-*.seg")))
            lived = time.monotonic() - begun_at
            worked = (
                self.ledger.answers >= answers
                and self.ledger.figures["backups"] >= backups
                and len(snapshots) >= SNAPSHOTS
                and len(dead) >= DEAD_SEGMENTS
            )
            if (worked and lived >= LIFE_S) or lived > LONGEST_S:
                return False
        return True

    def _dies_of_its_end(self):
        self.broker.stop()
        return self.broker._child.returncode == -9


def deaths_at_birth(folder):
    """A data directory whose first brokers each die one step later works in the end."""
    data = folder / "new"
    for point in AT_BIRTH:
        broker = embedded(data, env=environment(folder, point))
        with suppress(BrokerUnavailableError), broker:
            raise AssertionError(f"{point} was not met")
    with embedded(data, env=environment(folder)) as broker:
        names = ids(1, 5)
        fill(broker.endpoint, "q", names)
        broker.kill()
        broker.restart()
        assert sorted(in_queue(broker.endpoint, "q").elements()) == names
    close_channels()


def crash(folder, seed, points):
    """A run of kills at those points; returns (violations, the ledger)."""
    with embedded(folder / "data", env=environment(folder)) as broker:
        with Admin(broker.endpoint) as admin:
            admin.declare_queue("retained")
        run = Run(broker, seed, partial(Deaths, folder, points), (Operating, Retaining))
        return run.go(0), run.ledger


def main():
    """Runs the long form from the command line."""
    parser = argparse.ArgumentParser(description="A broker under load dies at every failpoint.")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    options = parser.parse_args()
    failed = False
    for seed in range(options.seed, options.seed + options.rounds):
        print(f"seed {seed}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            deaths_at_birth(Path(folder))
            wrong, ledger = crash(Path(folder), seed, IN_LIFE)
        print("  " + ", ".join(f"{name} {n}" for name, n in sorted(ledger.figures.items())))
        for each in wrong:
            print(f"  WRONG {each}", flush=True)
        failed = failed or bool(wrong)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
