"""A RabbitMQ queue, a queue of the edge, and links between them as processes."""

import json
import re
import signal
import tempfile
import uuid
from collections import Counter
from functools import partial
from pathlib import Path

import pika
import pytest

from ackq.client import Admin, Channel, Publisher, close_channels
from tests import prefork
from tests.eventually import SOON_S
from tests.eventually import eventually as _eventually
from tests.fakes import machine
from tests.unit.conftest import pytest_pyfunc_call  # noqa: F401 - for tests that are coroutines
from tests.wire.brokers.rabbitmq_server import parameters
from tests.wire.links.accepting import Accepting

# As long as a restart of RabbitMQ may take.
WAIT_S = 150
eventually = partial(_eventually, within_s=WAIT_S)

# Of the options of a link, one that is wrong for the certificate of its remote broker.
ANOTHER_BROKER = pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"ca": "{other}"},
            "Name the PEM file of the authority that signed the broker's certificate with ca",
        ),
        (
            {"broker": "amqps://localhost:{port}"},
            "Hostname mismatch.*Write the URL with a name that the broker's certificate has",
        ),
    ],
    ids=["another authority", "another host name"],
)


class Rabbit:
    """A queue of RabbitMQ, with the operations that tests need."""

    def __init__(self, port, kind, arguments=None):
        self.port = port
        self.queue = f"link-{uuid.uuid4().hex[:12]}"
        self.kind = kind
        self.declare(arguments)

    def connect(self):
        return pika.BlockingConnection(parameters(self.port, heartbeat=600))

    def declare(self, more=None):
        arguments = {"x-queue-type": self.kind, **(more or {})}
        self.call(
            lambda channel: channel.queue_declare(self.queue, durable=True, arguments=arguments)
        )

    def delete(self):
        self.call(lambda channel: channel.queue_delete(self.queue))

    def call(self, work):
        connection = self.connect()
        try:
            return work(connection.channel())
        finally:
            connection.close()

    def publish(self, ids, **properties):
        """Publishes messages with these ids, and the same numbers as bodies."""

        def work(channel):
            channel.confirm_delivery()
            for each in ids:
                channel.basic_publish(
                    "",
                    self.queue,
                    str(each).encode(),
                    pika.BasicProperties(message_id=str(each), delivery_mode=2, **properties),
                )

        self.call(work)

    def publish_bodies(self, bodies):
        """Publishes messages without ids."""

        def work(channel):
            channel.confirm_delivery()
            for each in bodies:
                channel.basic_publish("", self.queue, each, pika.BasicProperties(delivery_mode=2))

        self.call(work)

    @property
    def ready(self):
        return self._counts().message_count

    @property
    def consumers(self):
        return self._counts().consumer_count

    def _counts(self):
        return self.call(lambda channel: channel.queue_declare(self.queue, passive=True)).method

    def take(self):
        """Takes and acknowledges all ready messages, as (properties, body)."""

        def work(channel):
            taken = []
            while True:
                method, properties, body = channel.basic_get(self.queue, auto_ack=True)
                if method is None:
                    return taken
                taken.append((properties, body))

        return self.call(work)


class EdgeQueue:
    """The edge's queue `q`."""

    def __init__(self, endpoint):
        self.endpoint = endpoint
        with Admin(endpoint) as admin:
            admin.declare_queue("q")

    @property
    def messages(self):
        """The rows of the queue, in its order."""
        with Admin(self.endpoint) as admin:
            return [row for batch in admin.browse("q") for row in batch.to_pylist()]

    @property
    def ids(self):
        return [int(row["message_id"]) for row in self.messages]

    @property
    def ready(self):
        return self._counts().ready

    @property
    def delayed(self):
        return self._counts().delayed

    @property
    def total(self):
        found = self._counts()
        return found.ready + found.unacked

    @property
    def total_with_delayed(self):
        """All messages, of one look: a delayed one may become ready at any time."""
        found = self._counts()
        return found.ready + found.unacked + found.delayed

    def _counts(self):
        with Admin(self.endpoint) as admin:
            return admin.queue("q")

    def settle(self, count, rejected, accepted=()):
        """Takes `count` messages, rejects and accepts by their ids; the others go back."""
        with Channel(self.endpoint) as channel:
            consumer = channel.consume("q", mode="client", outcomes=["rejected"])
            for message in [consumer.receive(SOON_S) for _ in range(count)]:
                number = int(message.message_id)
                if number in rejected:
                    message.reject("bad").result()
                elif number in accepted:
                    message.accept().result()

    def publish(self, ids):
        with Publisher(self.endpoint, routing_key="q") as publisher:
            for each in ids:
                publisher.publish(str(each), message_id=str(each))


