"""RabbitMQ, an edge, a process with a link of every combination, and what befalls them."""

import itertools
import random
import subprocess
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress

import pika
import pika.exceptions

from ackq.client import Admin, close_channels
from ackq_broker import embedded
from tests.crash.links.queue_ledger import Combination, QueueLedger
from tests.fakes.faults import Schedule
from tests.fakes.relay import Relay
from tests.wire.brokers.rabbitmq_server import RabbitMqServer
from tests.wire.links.accepting import Accepting
from tests.wire.operations.processes import command, environment

ALL = tuple(
    Combination(*each)
    for each in itertools.product(
        ("classic", "quorum"), ("ids", "unique", "identical"), ("settled", "stored")
    )
)
WINDOW = 40
# A publisher waits while so many messages of a queue are on their way.
ON_THE_WAY = 200
BATCH = 20
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
        self._unflagged = 0

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
        sides = [Publishing(self), *(AcceptingSide(self, each) for each in self._shares())]
        for side in sides:
            side.start()
        publishing, *accepting = sides
        Faults(self, accepting).go_on(seconds)
        self.there.calm()
        self.here.calm()
        publishing.done.set()
        publishing.join(CALM_S)
        self._settle_down(accepting)
        self.stopping.set()
        for side in accepting:
            side.join(STOP_S)
        ambiguous = self._ambiguous()
        self._link.terminate()
        if (status := self._link.wait(STOP_S)) != 0:
            self.report(f"the link's process ended with {status}")
        for each in self.ledgers:
            if left := self._ready_there(each.name):
                self.report(f"{each.name}: {left} are left in RabbitMQ")
        taken = {each: rows for side in accepting for each, rows in side.rows.items()}
        return {
            each: ledger.verdict(
                taken[each], ambiguous[each], self._unflagged if each.kind == "classic" else 0
            )
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
        self.edge.kill()
        self.edge.restart()

    def kill_rabbit(self):
        """SIGKILL, and a start on its data."""
        self.rabbit.kill()
        self._unflagged += WINDOW
        self.rabbit.start()

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

    # --- inside ---

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
        names = list(self.ledgers)
        return [names[0::2], names[1::2]] if len(names) > 1 else [names]

    def _end_link(self):
        if self._link is not None and self._link.poll() is None:
            self._link.kill()
            self._link.wait(STOP_S)

    def _settle_down(self, accepting):
        """Waits until everything is accepted, and acknowledged there."""
        deadline = time.monotonic() + CALM_S
        pause = threading.Event()
        waits = ""
        while time.monotonic() < deadline and not self.problems:
            waits = self._unfinished(accepting)
            if not waits:
                return
            pause.wait(0.5)
        self.report(f"never finished: {waits}")

    def _unfinished(self, accepting):
        """What is not finished, in words; empty: everything is."""
        if self._link.poll() is not None:
            return "the link's process has ended"
        with Admin(self.edge.endpoint) as admin:
            links = {info.link: info for info in admin.links()}
        counts = {each: len(rows) for side in accepting for each, rows in side.rows.items()}
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


class Side(threading.Thread):
    """A thread of the world, whose failure the world reports."""

    def __init__(self, world, name):
        super().__init__(name=name, daemon=True)
        self.world = world
        self.rng = random.Random(f"{world.seed} {name}")

    def run(self):
        try:
            self.act()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the world says so
            self.world.report(f"{self.name} ended with {error!r}")


class Publishing(Side):
    """Publishes to RabbitMQ with confirms, in small batches to each queue."""

    def __init__(self, world):
        super().__init__(world, "publishing")
        self.done = threading.Event()

    def act(self):
        while not self.done.is_set():
            # A node that is down, or goes down.
            with suppress(pika.exceptions.AMQPError, OSError):
                connection = self.world.connect()
                try:
                    self._publish(connection)
                finally:
                    with suppress(pika.exceptions.AMQPError, OSError):
                        connection.close()
            self.done.wait(0.5)

    def _publish(self, connection):
        channel = connection.channel()
        channel.confirm_delivery()
        while not self.done.wait(0.05):
            each = self.rng.choice(list(self.world.ledgers))
            ledger = self.world.ledgers[each]
            if ledger.sent - self.world.figures[f"accepted {each.name}"] > ON_THE_WAY:
                continue
            for _ in range(self.rng.randint(1, BATCH)):
                number, name, body = ledger.next()
                properties = pika.BasicProperties(delivery_mode=2, message_id=name)
                ledger.unknown.append(number)
                channel.basic_publish("", each.name, body, properties)
                ledger.unknown.pop()
                ledger.confirmed.append(number)


class AcceptingSide(Side):
    """Consumers of some queues of the edge."""

    def __init__(self, world, combinations):
        super().__init__(world, f"accepting {combinations[0].name}")
        self._consumers = {each: Accepting(world.edge.endpoint, each.name) for each in combinations}

    @property
    def rows(self):
        """What was accepted, by combination."""
        return {each: consumer.rows for each, consumer in self._consumers.items()}

    def act(self):
        while not self.world.stopping.wait(0.05):
            for each, consumer in self._consumers.items():
                consumer.step(self.rng.choice([1, 10, 100]))
                self.world.figures[f"accepted {each.name}"] = len(consumer.rows)


class Faults:
    """What befalls a world; between two faults something is accepted."""

    def __init__(self, world, accepting):
        self._world = world
        self._accepting = accepting
        self._rng = random.Random(f"{world.seed} faults")

    def go_on(self, seconds):
        """Faults for so long."""
        end = time.monotonic() + seconds
        pause = threading.Event()
        kinds = {
            self._world.kill_link: 6,
            self._world.kill_edge: 4,
            self._world.kill_rabbit: 1,
            self._world.reset_there: 4,
            self._world.reset_here: 3,
        }
        before = -1
        while time.monotonic() < end and not self._world.problems:
            pause.wait(self._rng.uniform(0.2, 3))
            accepted = self._count()
            if accepted == before:
                continue
            before = accepted
            fault = self._rng.choices(list(kinds), list(kinds.values()))[0]
            self._world.figures[fault.__name__] += 1
            fault()

    def _count(self):
        return sum(len(rows) for side in self._accepting for rows in side.rows.values())
