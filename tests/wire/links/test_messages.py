"""How a link treats each message that an ordinary client may send, with a real RabbitMQ."""

import asyncio
import struct
from contextlib import asynccontextmanager

import aiormq
import pytest

from ackq.client import Admin
from ackq.limits import MAX_MESSAGE_BYTES
from ackq_link.amqp091 import fields
from ackq_link.amqp091.properties import _unpacked
from tests.eventually import equals
from tests.unit.link.amqp091.wire import message, same, sent, table_of
from tests.wire.links.conftest import events, eventually, info
from tests.wire.links.test_outbound import reported


def big(number):
    return struct.pack(">q", number)


def nested(depth):
    """A table nested to this depth, with its length."""
    table = fields.join([])
    for _ in range(depth):
        table = fields.join([(b"a", b"F" + table)])
    return table


EACH_TYPE = {
    "b": b"b\x05", "B": b"B\xff", "s": b"s\x00\x05", "u": b"u\xff\xff", "i": b"i\xff\xff\xff\xff",
    "I": b"I\0\0\0\x05", "l": b"l" + big(5), "f": b"f" + struct.pack(">f", 0.1),
    "d": b"d" + struct.pack(">d", 1e300),
    "D": b"D\x02\0\0\0\x96", "T": b"T" + big(1_732_500_000_000_000_000), "t": b"t\x01", "V": b"V",
    "x": b"x\0\0\0\x02\xff\x00", "S": b"S\0\0\0\x01\xff", "F": b"F" + fields.join([]),
    "A": b"A\0\0\0\x09" + b"l" + big(5),
    "m": b"F" + fields.join([(b"!bytes", b"S\0\0\0\x01a")]),
}  # fmt: skip
MESSAGES = {
    "plain": sent(),
    "timestamp in microseconds": message(timestamp=1_732_500_000_000_000),
    "timestamp before 1970": message(timestamp=-5),
    "message id not UTF-8": message(message_id=b"\xff\xfe"),
    "texts not UTF-8": message(content_type=b"\xff", correlation_id=b"\xfe", app_id=b"\xfd"),
    "empty texts": message(content_type=b"", correlation_id=b"", reply_to=b"", type=b""),
    "cluster": message(cluster_id=b"c"),
    "headers of each type": message(headers=table_of(**EACH_TYPE)),
    "header name not UTF-8": message(headers=fields.join([(b"\xff", b"V")])[4:]),
    "header name of 200 bytes": message(headers=fields.join([(b"n" * 200, b"V")])[4:]),
    "two headers of one name": message(headers=fields.join([(b"a", b"V"), (b"a", b"t\1")])[4:]),
    "tables nested 900 deep": message(headers=nested(900)[4:]),
    "own amqp-properties": message(headers=table_of(**{"amqp-properties": b"S\0\0\0\2{}"})),
}


@asynccontextmanager
async def channel_of(rabbit):
    connection = await aiormq.connect(f"amqp://127.0.0.1:{rabbit.port}")
    try:
        yield await connection.channel()
    finally:
        await connection.close()


async def publish(rabbit, messages):
    async with channel_of(rabbit) as channel:
        for number, each in enumerate(messages):
            await channel.basic_publish(
                str(number).encode(), routing_key=rabbit.queue, properties=each
            )


async def taken(rabbit, count):
    """The properties of messages, by their bodies."""
    async with channel_of(rabbit) as channel:
        found = [await channel.basic_get(rabbit.queue, no_ack=True) for _ in range(count)]
    return {int(each.body): each.header.properties for each in found}


def with_id(number, properties):
    """The properties with an id and a time, if missing, as library and edge would add them."""
    given = {"message_id": b"%d" % number, "timestamp": 5}
    return message(**given | _unpacked(properties.wire))


@pytest.fixture
def beyond(queue_of):
    """A second RabbitMQ queue, for outbound messages."""
    return queue_of()


