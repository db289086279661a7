"""Targets: a client whose broker is hostile: typed errors or sound results, no failing thread.

A server in this process answers each call with the bytes of the example.
"""

import asyncio
import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import grpc
import pyarrow as pa

from ackq.client import Admin, Broker, Channel, Publisher, Session
from ackq.errors import AckqError
from ackq.v1 import consuming_pb2, links_pb2, messages_pb2, publishing_pb2, sessions_pb2
from ackq.wire import block, frame
from ackq_link.edge import AsyncLink
from tests.fuzz.blocks import hostile_block, hostile_runs, sound_block
from tests.fuzz.mutations import Filler, mutated
from tests.fuzz.targets import METHODS, outcome_of, target

GIVEN = {"queue": ("q",), "history_id": ("h",), "queues": ("q",), "consumer": ("1",)}
SOON_S, LIMIT_S = 0.3, 60


class Hostile(grpc.GenericRpcHandler):
    """Answers every call with the next answers of the example, and then ends it."""

    def __init__(self):
        self.openings = self.answers = ()
        self.trailing = ()
        self.code = grpc.StatusCode.OK
        self.failures = []
        self.server = grpc.server(ThreadPoolExecutor(16))
        self.server.add_generic_rpc_handlers((self,))
        self.endpoint = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def service(self, details):
        method = METHODS.get(details.method)
        if method is None:
            return None
        if method.server_streaming:
            return grpc.stream_stream_rpc_method_handler(self._streamed)
        return grpc.stream_unary_rpc_method_handler(self._one)

    def _streamed(self, requests, context):
        next(requests, None)
        if self.openings:
            # The answers are for the requests that the client sends on the opened stream.
            yield from self.openings
            next(requests, None)
        yield from self.answers
        self._end(context)

    def _one(self, requests, context):
        next(requests, None)
        self._end(context)
        return self.answers[0]

    def _end(self, context):
        context.set_trailing_metadata(self.trailing)
        if self.code is not grpc.StatusCode.OK:
            context.abort(self.code, "hostile")

    def insert(self, rng, sound):
        self.answers.insert(rng.randrange(len(self.answers) + 1), sound)


@cache
def hostile():
    return Hostile()


@contextlib.contextmanager
def threads_watched():
    """Hands the failures of threads to the hostile broker meanwhile."""
    before = threading.excepthook
    threading.excepthook = hostile().failures.append
    try:
        yield
    finally:
        threading.excepthook = before


def scripted(rng, method, openings=()):
    """A broker that answers a method with sound openings and then with mutated messages."""
    broker, filler = hostile(), Filler(rng, GIVEN)
    made = []
    for _ in range(rng.randrange(1, 4) if method.server_streaming else 1):
        message = filler.message(method.output_type)
        if "block" in method.output_type.fields_by_name:
            data = framed(message, rng)
        else:
            data = message.SerializeToString()
        made.append(mutated(data, rng) if rng.random() < 0.3 else data)
    broker.openings, broker.answers = openings, made
    broker.trailing, broker.code = (), grpc.StatusCode.OK
    if rng.random() < 0.3:
        broker.code = rng.choice([each for each in grpc.StatusCode if each.value[0]])
        detail = filler.message(messages_pb2.ErrorDetail.DESCRIPTOR).SerializeToString()[:4000]
        broker.trailing = (("ackq-error-bin", mutated(detail, rng)),)
    return broker


def framed(message, rng):
    """A frame whose block is hostile or sound, with hostile runs."""
    held = rng.choice((hostile_block, sound_block))(rng)
    with contextlib.suppress(AckqError):
        runs = hostile_runs(rng, min(block.split(held)[0].rows, 1_000_000))
        header = message.header
        if header.DESCRIPTOR is runs.DESCRIPTOR:
            header.CopyFrom(runs)
        elif header.DESCRIPTOR is consuming_pb2.ConsumeHeader.DESCRIPTOR and rng.random() < 0.7:
            delivery = consuming_pb2.Delivery(consumer="1", runs=runs)
            header.CopyFrom(consuming_pb2.ConsumeHeader(delivery=delivery))
    return frame.encode(message.header.SerializeToString(), held)


def framed_alone(header):
    return frame.encode(header.SerializeToString())


def method_of(name):
    return next(method for method in METHODS.values() if method.name == name)


def of_client(call, broker):
    """The outcome of a client's call, in a word; fails if one of its threads failed."""
    said, _ = outcome_of(call)
    failures = broker.failures.copy()
    broker.failures.clear()
    for failure in failures:
        raise AssertionError(f"a thread failed: {failure.exc_value!r}") from failure.exc_value
    return said


