"""RabbitMQ, a local broker, a process with a link of every combination, and their faults."""

import itertools

import pika

from ackq.client import Admin
from tests.crash.links.driver import DriverProcess
from tests.crash.links.fault_run import CALM_S, STOP_S, FaultRun
from tests.crash.links.faults import Faults
from tests.crash.links.queue_ledger import SPARK, Combination, QueueLedger
from tests.crash.links.sides import AcceptingSide, Publishing, SparkSide
from tests.crash.links.summary import COUNTS
from tests.crash.links.table import TableRows, table_folder
from tests.wire.brokers.rabbitmq_server import RabbitMqServer, parameters

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


class World(FaultRun):
    """All processes of a run, for the given combinations.

    Args:
        seed: Seed of all decisions.
        folder: Folder for data and logs.
        combinations: Each is a remote queue, a link and a local queue.

    Attributes:
        ledgers: The ledgers by combination.
    """

    def __init__(self, seed, folder, combinations=ALL):
        super().__init__(seed, folder)
        self.ledgers = {each: QueueLedger(each) for each in combinations}
        self._accepting = []

    def build(self, stack):
        self.rabbit = self.start_rabbit(stack)
        there = self.relay(stack, "there", self.rabbit.endpoint)
        here = self.relay(stack, "here", self.edge.endpoint)
        self.declare_there()
        with Admin(self.edge.endpoint) as admin:
            for each in self.ledgers:
                admin.declare_queue(each.name)
        # A queue is declared before it is on disk: a killed node could lose it.
        self.rabbit.evaluate("mnesia:sync_log().")
        self.write_links(here.endpoint, [self._keys(each, there) for each in self.ledgers])

    def start_rabbit(self, stack):
        """Starts RabbitMQ; returns the node that clients connect to."""
        return stack.enter_context(RabbitMqServer(self.folder / "rabbitmq"))

    def declare_there(self):
        """Declares the remote queues."""
        connection = self.connect()
        channel = connection.channel()
        for each in self.ledgers:
            channel.queue_declare(each.name, durable=True, arguments={"x-queue-type": each.kind})
        connection.close()

    def run(self, seconds):
        """Runs faults for `seconds` once all work, then calm; returns verdicts by combination."""
        self.start_link()
        publishing = Publishing(self)
        self._accepting = [AcceptingSide(self, each) for each in self._shares()]
        if with_spark := [each for each in self.ledgers if each.consumer == SPARK]:
            self.spark = self._spark_side(with_spark)
            self._accepting.append(self.spark)
        for side in (publishing, *self._accepting):
            side.start()
        if self.spark is not None:
            self.spark.wait_working(CALM_S)
        Faults(self, self.kinds()).go_on(seconds)
        self.calm()
        publishing.done.set()
        publishing.join(CALM_S)
        self.finish()
        self.stopping.set()
        for side in self._accepting:
            side.join(STOP_S)
        ambiguous = self._ambiguous()
        taken = self._taken()
        return {
            each: ledger.verdict(taken[each], ambiguous[each])
            for each, ledger in self.ledgers.items()
        }

    def connect(self):
        """A direct connection to RabbitMQ, not over the relay."""
        return pika.BlockingConnection(parameters(self.rabbit.port, heartbeat=600))

    @property
    def accepted(self):
        """The number of rows accepted so far."""
        return sum(map(len, self._taken().values()))

    def unfinished(self):
        with Admin(self.edge.endpoint) as admin:
            links = {info.link: info for info in admin.links()}
        counts = {each: len(rows) for each, rows in self._taken().items()}
        for each, ledger in self.ledgers.items():
            info = links.get(each.name)
            if info is None or not info.live or info.held or info.settled:
                return f"{each.name}: {info}"
            if counts[each] < len(ledger.confirmed):
                return f"{each.name}: {counts[each]} of {len(ledger.confirmed)} accepted"
            # A node that was killed counts none until the queue has its leader again; nor does it
            # give back to a link that waits before it connects.
            found = self._queue_there(each.name)
            if found.message_count or not found.consumer_count:
                return f"{each.name}: RabbitMQ: {found}"
        return ""

    def given_back(self):
        return sum(self._queue_there(each.name).message_count for each in self.ledgers)

    # --- inside ---

    def kinds(self):
        return {**super().kinds(), "kill rabbitmq": self.kill_and_start(self.rabbit)}

    def _keys(self, each, there):
        """The configuration keys of a link."""
        return {
            "name": each.name,
            "direction": "in",
            "broker": f"amqp://127.0.0.1:{there.port}",
            "broker-queue": each.name,
            "queue": each.name,
            "ack": each.ack,
            "prefetch": WINDOW,
        }

    def _shares(self):
        """The combinations consumed by sessions, in two parts."""
        names = [each for each in self.ledgers if each.consumer != SPARK]
        return [share for share in (names[0::2], names[1::2]) if share]

    def _spark_side(self, combinations):
        names = [each.name for each in combinations]
        driver = DriverProcess(self.folder / "spark", self.edge.endpoint, to_table=names)
        tables = {each: TableRows(table_folder(driver.folder, each.name)) for each in combinations}
        return SparkSide(self, driver, tables)

    def _taken(self):
        return {each: rows for side in self._accepting for each, rows in side.rows.items()}

    def _queue_there(self, queue):
        connection = self.connect()
        try:
            return connection.channel().queue_declare(queue, passive=True).method
        finally:
            connection.close()

    def _ambiguous(self):
        with Admin(self.edge.endpoint) as admin:
            links = {info.link: info for info in admin.links()}
        for info in links.values():
            for name in COUNTS:
                self.figures[name] += getattr(info, name)
        return {each: links[each.name].ambiguous for each in self.ledgers}