def test_each_message_comes_out_as_it_went_in(rabbit, beyond, edge, inbound, outbound):
    """L13: a message comes out byte by byte as it went in, and none ends a connection."""
    given = [with_id(number, each) for number, each in enumerate(MESSAGES.values())]
    asyncio.run(publish(rabbit, given))
    coming = inbound(rabbit, ack="stored")
    eventually("the messages", lambda: edge.ready, equals(len(given)))
    going = outbound(beyond)
    eventually("the remote messages", lambda: beyond.ready, equals(len(given)))
    assert (coming.stop(), going.stop()) == (0, 0)
    assert not events(coming, "cut")
    assert not events(going, "cut")
    back = asyncio.run(taken(beyond, len(given)))
    different = [
        name for number, name in enumerate(MESSAGES) if not same(given[number], back[number])
    ]
    assert different == []


@pytest.mark.parametrize(
    ("keys", "left", "became"),
    [
        ({"ack": "stored"}, 1, "It stays unacknowledged at the remote broker"),
        # The others stay, too: nobody has accepted them at the edge.
        ({"on_reject": "discard"}, 3, "It is rejected at the remote broker"),
    ],
)
def test_a_message_that_the_edge_cannot_take(rabbit, edge, inbound, talkative, keys, left, became):
    """L29: an oversized message stays at the remote broker, or is rejected if the user says so."""
    rabbit.publish([0])
    rabbit.send([(b"x" * (MAX_MESSAGE_BYTES + 1), {})])
    rabbit.publish([1, 2])
    link = inbound(rabbit, env=talkative, **keys)
    eventually("the messages", lambda: edge.ready, equals(3))
    permitted = 3 if "ack" in keys else 0
    eventually("the permits", lambda: info(edge).permitted, equals(permitted))
    eventually("the report", lambda: info(edge).report.set_aside, equals(1))
    assert link.stop() == 0
    assert edge.ids == [0, 1, 2]
    eventually("the remote messages", lambda: rabbit.ready, equals(left))
    assert not events(link, "cut")
    assert became in events(link, "set_aside")[0]["message"]


def test_a_stream_is_refused(queue_of, edge, inbound):
    """L14: a stream is refused by its first delivery; a queue's message with its header is not.

    Nor is one of a queue with a single active consumer, which gives no single message.
    """
    stream = queue_of("stream")
    queues = [queue_of(), queue_of("quorum", single_active_consumer=True)]
    link = inbound(stream)
    eventually("connected", lambda: events(link, "connected"))
    stream.publish([0])
    eventually("its end", lambda: link.ended, equals(2))
    assert "is a stream" in link.log
    assert edge.total == 0
    for number, queue in enumerate(queues, 1):
        queue.publish([number], headers={"x-stream-offset": 5})
        other = inbound(queue, name=f"other-{number}")
        eventually("the messages", lambda: edge.ready, equals(number))
        assert other.stop() == 0
        assert not events(other, "cut")


@pytest.fixture
def small_messages(rabbitmq_dialect):
    """A RabbitMQ that closes the channel for a message of over 10,000 bytes."""
    node = rabbitmq_dialect._server
    size = node.evaluate("element(2, application:get_env(rabbit, max_message_size)).")
    set_size(node, 10_000)
    yield
    set_size(node, size)


def set_size(node, size):
    node.evaluate(f"application:set_env(rabbit, max_message_size, {size}).")


@pytest.mark.usefixtures("small_messages")
@pytest.mark.parametrize("dead_letters", [True, False])
def test_a_message_for_which_the_broker_closes(classic, edge, outbound, dead_letters):
    """L22: a message for which RabbitMQ closes is found with one more cut, and set apart alone."""
    if dead_letters:
        edge.bury()
    bodies = [b"x" * 20_000 if number in {20, 25} else b"%d" % number for number in range(60)]
    named = [(body, {"message_id": str(number)}) for number, body in enumerate(bodies)]
    edge.send(*named, (b"another of this id", {"message_id": "25"}))
    link = outbound(classic)
    good = {*range(60)} - {20}
    eventually("the remote messages", lambda: set(classic.ids), equals(good))
    if dead_letters:
        found = eventually("the dead letters", lambda: edge.dead, lambda dead: len(dead) == 2)
        assert sorted(name for name, _ in found) == ["20", "25"]
        assert all("larger than" in reason for _, reason in found)
        eventually("the settlement of what is confirmed there", lambda: edge.total, equals(0))
    else:
        eventually("the delays", lambda: edge.delayed, equals(2))
    assert link.stop() == 0
    assert len(events(link, "cut")) <= 4


