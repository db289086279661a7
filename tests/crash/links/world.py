"""RabbitMQ, an edge, a process with a link of every combination, and what befalls them."""

import itertools
import random
import subprocess
import threading
import time
from collections import Counter
from contextlib import ExitStack

import pika

from ackq.client import Admin, close_channels
from ackq_broker import embedded
from tests.crash.links.faults import Faults
from tests.crash.links.queue_ledger import SPARK, Combination, QueueLedger
from tests.crash.links.sides import AcceptingSide, Publishing, SparkSide
from tests.fakes.faults import Schedule
from tests.fakes.relay import Relay
from tests.wire.brokers.rabbitmq_server import RabbitMqServer
from tests.wire.operations.processes import command, environment

TWELVE = tuple(
    Combination(*each)
    for each in itertools.product(
        ("classic", "quorum"), ("ids", "unique", "identical"), ("settled", "stored")
    )
)
# Their consumer is a Spark query that writes a Delta table.
WITH_SPARK = (
    Combination("quorum", "ids", "settled", SPARK),
    Combination("classic", "unique", "settled", SPARK),
)
ALL = TWELVE + WITH_SPARK
WINDOW = 40
CALM_S = 600
STOP_S = 60
# Of the connections, those that are reset at a byte of their own.
RESETS = 0.5


