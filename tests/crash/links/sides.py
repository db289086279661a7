"""The threads of a world under fire: a publisher, and the consumers of its queues."""

import random
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal

import pika
import pika.exceptions

from tests.wire.links.accepting import Accepting

# A publisher waits while this many messages of a queue are on their way.
ON_THE_WAY = 200
BATCH = 20


# A value of each type that RabbitMQ's own clients send.
VALUES = (
    "text", "", 5, -(2**40), True, None, 1.5, Decimal("1.5"), datetime(2026, 11, 22, tzinfo=UTC),
    b"\xff\x00", [1, "a", {"b": 2}], {"x": {"z": "w", "y": 1}, "a": []},
)  # fmt: skip
MORE = {"priority": 3, "type": "t", "app_id": "a", "correlation_id": "c", "content_type": "x/y"}


def drawn(rng):
    """Properties in addition to the id: none, or some, with headers of each type (L3)."""
    names = rng.sample("abcdef", rng.choice((0, 0, 1, 2, 6)))
    more = {name: value for name, value in MORE.items() if rng.random() < 0.2}
    return {"headers": {name: rng.choice(VALUES) for name in names} or None, **more}


class Side(threading.Thread):
    """A thread of the world, whose failure the world reports."""

    def __init__(self, world, name):
        super().__init__(name=name, daemon=True)
        self.world = world
        self.rng = random.Random(f"{world.seed} {name}")

    def run(self):
        try:
            self.act()
        except BaseException as error:  # noqa: BLE001 - the world reports any error
            self.world.report(f"{self.name} ended with {error!r}")


class Publishing(Side):
    """Publishes to RabbitMQ with confirms, in small batches to each queue."""

    def __init__(self, world):
        super().__init__(world, "publishing")
        self.done = threading.Event()

    def act(self):
        while not self.done.is_set():
            # Errors of a node that is down, or goes down.
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
                more = {}
                if each.content != "identical":
                    more = drawn(self.rng)
                properties = pika.BasicProperties(delivery_mode=2, message_id=name, **more)
                ledger.unknown.append(number)
                channel.basic_publish("", each.name, body, properties)
                ledger.unknown.pop()
                ledger.confirmed.append(number)


class AcceptingSide(Side):
    """Consumers of some queues of the local broker."""

    def __init__(self, world, combinations):
        super().__init__(world, f"accepting {combinations[0].name}")
        self._consumers = {each: Accepting(world.edge.endpoint, each.name) for each in combinations}

    @property
    def rows(self):
        """The accepted rows, by combination."""
        return {each: consumer.rows for each, consumer in self._consumers.items()}

    def act(self):
        while not self.world.stopping.wait(0.05):
            for each, consumer in self._consumers.items():
                consumer.step(self.rng.choice([1, 10, 100]))
                self.world.figures[f"accepted {each.name}"] = len(consumer.rows)


class SparkSide(Side):
    """A Spark driver that is restarted whenever it ends.

    Args:
        world: The run that it belongs to.
        driver: Its process.
        tables: The tables it writes, by combination.
    """

    def __init__(self, world, driver, tables=None):
        super().__init__(world, "spark")
        self.driver = driver
        self._tables = tables or {}
        self._lock = threading.Lock()

    @property
    def rows(self):
        """The rows in the tables, by combination."""
        return {each: table.rows for each, table in self._tables.items()}

    def kill(self):
        """Kills the driver and starts another on its checkpoints; False: it was not at work."""
        with self._lock:
            if not self.driver.working:
                return False
            self.driver.kill()
            self.driver.start()
            return True

    def wait_working(self, limit_s):
        """Waits until the driver has finished its first batches."""
        pause = threading.Event()
        deadline = time.monotonic() + limit_s
        while not self.driver.working and not self.world.problems:
            if time.monotonic() > deadline:
                self.world.report(f"Spark did not get to work within {limit_s} s")
            pause.wait(0.3)

    def act(self):
        self.driver.start()
        try:
            while not self.world.stopping.wait(0.3):
                with self._lock:
                    self.driver.look_after()
                for each, table in self._tables.items():
                    self.world.figures[f"accepted {each.name}"] = table.read()
        finally:
            self.driver.kill()
        for reason in self.driver.ended:
            print(f"a driver ended by itself: {reason}", flush=True)
        self.world.figures["drivers that ended by themselves"] += len(self.driver.ended)
