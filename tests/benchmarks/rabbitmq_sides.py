"""RabbitMQ by pika, with a node of its own, as the other side of a comparison.

Invariant: messages are persistent, queues durable; the node syncs them by its defaults. pika is
used in its fastest way: the channel below the blocking channel of its connection, which does not
wait for each answer.
"""

import contextlib
import tempfile
import uuid
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import cpu
import harness

from tests.wire.brokers import rabbitmq_server

NAME = "rabbitmq"
PREFETCH = 1_000
# How many publishes pika buffers before it sends and receives, and the most without a confirm.
_PER_TURN = 100
_UNDER_WAY = 100_000


@contextlib.contextmanager
def running():
    """The port of a node; 0 if RabbitMQ or its client is not installed."""
    missing = rabbitmq_server.missing() or ("" if find_spec("pika") else "pika")
    if missing:
        print(f"RabbitMQ's figures are left out: {missing} is not installed.", flush=True)
        yield 0
        return
    with (
        tempfile.TemporaryDirectory(prefix="ackq-benchmark-rabbitmq-") as folder,
        rabbitmq_server.RabbitMqServer(Path(folder)) as server,
    ):
        cpu.SERVERS[NAME] = server.pid
        harness.NOTES[NAME] = (
            f"{_server_version(server.port)} by pika {version('pika')}: durable classic queue,"
            " persistent messages, synced as its defaults have it"
        )
        yield server.port
        del cpu.SERVERS[NAME]


def _server_version(port):
    with _channel(port) as (connection, _, _):
        return str(connection._impl.server_properties["version"])


@contextlib.contextmanager
def _channel(port, arguments=None):
    """A connection, a channel, and a durable queue that is deleted afterwards."""
    import pika

    queue = f"benchmark-{uuid.uuid4().hex[:8]}"
    with contextlib.closing(
        pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, heartbeat=0))
    ) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True, arguments=arguments)
        yield connection, channel, queue
        channel.queue_delete(queue)


def _persistent(**properties):
    import pika

    return pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent, **properties)


# --- publishing ---


@contextlib.contextmanager
def waiting(port, queue):
    """A connection that publishes, and waits for the confirm of each message."""
    properties = _persistent()
    with _channel(int(port)) as (_, channel, _):
        channel.confirm_delivery()
        yield lambda body: channel.basic_publish("", queue, body, properties)


def commit_each(port, count, body):
    """Publishes and commits by tx.commit, one message at a time."""
    properties = _persistent()
    with _channel(port) as (_, channel, queue):
        channel.tx_select()
        with harness.clocked(count, NAME) as found:
            for _ in range(count):
                channel.basic_publish("", queue, body, properties)
                channel.tx_commit()
    return found[0]


def confirms_streamed(port, count, body):
    """Publishes one by one, and collects every confirm."""
    with _channel(port) as (connection, channel, queue), harness.clocked(count, NAME) as found:
        _stream(connection, channel._impl, queue, count, body)
    return found[0]


def _stream(connection, channel, queue, count, body, *, ids=False):
    """Publishes messages, and returns when all are confirmed."""
    properties = _persistent()
    confirms = Confirms(channel)
    for number in range(count):
        confirms.expect()
        named = _persistent(message_id=f"{number:020}") if ids else properties
        channel.basic_publish("", queue, body, named)
        if number % _PER_TURN == 0:
            connection.process_data_events(0)
        while confirms.missing > _UNDER_WAY:
            connection.process_data_events(0.01)
    while confirms.missing:
        connection.process_data_events(0.01)


class Confirms:
    """The confirms of a channel, which this puts into confirm mode."""

    def __init__(self, channel):
        self._unconfirmed = set()
        self._confirmed_below = 1
        self._last = 0
        channel.confirm_delivery(self._on_answer)

    @property
    def missing(self):
        """The number of outstanding confirms."""
        return len(self._unconfirmed)

    def expect(self):
        """Records that one more message is published."""
        self._last += 1
        self._unconfirmed.add(self._last)

    def _on_answer(self, frame):
        from pika import spec

        assert isinstance(frame.method, spec.Basic.Ack)
        tag = frame.method.delivery_tag
        if frame.method.multiple:
            self._unconfirmed.difference_update(range(self._confirmed_below, tag + 1))
            self._confirmed_below = tag + 1
        else:
            self._unconfirmed.discard(tag)


# --- consuming ---


@contextlib.contextmanager
def full_queue(port, count, body, arguments=None, *, ids=False):
    """A durable queue with messages, deleted afterwards; yields its name."""
    with _channel(port, arguments) as (connection, _, queue):
        if count:
            _stream(connection, connection.channel()._impl, queue, count, body, ids=ids)
        yield queue


def consume(port, count, body, every):
    """Takes messages, with an ack for every `every` of them."""
    with _channel(port) as (connection, channel, queue):
        _stream(connection, connection.channel()._impl, queue, count, body)
        with harness.clocked(count, NAME) as found:
            _Consumer(port, queue, count, every).run()
        assert channel.queue_declare(queue, passive=True).method.message_count == 0
    return found[0]


class _Consumer:
    """A connection that takes messages, acks them and ends, by pika's callbacks."""

    def __init__(self, port, queue, count, every):
        import pika

        self._queue, self._left, self._every = queue, count, every
        self._connection = pika.SelectConnection(
            pika.ConnectionParameters("127.0.0.1", port, heartbeat=0),
            on_open_callback=lambda opened: opened.channel(on_open_callback=self._on_channel),
            on_close_callback=lambda closed, _: closed.ioloop.stop(),
        )

    def run(self):
        """Returns when the node has answered after the last ack."""
        self._connection.ioloop.start()

    def _on_channel(self, channel):
        channel.basic_qos(prefetch_count=PREFETCH)
        channel.basic_consume(self._queue, self._on_message)

    def _on_message(self, channel, method, _, __):
        self._left -= 1
        if self._left % self._every == 0:
            channel.basic_ack(method.delivery_tag, multiple=self._every > 1)
        if not self._left:
            channel.queue_declare(
                self._queue, passive=True, callback=lambda _: self._connection.close()
            )