class World:
    """Everything that runs, for the combinations given.

    Args:
        seed: Of all decisions.
        folder: For data and logs.
    """

    def __init__(self, seed, folder, combinations=ALL):
        self.seed = seed
        self.folder = folder
        self.ledgers = {each: QueueLedger(each) for each in combinations}
        self.figures = Counter()
        self.problems = []
        self.stopping = threading.Event()
        self._stack = ExitStack()
        self._link = None
        self._accepting = []
        self._spark = None
        self._edge_killed_at_start = False

    def __enter__(self):
        with ExitStack() as stack:
            self.rabbit = stack.enter_context(RabbitMqServer(self.folder / "rabbitmq"))
            self.edge = stack.enter_context(embedded(data=self.folder / "edge"))
            stack.callback(close_channels)
            self.there = Relay(self.rabbit.endpoint, self._resets("there"))
            stack.callback(self.there.close)
            self.here = Relay(self.edge.endpoint, self._resets("here"))
            stack.callback(self.here.close)
            stack.callback(self._end_link)
            self._declare()
            self._config = self._write_config()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self._stack.close()

    # --- the run ---

    def run(self, seconds):
        """Faults for so long, then calm; returns the verdicts by combination."""
        self.start_link()
        publishing = Publishing(self)
        self._accepting = [AcceptingSide(self, each) for each in self._shares()]
        if with_spark := [each for each in self.ledgers if each.consumer == SPARK]:
            self._spark = SparkSide(self, with_spark)
            self._accepting.append(self._spark)
        for side in (publishing, *self._accepting):
            side.start()
        Faults(self, self._kinds()).go_on(seconds)
        self.there.calm()
        self.here.calm()
        publishing.done.set()
        publishing.join(CALM_S)
        self._settle_down()
        self.stopping.set()
        for side in self._accepting:
            side.join(STOP_S)
        ambiguous = self._ambiguous()
        self._link.terminate()
        if (status := self._link.wait(STOP_S)) != 0:
            self.report(f"the link's process ended with {status}")
        for each in self.ledgers:
            if left := self._ready_there(each.name):
                self.report(f"{each.name}: {left} are left in RabbitMQ")
        taken = {each: rows for side in self._accepting for each, rows in side.rows.items()}
        return {
            each: ledger.verdict(taken[each], ambiguous[each])
            for each, ledger in self.ledgers.items()
        }

    def report(self, problem):
        """Notes what is wrong; the run ends."""
        print(f"{time.strftime('%X')} {problem}", flush=True)
        self.problems.append(problem)

    # --- what faults do ---

    def start_link(self):
        """Starts the process with all links."""
        with (self.folder / "link.log").open("ab") as log:
            self._link = subprocess.Popen(
                command("link", "--config", self._config, "--log-format", "json"),
                env=environment(),
                stdout=log,
                stderr=log,
            )

    def kill_link(self):
        """SIGKILL, and another one."""
        if self._link.poll() is not None:
            self.report(f"the link's process ended by itself: {self._link.returncode}")
        self._end_link()
        self.start_link()

    def kill_edge(self):
        """SIGKILL, and a start on its data."""
        if self._spark is not None and not self._spark.driver.working:
            # The edge waits a heartbeat after its start for the holder that it knew (S3): a driver
            # gets to work only when the edge lives that long.
            if self._edge_killed_at_start:
                return False
            self._edge_killed_at_start = True
        self.edge.kill()
        self.edge.restart()
        return True

    def kill_rabbit(self):
        """SIGKILL, and a start on its data."""
        self.rabbit.kill()
        self.rabbit.start()

    def kill_driver(self):
        """SIGKILL to Spark's driver once it is at work, and another one."""
        if not self._spark.kill():
            return False
        self._edge_killed_at_start = False
        return True

    def reset_there(self):
        """Everything between the link and RabbitMQ, at once."""
        self.there.cut()
        self.there.heal()

    def reset_here(self):
        """Everything between the link and the edge, at once."""
        self.here.cut()
        self.here.heal()

    def connect(self):
        """A connection to RabbitMQ, not over the relay."""
        return pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", self.rabbit.port, heartbeat=600)
        )

    @property
    def accepted(self):
        """How many rows were accepted so far."""
        return sum(len(rows) for side in self._accepting for rows in side.rows.values())

    # --- inside ---

    def _kinds(self):
        """The faults by their name."""
        kinds = {
            "kill link": self.kill_link,
            "kill edge": self.kill_edge,
            "kill rabbitmq": self.kill_rabbit,
            "reset there": self.reset_there,
            "reset here": self.reset_here,
        }
        return kinds | ({"kill driver": self.kill_driver} if self._spark is not None else {})

    def _resets(self, side):
        schedule = Schedule(f"{self.seed} {side}", ("reset",))

        def faults(number):
            some = random.Random(f"{self.seed} {side} {number}").random() < RESETS
            return schedule(number) if some else []

        return faults

    def _declare(self):
        connection = self.connect()
        channel = connection.channel()
        with Admin(self.edge.endpoint) as admin:
            for each in self.ledgers:
                channel.queue_declare(
                    each.name, durable=True, arguments={"x-queue-type": each.kind}
                )
                admin.declare_queue(each.name)
        connection.close()
        # A queue is declared before it is on disk: a killed node would not have it.
        self.rabbit.control("eval", "mnesia:sync_log().")

    def _write_config(self):
        lines = ["[edge]", f'endpoint = "{self.here.endpoint}"']
        for each in self.ledgers:
            lines += [
                "[[link]]",
                f'name = "{each.name}"',
                'direction = "in"',
                f'broker = "amqp://127.0.0.1:{self.there.port}"',
                f'broker-queue = "{each.name}"',
                f'queue = "{each.name}"',
                f'ack = "{each.ack}"',
                f"prefetch = {WINDOW}",
            ]
        path = self.folder / "links.toml"
        path.write_text("\n".join(lines))
        return path

    def _shares(self):
        names = [each for each in self.ledgers if each.consumer != SPARK]
        return [share for share in (names[0::2], names[1::2]) if share]

    def _end_link(self):
        if self._link is not None and self._link.poll() is None:
            self._link.kill()
            self._link.wait(STOP_S)

    def _settle_down(self):
        """Waits until everything is accepted, and acknowledged there."""
        deadline = time.monotonic() + CALM_S
        pause = threading.Event()
        waits = ""
        while time.monotonic() < deadline and not self.problems:
            waits = self._unfinished()
            if not waits:
                return
            pause.wait(0.5)
        self.report(f"never finished: {waits}")

    def _unfinished(self):
        """What is not finished, in words; empty: everything is."""
        if self._link.poll() is not None:
            return "the link's process has ended"
        with Admin(self.edge.endpoint) as admin:
            links = {info.link: info for info in admin.links()}
        counts = {each: len(rows) for side in self._accepting for each, rows in side.rows.items()}
        for each, ledger in self.ledgers.items():
            info = links.get(each.name)
            if info is None or not info.live or info.held or info.settled:
                return f"{each.name}: {info}"
            if counts[each] < len(ledger.confirmed):
                return f"{each.name}: {counts[each]} of {len(ledger.confirmed)} accepted"
            if self._ready_there(each.name):
                return f"{each.name}: some are ready in RabbitMQ"
        return ""

    def _ready_there(self, queue):
        connection = self.connect()
        try:
            found = connection.channel().queue_declare(queue, passive=True)
            return found.method.message_count
        finally:
            connection.close()

    def _ambiguous(self):
        with Admin(self.edge.endpoint) as admin:
            links = {info.link: info for info in admin.links()}
        for info in links.values():
            for name in ("taken", "matched_held", "matched_settled", "ambiguous"):
                self.figures[name] += getattr(info, name)
        return {each: links[each.name].ambiguous for each in self.ledgers}
