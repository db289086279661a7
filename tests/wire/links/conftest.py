"""A RabbitMQ queue, a queue of the edge, and links between them as processes."""

import contextlib
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
from tests.eventually import SOON_S, equals
from tests.eventually import eventually as _eventually
from tests.fakes import machine
from tests.unit.conftest import pytest_pyfunc_call  # noqa: F401 - for tests that are coroutines
from tests.wire.brokers.rabbitmq_server import parameters
from tests.wire.links.accepting import Accepting

# As long as a restart of RabbitMQ may take.
WAIT_S = 150
PREFETCH = 50
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

    in_order, drops_repeated = True, False

    def __init__(self, port, kind, arguments=None):
        self.port = port
        self.endpoint = f"127.0.0.1:{port}"
        self.queue = f"link-{uuid.uuid4().hex[:12]}"
        self.kind = kind
        self.typed = {"content_type": "text/plain", "headers": {"a": "b"}}  # for `publish`
        self.declare(arguments)

    def at(self, endpoint):
        """The URL for a link, by this endpoint."""
        return f"amqp://{endpoint}"

    def keys(self, **_):
        """The keys of a link that are about this queue."""
        return {"broker": self.at(self.endpoint), "broker_queue": self.queue}

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
        with self.connect() as connection:
            return work(connection.channel())

    def publish(self, ids, **properties):
        """Publishes messages with these ids, and the same numbers as bodies."""
        self.send((str(each).encode(), {"message_id": str(each), **properties}) for each in ids)

    def send(self, messages):
        """Publishes messages of a body and properties."""

        def work(channel):
            channel.confirm_delivery()
            for body, given in messages:
                properties = pika.BasicProperties(delivery_mode=2, **given)
                channel.basic_publish("", self.queue, body, properties)

        self.call(work)

    @property
    def ready(self):
        return self.call(
            lambda channel: channel.queue_declare(self.queue, passive=True)
        ).method.message_count

    left = ready

    def take(self, *, auto_ack=True):
        """Takes all ready messages, as (properties, body); they go back without acknowledgement."""

        def work(channel):
            found = iter(lambda: channel.basic_get(self.queue, auto_ack=auto_ack), (None,) * 3)
            return [each[1:] for each in found]

        return self.call(work)

    @property
    def ids(self):
        """The ids of the ready messages."""
        return [int(properties.message_id) for properties, _ in self.take(auto_ack=False)]

    @property
    def contents(self):
        """Takes all, as (id, body, header `a`, address for replies, durability)."""
        return [
            (int(p.message_id), body, (p.headers or {}).get("a"), p.reply_to, p.delivery_mode == 2)
            for p, body in self.take()
        ]


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
    def info(self):
        with Admin(self.endpoint) as admin:
            return admin.queue("q")

    @property
    def ready(self):
        return self.info.ready

    @property
    def delayed(self):
        return self.info.delayed

    @property
    def total(self):
        found = self.info
        return found.ready + found.unacked

    @property
    def total_with_delayed(self):
        """All messages, of one look: a delayed one may become ready at any time."""
        found = self.info
        return found.ready + found.unacked + found.delayed

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
        """Publishes messages with these ids, and the same numbers as bodies."""
        self.send(*((str(each), {"message_id": str(each)}) for each in ids))

    def send(self, *messages, **target):
        """Publishes messages of a body and properties, by default to the queue itself."""
        with Publisher(self.endpoint, **(target or {"routing_key": "q"})) as publisher:
            for body, properties in messages:
                publisher.publish(body, **properties)

    def bury(self):
        """Gives the queue a dead-letter queue."""
        with Admin(self.endpoint) as admin:
            admin.declare_queue("dead")
            admin.delete_queue("q")
            admin.declare_queue("q", dead_letter_queue="dead")

    @property
    def dead(self):
        """The rows of that dead-letter queue, as (id, reason)."""
        with Admin(self.endpoint) as admin:
            found = [row for batch in admin.browse("dead") for row in batch.to_pylist()]
        return [(row["message_id"], dict(row["headers"])["ackq-dead-reason"]) for row in found]


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
        given = {key.replace("_", "-"): value for key, value in keys.items() if value is not None}
        lines = [f"{key} = {json.dumps(value)}" for key, value in given.items()]
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
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            status = Path(f"/proc/{self.pid}/status").read_text()
            return int(re.search(r"^SigCgt:\s(\w+)", status, re.MULTILINE)[1], 16) >> 14 & 1
        return False

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


def info(edge):
    """The link's information as an operator sees it."""
    with Admin(edge.endpoint) as admin:
        return admin.link("link")


def events(link, name):
    """The events of a name in the link's log."""
    whole = link.log.rpartition("\n")[0]
    lines = [line for line in whole.splitlines() if line.startswith("{")]
    return [event for event in map(json.loads, lines) if event["event"] == f"link_{name}"]


def all_out(link, edge):
    """Waits until the link has published all messages, and stops it."""
    eventually("the messages", lambda: edge.total, equals(0))
    assert link.stop() == 0


def filled(keys, **places):
    """The keys of a link, with the names of places filled in."""
    return {k: v.format(**places) if isinstance(v, str) else v for k, v in keys.items()}


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
def linked(links, broker, tmp_path):
    """Returns a function that starts a link between the edge's queue and a remote one."""

    def start(remote, **keys):
        given = {"edge": broker.endpoint, "queue": "q", "prefetch": PREFETCH}
        remote_keys = remote.keys(direction=keys["direction"], folder=tmp_path)
        return links(**{**given, **remote_keys, **keys})

    return start


@pytest.fixture
def inbound(linked):
    """Returns a function that starts a link from a remote queue to the edge's."""
    return partial(linked, direction="in")


@pytest.fixture
def outbound(linked):
    """Returns a function that starts a link from the edge's queue to a remote one."""
    return partial(linked, direction="out")


@pytest.fixture
def remote(rabbit):
    """The remote queue of scenarios: one of RabbitMQ, of each kind in turn."""
    return rabbit


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
