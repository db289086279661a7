"""Contents of a broker as an operator may see it: flowing and stuck work, hostile names."""

import json
from contextlib import contextmanager
from queue import SimpleQueue

from ackq.client import Channel, Publisher
from ackq.v1 import admin_pb2, links_pb2, sessions_pb2
from tests.eventually import meanwhile
from tests.fakes.raw_client import TIMEOUT_S, Client, holder
from tests.fakes.raw_link import RawLink

HOSTILE = '<img src=x onerror="document.title=1">'
HIDDEN = "pay\u202eload\u200b"
QUERY = "0d8f4c1e-7b7a-4b3e-9c56-6f6b1f3a2c11"
# Names longer than any line on a phone.
LONG_QUEUE, LONG_SESSION, LONG_LINK = "q" * 255, "s" * 250, "l" * 250
LONG_SOURCE = f"amqp://there/{'o' * 250}"
PID = 123_456
# The same process reconnects at once.
_RUNNER = sessions_pb2.Holder(token=b"t" * 16, host="h", pid=PID, application="test")
_OPENING = {"source": LONG_SOURCE, "holder": _RUNNER}
REASONS = ("no id", "amount is negative", HOSTILE)


def order(number):
    """The body of an order, with a number that a double cannot represent."""
    lines = [{"sku": f"A-{number:04}", "count": 2, "price": 19.90}]
    return json.dumps({"id": 9007199254740993 + number, "lines": lines}).encode()


@contextmanager
def filled(endpoint):
    """Fills a broker and yields its raw client; a channel and a session are live meanwhile."""
    with Client(endpoint) as client:
        _declare(client)
        _publish(endpoint)
        _kill(client)
        _lease(client)
        for name, queue, ack in (("gone", "flow", 2), (LONG_LINK, LONG_QUEUE, 1)):
            RawLink(client, link=name, queue=queue, ack=ack, **_OPENING).close()
        with Channel(endpoint, label="worker-3:4711") as channel, _alive(client):
            consumer = channel.consume("invoices", mode="client", prefetch=40)
            for _ in range(40):
                consumer.receive(TIMEOUT_S)
            yield client


def reject(client, queue, *reasons):
    """Publishes `0`, `1` and so on to a queue, and rejects each for its reason."""
    client.publish(*(b"%d" % number for number in range(len(reasons))), queue=queue)
    with client.consume() as channel:
        channel.get(len(reasons), queue=queue)
        for message, reason in zip(channel.deliveries(len(reasons)), reasons, strict=True):
            channel.settled(channel.settle(message.tag, 3, reason=reason))


def _declare(client):
    for name, properties in {
        "orders.dead": {},
        "orders": {"delivery_limit": 3, "dead_letter_queue": "orders.dead", "max_length": 5000},
        "invoices": {"message_ttl_ms": 86_400_000, "redelivery_delay_ms": 1000},
        "audit": {"max_length": 10},
        "binary": {"durable": False},
        "flow": {"retain_ms": 3_600_000},
        "late": {"delivery_limit": 1, "dead_letter_queue": "orders.dead"},
        **{name: {} for name in ("empty", HOSTILE, "hidden", LONG_QUEUE)},
    }.items():
        client.declare(name, **properties)
    for name, kind in (("events", 3), (HOSTILE, 1)):
        client.admin.DeclareExchange(
            admin_pb2.DeclareExchangeRequest(exchange=name, type=kind, durable=True)
        )
    for exchange, queue, key in (
        ("events", "orders", "order.#"),
        ("events", "orders", "refund.*"),
        (HOSTILE, HOSTILE, HOSTILE),
    ):
        client.admin.Bind(admin_pb2.BindRequest(exchange=exchange, queue=queue, binding_key=key))