@target(20, threads_watched)
def admin_answers(rng):
    """Q5, S8: all answers that operators ask for, also messages of a queue or a lease."""
    name, ask = rng.choice(
        (
            ("ServerInfo", Admin.info),
            ("ListQueues", lambda admin: list(admin.queues())),
            ("ListExchanges", Admin.exchanges),
            ("ListHoldings", lambda admin: admin.holdings("q")),
            ("ListSessions", lambda admin: admin.session("s")),
            ("ListBatches", lambda admin: admin.batch("w", 1)),
            ("ListLinks", lambda admin: admin.link("l")),
            ("ListLinks", Admin.outbound_links),
            ("ListWriters", lambda admin: admin.writer("w")),
            ("DeclareQueue", lambda admin: admin.declare_queue("q")),
            ("PlanBrowse", lambda admin: admin.plan_browse("q")),
            ("PlanRetained", lambda admin: admin.retained("s")),
            ("Browse", lambda admin: read(admin.browse("q"))),
            ("Browse", lambda admin: read(admin.browse("q", max_body_bytes=10))),
            ("BrowseLease", lambda admin: read(admin.browse_lease("s"))),
        )
    )
    broker = scripted(rng, method_of(name))
    return of_client(lambda: ask(Admin(broker.endpoint, timeout_s=20)), broker)


def read(batches):
    for batch in batches:
        batch.validate(full=True)
        batch.to_pylist()


@target(10, threads_watched)
def fetched_answers(rng):
    """S2: messages of a lease, on an executor."""
    broker = scripted(rng, method_of("Fetch"))
    session = Session(broker.endpoint, retry_total_ms=0)
    request = sessions_pb2.FetchRequest(session="s", incarnation="i", epoch=1, last_tag=50)
    names = ["body", "headers", "published_at", "delivery_tag", "queue"]
    return of_client(lambda: read(session.fetch(request, names)), broker)


@target(10, threads_watched)
def consumed_answers(rng):
    """C1: messages of a channel."""
    opened = consuming_pb2.ChannelOpened(
        outcomes=[1, 2, 3, 4], heartbeat_ms=5000, settle_runs=True, instance=b"i"
    )
    opening = framed_alone(consuming_pb2.ConsumeHeader(opened=opened))
    broker = scripted(rng, method_of("Consume"), (opening,))

    def consume():
        with Channel(broker.endpoint, retry_total_ms=0, reconnect_timeout_ms=0) as channel:
            consumer = channel.consume("q", mode="client")
            for _ in range(5):
                message = consumer.receive(timeout_s=SOON_S)
                if message is None:
                    return
                assert isinstance(message.body, bytes | None)
                assert message.headers is not None

    return of_client(consume, broker)


@target(10, threads_watched)
def publisher_answers(rng):
    """P3: confirms, nacks and returns of a publisher."""
    opened = publishing_pb2.PublishOpened(
        history_id="h", max_frame_bytes=1 << 20, max_message_bytes=1 << 20, commit_with_data=True
    )
    opening = framed_alone(publishing_pb2.PublishAnswer(opened=opened))
    broker = scripted(rng, method_of("Publish"), (opening,))
    confirm = publishing_pb2.PublishConfirm(last_number=3, multiple=True)
    if rng.random() < 0.4:  # then the answers before or after the full confirm are hostile
        broker.insert(rng, framed_alone(publishing_pb2.PublishAnswer(confirm=confirm)))

    def publish():
        with Publisher(broker.endpoint, retry_total_ms=0, on_return=list) as publisher:
            rows = pa.record_batch({"body": [b"x"] * 3})
            publisher.publish_batch(rows, routing_key="q").result(LIMIT_S)

    return of_client(publish, broker)


@target(10, threads_watched)
def link_answers(rng):
    """L5, L10: answers and permits of a link: none for undelivered messages, and each once."""
    opened = links_pb2.LinkOpened(incarnation="i", epoch=1, history="h")
    subscribed = links_pb2.LinkSubscribed(subscription=1)
    stored = links_pb2.LinkStored(
        first_number=1, rows=[3], first_position=[5], matched=[0], permitted=[1]
    )
    openings = tuple(
        links_pb2.LinkResponse(**{name: answer}).SerializeToString()
        for name, answer in (("opened", opened), ("subscribed", subscribed))
    )
    broker = scripted(rng, method_of("Link"), openings)
    if rng.random() < 0.5:  # then the answers before or after the sound one are hostile
        broker.insert(rng, links_pb2.LinkResponse(stored=stored).SerializeToString())

    async def store():
        link = AsyncLink(Broker(broker.endpoint, retry_ms=0), link="l", source="s", queue="q")
        async with asyncio.timeout(LIMIT_S), link:
            await link.subscribe(lambda: 0)
            rows = pa.record_batch({"body": [b"x"] * 3})
            found = await link.store(1, rows, keys=bytes(48), checks=bytes(24))
            assert found.rows == 3
            if found.permitted:
                taken = (await link.permits()).ranges
                numbers = [each for first, last in taken for each in range(first, last + 1)]
                assert sorted(set(numbers)) == sorted(numbers)
                assert set(numbers) <= {1, 2, 3}

    return of_client(lambda: asyncio.run(store()), broker)