@pytest.fixture
def ok_topics(rabbitmq_dialect, tmp_path):
    """The keys of a link whose user may publish to topics that begin with `ok` only."""
    user, everything = '<<"topics">>', '<<".*">>'
    granted = f'{user}, <<"/">>, {everything}, {everything}, {everything}, {user}'
    of_topics = f'{user}, <<"/">>, <<"amq.topic">>, <<"^ok">>, {everything}, {user}'
    rabbitmq_dialect._server.evaluate(
        f"rabbit_auth_backend_internal:add_user({user}, {user}, {user}),"
        f" rabbit_auth_backend_internal:set_permissions({granted}),"
        f" rabbit_auth_backend_internal:set_topic_permissions({of_topics})."
    )
    file = tmp_path / "password"
    file.write_text("topics")
    yield {"user": "topics", "password_file": str(file), "broker_queue": None}
    rabbitmq_dialect._server.evaluate(f"rabbit_auth_backend_internal:delete_user({user}, {user}).")


def test_a_topic_that_is_not_permitted(classic, edge, outbound, ok_topics):
    """L22: a message with a routing key that its user may not use is set apart alone."""
    classic.call(lambda channel: channel.queue_bind(classic.queue, "amq.topic", "ok.#"))
    edge.bury()
    with Admin(edge.endpoint) as admin:
        admin.declare_exchange("topics", "topic")
        admin.bind("topics", "q", "#")
    keys = enumerate(["ok.a", "no.b", "ok.c"])
    messages = [(b"x", {"message_id": str(number), "routing_key": key}) for number, key in keys]
    edge.send(*messages, exchange="topics")
    link = outbound(classic, exchange="amq.topic", **ok_topics)
    eventually("the remote messages", lambda: set(classic.ids), equals({0, 2}))
    ((name, reason),) = eventually("the dead letter", lambda: edge.dead)
    assert (name, "access to topic 'no.b'" in reason) == ("1", True)
    assert link.stop() == 0


def test_an_alarm_there_is_told(rabbitmq_dialect, classic, edge, outbound, talkative):
    """L22, L26: while RabbitMQ blocks publishers the link reports the alarm, then goes on."""
    node = rabbitmq_dialect._server
    link = outbound(classic, env=talkative)
    eventually("connected", lambda: events(link, "connected"))
    node.evaluate("vm_memory_monitor:set_vm_memory_high_watermark(0.000001).")
    try:
        edge.publish([0])
        eventually("blocked", lambda: events(link, "blocked"))
        assert "low on memory" in events(link, "blocked")[0]["reason"]
        (shown,) = reported(edge, lambda each: each.limited_by == "alarm")
        assert "low on memory" in shown.reason
    finally:
        node.evaluate("vm_memory_monitor:set_vm_memory_high_watermark(0.4).")
    eventually("unblocked", lambda: events(link, "unblocked"))
    eventually("the remote messages", lambda: classic.ready, equals(1))
    assert link.stop() == 0


def test_properties_too_large_for_a_frame(classic, edge, outbound):
    """L22: properties too large for a frame are refused before sending, without a cut."""
    large = {"message_id": "1", "headers": {"h": "x" * 200_000}}
    edge.send((b"large", large), (b"small", {"message_id": "2"}))
    link = outbound(classic)
    eventually("the remote messages", lambda: classic.ready, equals(1))
    eventually("the delays", lambda: edge.delayed, equals(1))
    assert link.stop() == 0
    assert not events(link, "cut")
    assert "the broker takes 131072 in a frame" in link.log


def test_a_small_window_of_bytes_stalls_nothing(classic, edge, outbound):
    """L22: with a small byte window few messages are in flight at a time, and all go out."""
    edge.send(*((b"x" * 300_000, {"message_id": str(number)}) for number in range(20)))
    link = outbound(classic, window_bytes=1_000_000)
    eventually("the remote messages", lambda: classic.ready, equals(20))
    assert link.stop() == 0
    assert sorted(classic.ids) == list(range(20))