def _publish(endpoint):
    hostile = f"{HOSTILE}<script>document.title=2</script>"
    given = {"message_id": HOSTILE, "content_type": HOSTILE, "headers": {HOSTILE: hostile}}
    with Publisher(endpoint, label="web-1") as out:
        for number in range(1200):
            out.publish(order(number), routing_key="orders", content_type="application/json")
        for queue, count in (("invoices", 300), ("audit", 10), ("late", 5)):
            for number in range(count):
                out.publish(f"entry {number}", routing_key=queue)
        out.publish(hostile, routing_key=HOSTILE, **given)
        out.publish(HIDDEN, routing_key="hidden", message_id=HIDDEN)
        out.publish(bytes(range(256)) * 4, routing_key="binary")
        out.publish("x" * 200_000, routing_key="binary", content_type="text/plain")
        out.publish(b"", routing_key="binary")
        out.publish('{"cut": "' + "é" * 20_000 + '"}', routing_key="binary")
        out.publish("a\u0000b\u001b[31mred", routing_key="binary")


def _kill(client):
    """Rejects some orders for several reasons, and fails others beyond their delivery limit."""
    with client.consume() as channel:
        channel.get(60, queue="orders")
        for place, message in enumerate(channel.deliveries(60)):
            reason = REASONS[0 if place < 40 else 1 + place % 2]
            channel.settled(channel.settle(message.tag, 3, reason=reason))
        for number in (2, 3):
            channel.get(5, queue="late", number=number)
            for message in channel.deliveries(5):
                channel.settled(channel.settle(message.tag, 2, reason="timeout"))


def _lease(client):
    """Opens two sessions: one whose reader attached twice, and one without a reader."""
    reader = holder("billing job")
    lease = {"session": "billing", "queues": ["orders"], "max_messages": 400}
    incarnation, _ = client.open(reader, **lease)
    again = client.sessions.Attach(
        sessions_pb2.AttachRequest(
            session="billing", incarnation=incarnation, holder=reader, start_tag=0, end_tag=400
        ),
        timeout=TIMEOUT_S,
    )
    whose = {"session": "billing", "incarnation": incarnation, "epoch": again.epoch}
    batch = {"query_id": QUERY, "batch_id": 7, "run_id": "run", "label": "partition 3, attempt 0"}
    request = sessions_pb2.FetchRequest(last_tag=400, **whose, **batch)
    list(client.sessions.Fetch(request, timeout=TIMEOUT_S))
    client.open(holder(HOSTILE), session=HOSTILE, queues=[HOSTILE])
    client.advance(holder("r" * 250), session=LONG_SESSION, queues=[LONG_QUEUE])


def _repeated(work):
    """Does this each second meanwhile."""

    def run(ended):
        while not ended.wait(1):
            work()

    return meanwhile(run)


@contextmanager
def linked(client):
    """Keeps the link with the long name live; it holds two messages and has set one aside."""
    link = RawLink(client, link=LONG_LINK, queue=LONG_QUEUE, **_OPENING)
    subscription = link.subscribe()
    link.deliver(subscription, 1, [1, 2])
    link.stored()
    report = links_pb2.LinkReport(window_messages=9, set_aside=1, set_aside_reason=f"bad {HOSTILE}")
    alive = links_pb2.LinkHeartbeat(subscription=subscription, report=report)
    with _repeated(lambda: link.send(heartbeat=alive)):
        yield
    link.close()


@contextmanager
def _alive(client):
    """Keeps a reader of session `nightly` live."""
    reader = holder("nightly report")
    lease = {"session": "nightly", "queues": ["invoices"], "max_messages": 25}
    incarnation, advanced = client.open(reader, **lease)
    beat = sessions_pb2.HoldRequest(
        session="nightly", incarnation=incarnation, epoch=advanced.epoch, token=reader.token
    )
    streams = []

    def hold():
        """Sends a heartbeat, on a new stream if the broker has missed one."""
        if not streams or streams[-1][0].done():
            beats = SimpleQueue()
            streams.append((client.sessions.Hold(iter(beats.get, None)), beats))
        streams[-1][1].put(beat)

    hold()
    next(streams[0][0])
    with _repeated(hold):
        yield
    streams[-1][0].cancel()