class LinkProcess:
    """`ackq-broker link` of one link, which can be killed and started again.

    Args:
        folder: For its configuration and log.
        env: Added to its environment, as by `tests.fakes.machine`.
        keys: The link's keys, and the edge's endpoint as `edge`.
    """

    def __init__(self, folder, *, env=None, **keys):
        self._env = env
        self._config = folder / "link.toml"
        self._log = folder / "link.log"
        edge, name = keys.pop("edge"), keys.pop("name", "link")
        lines = [f"{key.replace('_', '-')} = {json.dumps(value)}" for key, value in keys.items()]
        self._config.write_text(
            "\n".join([f"[edge]\nendpoint = {edge!r}", "[[link]]", f"name = {name!r}", *lines])
        )
        self._process = None

    def start(self):
        with self._log.open("ab") as log:
            self._process = prefork.start_child(
                ["link", "--config", str(self._config), "--log-format", "json"],
                log,
                stdout=log,
                env=self._env,
            )
        self._process.stdin.close()

    def kill(self):
        self._process.kill()
        self._process.wait(WAIT_S)

    def pause(self):
        """Stops the process by SIGSTOP, so that it is silent."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self):
        """Continues the process by SIGCONT, unaware of the time between."""
        self._process.send_signal(signal.SIGCONT)

    def stop(self):
        """Stops the process by SIGTERM, which it handles once it has started; its exit status."""
        eventually("the link's start", lambda: self.ended is not None or self._handles_sigterm())
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(WAIT_S)

    def _handles_sigterm(self):
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"^SigCgt:\s(\w+)", status, re.MULTILINE)[1], 16) >> 14 & 1

    @property
    def pid(self):
        return self._process.pid

    @property
    def ended(self):
        return self._process.poll()

    @property
    def log(self):
        return self._log.read_text()

    def end(self):
        if self._process is not None and self._process.poll() is None:
            self.kill()


def refused(link, edge):
    """The last line of a link that ended with status 2, left the edge empty, and told no secret."""
    assert eventually("its end", lambda: link.ended) == 2
    assert edge.total == 0
    assert "PRIVATE KEY" not in link.log
    assert "secret" not in link.log
    return link.log.splitlines()[-1]


def take(accepting, least, most=37):
    """Takes batches until `least` messages came."""

    def ready():
        accepting.step(most)
        return len(accepting.rows) >= least

    eventually("the batches", ready)


def strike(accepting, points, *faults):
    """Strikes with the faults in mid-flow: each time as many messages came as a point says."""
    for point in points:
        take(accepting, point)
        for fault in faults:
            fault()


def strike_going_out(edge, points, *faults):
    """Strikes with the faults in mid-flow: each time as few messages are left as a point says."""
    for point in points:
        eventually("progress", lambda most=point: edge.total <= most)
        for fault in faults:
            fault()


def lose_answers(edge, link, relay, parts, part):
    """Publishes parts to an outbound link, and cuts each off from the answers of its target."""
    for number in range(parts):
        eventually("all", lambda: edge.total == 0 and "link_connected" in link.log)
        relay.hold("to_client")
        sent = relay.passed["to_broker"]
        edge.publish(range(number * part, (number + 1) * part))
        eventually("bytes", lambda least=sent + 1_000: relay.passed["to_broker"] > least)
        relay.cut()
        relay.heal()
        relay.release()


def compare(ids, count, cuts):
    """Asserts that nothing is lost, and at most `cuts` windows of 50 are doubled (L22)."""
    assert set(ids) == set(range(count))
    assert sum(times - 1 for times in Counter(ids).values()) <= cuts * 50


@pytest.fixture
def rabbitmq_port(rabbitmq_dialect):
    """The port of a RabbitMQ node."""
    return rabbitmq_dialect.port


@pytest.fixture
def queue_of(rabbitmq_port):
    """Returns a function that makes queues, which are deleted after the test."""
    made = []

    def make(kind="classic", **arguments):
        named = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
        made.append(Rabbit(rabbitmq_port, kind, named))
        return made[-1]

    yield make
    for each in made:
        each.delete()


@pytest.fixture(params=["classic", "quorum"])
def rabbit(request, queue_of):
    """A queue of each kind in turn."""
    return queue_of(request.param)


@pytest.fixture
def classic(queue_of):
    """A classic queue."""
    return queue_of()


@pytest.fixture
def edge(broker):
    """A broker of the test's own with a queue."""
    yield EdgeQueue(broker.endpoint)
    close_channels()


@pytest.fixture
def accepting(edge):
    """A reader of the edge's queue."""
    return Accepting(edge.endpoint)


@pytest.fixture
def low(tmp_path):
    """Returns a function that makes the environment of a process with other limits."""
    return lambda **limits: machine.with_limits(tempfile.mkdtemp(dir=tmp_path), limits)


@pytest.fixture
def changed(tmp_path):
    """Returns a function that makes the environment of a process that a program changes."""
    return lambda program: machine.with_change(tempfile.mkdtemp(dir=tmp_path), program)


@pytest.fixture
def hasty(changed):
    """The environment of a link that connects again after a second at most, not half a minute."""
    return changed("from ackq_link import process; process.back_off.__defaults__ = (0.1, 1.0)")


@pytest.fixture
def talkative(low):
    """The environment of a link that reports ten times as often, twice a second."""
    return low(HEARTBEAT_SEND_MS=500)


@pytest.fixture
def links(tmp_path):
    """Returns a function that starts links, which end with the test."""
    started = []

    def start(**keys):
        folder = tmp_path / f"link-{len(started)}"
        folder.mkdir()
        process = LinkProcess(folder, **keys)
        started.append(process)
        process.start()
        return process

    yield start
    for each in started:
        each.end()
