"""Every method of every service over a disk that syncs when the test says so (I1).

One table, with a script for each kind of answer. Before each request another command is decided and
not synced, so that reads, no-ops and errors have something to wait for as well.
"""

import asyncio
import time
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import AsyncMock, Mock

import pytest
from google.protobuf.message_factory import GetMessageClass
from grpc import aio

from ackq.v1 import admin_pb2, consuming_pb2, links_pb2, publishing_pb2, sessions_pb2
from ackq.wire import frame
from ackq_broker.core import commands
from ackq_broker.service.admin import AdminService
from ackq_broker.service.consuming.dispatcher import ConsumerDispatcher
from ackq_broker.service.consuming.service import ConsumingService
from ackq_broker.service.holdings import Holdings
from ackq_broker.service.links.service import LinksService
from ackq_broker.service.publishing.service import PublishingService
from ackq_broker.service.sessions.liveness import Liveness
from ackq_broker.service.sessions.service import SessionsService
from ackq_broker.service.transport.rpc import service_handler
from tests.fakes.blocks import encoded
from tests.unit.service.channel_streams import InlineEngine, run_until_idle
from tests.unit.service.channel_streams import publish as publish_messages

SERVICES = [
    service
    for file in (admin_pb2, consuming_pb2, links_pb2, publishing_pb2, sessions_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
]
METHODS = {
    f"{service.name}/{method.name}": method for service in SERVICES for method in service.methods
}
DURABLE = commands.QueueProperties(durable=True)
PUBLISHER, TOKEN, STAGED, SEALED, OUTCOMES = (each * 16 for each in (b"p", b"t", b"o", b"e", b"u"))
BYSTANDER = b"y" * 16
INCARNATION = "1" * 32
OWNER = {"session": "s"}
# The end of a call: its stream ends with status OK, or the call with a status of an error.
END, ERROR = "end", "error"
# An answer that depends on no record, and leaves at once.
OPENED = "opened at once"


HOLDER = commands.HolderInfo(TOKEN)
SET_UP = [
    *(commands.DeclareQueue(name, DURABLE) for name in ("q", "q2", "empty")),
    commands.DeclareExchange("x", "direct", durable=True),
    commands.Bind("x", "q2", "key"),
    commands.OpenPublisher(b"0" * 16),
    commands.OpenPublisher(BYSTANDER),
    commands.OpenStage(SEALED, "w", 0, ""),
    commands.CommitBatch("idle", 0, "", "", ()),
    commands.OpenLink(
        "idle", HOLDER, "there", "q2", commands.LinkAck.SETTLED, new_incarnation=INCARNATION
    ),
]


class Step(NamedTuple):
    """The fields of a request and the answer it must get; a request None is a half-close."""

    request: Any
    answer: str = "answer"


# --- a broker in memory, and calls as gRPC makes them ---


class Broker:
    """All services over one engine.

    Two messages of queue `q` are leased by session `s`, one is ready. Stage `SEALED` can be
    committed, and outcomes `OUTCOMES`. Writer `idle` has no stage. Link `idle` has no running
    process.
    """

    def __init__(self):
        self.engine = InlineEngine(prompt=False)
        self._bystanders = 0
        for command in SET_UP:
            self.engine.decide(command)
        publish_messages(self.engine, 1, b"a", b"b", b"c", publisher=b"0" * 16)
        opening = commands.Advance("s", "", HOLDER, ("q",), 0, max_messages=2)
        opening = replace(opening, open_and_lease=True, new_incarnation=INCARNATION)
        assert self.engine.decide(opening).reply.end_tag == 2
        owner = commands.LeaseOwner("s", "", "", 0)
        self.engine.decide(commands.StageOutcomes(OUTCOMES, owner, "", False, ()))
        rows = commands.StageBlock(SEALED, "", commands.Routes(("q2",)), 1, 1)
        self.engine.decide(rows, (encoded(body=[b"d"]),))
        self.engine.decide(commands.SealStage(SEALED, 1, 1))
        dispatcher = ConsumerDispatcher(self.engine)
        consuming = ConsumingService(self.engine, dispatcher)
        sessions = SessionsService(self.engine, Liveness(time.monotonic))
        holdings = Holdings(self.engine, consuming, sessions)
        servicers = {
            "AdminService": AdminService(self.engine, dispatcher, "none", holdings),
            "ConsumingService": consuming,
            "LinksService": LinksService(self.engine, Liveness(count(step=100).__next__)),
            "PublishingService": PublishingService(self.engine),
            "SessionsService": sessions,
        }
        self._handlers = {
            service.name: service_handler(service, servicers[service.name], self.engine.wait_synced)
            for service in SERVICES
        }
        self.engine.sync()

    def behaviour(self, method):
        """The function that gRPC calls for a method."""
        service = method.containing_service
        details = SimpleNamespace(
            method=f"/{service.full_name}/{method.name}", invocation_metadata=()
        )
        handler = self._handlers[service.name].service(details)
        return handler.stream_unary or handler.stream_stream

    def decide_something(self):
        """Decides a change that no call of the test is about."""
        self._bystanders += 1
        if self.engine.disk_alarm.reason:
            self.engine.decide(commands.ClosePublisherStream(BYSTANDER))
            self.engine.decide(commands.OpenPublisher(BYSTANDER, resume=True))
        else:
            # A change of the topology, on which alone some answers depend.
            name = f"other{self._bystanders}"
            self.engine.decide(commands.DeclareExchange(name, "direct", durable=True))


class Call:
    """One call: its answers, and `early`, the answers sent while a record was unsynced."""

    def __init__(self, broker, method):
        self._engine, self._method = broker.engine, method
        self._behaviour = broker.behaviour(method)
        self._requests = asyncio.Queue()
        self.answers, self.early = [], []
        self._task = None

    def send(self, request):
        """Sends a request of fields, or of bytes; None half-closes."""
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())
        if isinstance(request, dict):
            made = GetMessageClass(self._method.input_type)(**request)
            request = made.SerializeToString()
        self._requests.put_nowait(aio.EOF if request is None else request)

    async def cancel(self):
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self):
        context = AsyncMock(read=self._requests.get, write=self._write)
        context.peer, context.done = Mock(return_value="peer"), Mock(return_value=False)
        context.abort.side_effect = aio.AbortError
        try:
            response = await self._behaviour(None, context)
        except aio.AbortError:
            self._note(ERROR)
            return
        self._note(END if self._method.server_streaming else _kind(response))

    def _note(self, kind):
        if kind == "heartbeat":
            return
        if kind != OPENED and self._engine.journal.synced < self._engine.core.sequence:
            self.early.append(kind)
        self.answers.append(kind)

    async def _write(self, response):
        kind = _kind(response)
        channel = self._method.name == "Consume"
        self._note(OPENED if channel and kind == "opened" else kind)


def _kind(response):
    """The kind of an answer where there are several, else `answer`."""
    message = response.header if isinstance(response, frame.Frame) else response
    if "kind" in message.DESCRIPTOR.oneofs_by_name:
        return message.WhichOneof("kind")
    return "answer"


# --- the table ---


def advance(**fields):
    fields = {"max_messages": 1, "holder": {"token": TOKEN}, "queues": ["q"], **fields}
    return {**SESSION, **fields}


def framed(block=b"", **kind):
    return {"header": kind, "block": block}


def data(number, routing_key="q2", **fields):
    block = encoded(body=[b"x"], routing_key=routing_key)
    sent = {"first_number": number, "rows": 1, **fields}
    return framed(block, data=sent, lowest_unanswered=1)


def opening(mode):
    return framed(open={"publisher_id": PUBLISHER, "mode": mode}, lowest_unanswered=1)


def transaction(**end):
    ((kind, messages),) = end.items()
    named = {"transaction_id": bytes(16), "messages": messages}
    return framed(lowest_unanswered=1, **{kind: named})


def deliveries(number):
    sent = {"subscription": 1, "first_number": number, "rows": 1, "lowest_unanswered": 1}
    sent |= {"keys": b"%016d" % number, "checks": b"%08d" % number}
    return framed(encoded(body=[b"x"]), deliveries=sent)


def settle(tag, number):
    return {"settle": {"delivery_tag": tag, "outcome": 1, "number": number}}


SESSION = {"session": "s", "incarnation": INCARNATION}
HOLD = {**SESSION, "epoch": 1, "token": TOKEN}
REPORT = {"report": {"link": "out", "queue": "q", "target": "there"}}
STAGES = [{"stage_id": SEALED, "rows": 1, "payload_bytes": 1}]
LINK = {"link": "l", "holder": {"token": TOKEN}, "source": "there", "queue": "q2"}
OPEN_CHANNEL = Step({"open": {"channel_id": bytes(16)}}, OPENED)

# Calls of one request and one answer.
CALLS = [
    ("AdminService/ServerInfo", {}),
    ("AdminService/AcceptHistory", {}),
    ("AdminService/Drain", {}),
    ("AdminService/DeclareQueue", {"queue": "new"}),
    ("AdminService/DeleteQueue", {"queue": "empty"}),
    ("AdminService/PurgeQueue", {"queue": "q"}),
    ("AdminService/Redrive", {"queue": "q"}),
    ("AdminService/ListQueues", {}),
    ("AdminService/ListHoldings", {"queue": "q"}),
    ("AdminService/DeclareExchange", {"exchange": "n", "type": 1}),
    ("AdminService/DeleteExchange", {"exchange": "x"}),
    ("AdminService/ListExchanges", {}),
    ("AdminService/Bind", {"exchange": "x", "queue": "q", "binding_key": "k"}),
    ("AdminService/Unbind", {"exchange": "x", "queue": "q2", "binding_key": "key"}),
    ("AdminService/PlanBrowse", {"queue": "q"}),
    ("AdminService/Browse", {"queue": "q"}),
    ("LinksService/ListLinks", {}),
    ("LinksService/PauseLink", {"link": "idle", "paused": True}),
    ("LinksService/RemoveLink", {"link": "idle"}),
    ("PublishingService/PrepareBatch", {"writer": "w", "edges": "a:1,b:1", "stages": STAGES}),
    ("PublishingService/CommitBatch", {"writer": "w", "stages": STAGES}),
    ("PublishingService/AbortBatch", {"writer": "w", "stage_ids": [SEALED]}),
    ("PublishingService/ListBatches", {}),
    ("PublishingService/DropBatch", {"batch": {"writer": "w"}}),
    ("PublishingService/ListWriters", {}),
    ("PublishingService/ForgetWriter", {"writer": "idle", "force": True}),
    ("PublishingService/AssignWriter", {"writer": "w", "user": "alice"}),
    ("SessionsService/Horizon", {}),
    ("SessionsService/Advance", advance(start_tag=2)),
    ("SessionsService/Advance", advance(incarnation="", takeover=True)),
    ("SessionsService/Attach", {**SESSION, "holder": {"token": TOKEN}, "end_tag": 2}),
    (
        "SessionsService/Fetch",
        {**SESSION, "epoch": 1, "last_tag": 2, "query_id": "y", "run_id": "r"},
    ),
    ("SessionsService/ListSessions", {}),
    ("SessionsService/ReleaseSession", {"session": "s", "fence": True}),
    (
        "SessionsService/StageOutcomes",
        {"owner": OWNER, "stage_id": STAGED, "groups": [{"outcome": 4, "tags": [1]}], "seal": True},
    ),
    ("SessionsService/CommitOutcomes", {"owner": OWNER, "stages": [{"stage_id": OUTCOMES}]}),
    ("SessionsService/AbortOutcomes", {"stage_ids": [OUTCOMES]}),
    ("SessionsService/BrowseLease", {"session": "s"}),
    ("SessionsService/PlanRetained", {"session": "s"}),
    (
        "SessionsService/SettleSession",
        {"session": "s", "outcome": 4, "first_tag": [1], "last_tag": [1], "fence": True},
    ),
]
SCRIPTS = [
    *((name, Step(fields)) for name, fields in CALLS),
    # Refused, as there is no directory for it; a backup has synced records alone (O5).
    ("AdminService/Backup", Step({}, ERROR)),
    ("AdminService/RewindQueue", Step({"queue": "q"}, ERROR)),
    ("SessionsService/RewindSession", Step({"session": "s"}, ERROR)),
    (
        "ConsumingService/Consume",
        OPEN_CHANNEL,
        Step({"subscribe": {"consumer": "c", "queue": "q"}}, "delivery"),
        Step({"transport_ack": {"delivery_tag": 1}}, ""),
        Step(settle(1, number=1), "settled"),
        Step({"get": {"queue": "empty", "number": 2, "messages": 1}}, "get_empty"),
        Step(None, END),
    ),
    (
        "ConsumingService/Consume",
        OPEN_CHANNEL,
        Step({"get": {"queue": "q", "number": 1, "messages": 1}}, "delivery"),
        Step(settle(9, number=2), ERROR),
    ),
    (
        "LinksService/Link",
        Step(framed(open={**LINK, "ack": links_pb2.LINK_ACK_STORED}), "opened"),
        Step(framed(subscribe={}), "subscribed"),
        Step(deliveries(1), "stored"),
        Step(deliveries(2), "stored"),
        Step(deliveries(1), "stored"),
        Step(framed(heartbeat={"subscription": 1, "proven": 1, "proven_number": 1}), "state"),
        Step(None, END),
    ),
    ("LinksService/ReportOutbound", Step(REPORT), Step(REPORT), Step(None, END)),
    (
        "PublishingService/Publish",
        Step(opening(publishing_pb2.PUBLISH_MODE_CONFIRM), "opened"),
        Step(data(1), "confirm"),
        Step(data(2, "nowhere", mandatory=True), "returned"),
        Step(data(3, exchange="missing"), "nack"),
        Step(data(4, "k" * 300), "nack"),
        Step(data(1), "confirm"),
        Step(framed(probe={"first_number": 1, "last_number": 9}, lowest_unanswered=1), "probed"),
        Step(None, END),
    ),
    (
        "PublishingService/Publish",
        Step(opening(publishing_pb2.PUBLISH_MODE_TRANSACTION), "opened"),
        Step(data(1, transaction_id=bytes(16)), ""),
        Step(transaction(commit=1), "transaction"),
        Step(transaction(commit=1), "transaction"),
        Step(transaction(rollback=0), "transaction"),
        Step(transaction(commit=5), "transaction"),
        Step(None, END),
    ),
    (
        "PublishingService/Stage",
        Step(framed(open={"stage_id": STAGED, "writer": "w", "batch_id": 1}), ""),
        Step(framed(encoded(body=[b"x"], routing_key="q2"), data={"rows": 1}), "stored"),
        Step(framed(seal={"rows": 1, "payload_bytes": 3}), "sealed"),
    ),
    ("SessionsService/Hold", Step(HOLD), Step(HOLD), Step(None, END)),
]


async def take(broker, call, step):
    """Sends a request; no answer may leave before the disk has all that was decided."""
    broker.decide_something()
    other, before = broker.engine.core.sequence, len(call.answers)
    call.send(step.request)
    await run_until_idle()
    if step.answer != OPENED:
        assert call.answers[before:] == [], "answered before any sync"
    # The disk syncs the records before the request, and then those of the request, in turn.
    broker.engine.sync(other)
    await run_until_idle()
    for _ in range(4):
        broker.engine.sync()
        await run_until_idle()
    assert call.early == [], "answered before its own record was synced"
    return call.answers[before:]


def test_the_table_is_complete():
    """I1: a method that is added to the protocol needs a script in the table."""
    assert {name for name, *_ in SCRIPTS} == set(METHODS)


@pytest.mark.parametrize("script", SCRIPTS, ids=[name for name, *_ in SCRIPTS])
async def test_answers_wait_for_the_disk(script):
    """I1: each answer leaves after the sync of its own record and of all before it.

    So does that of a repeated call, which changes nothing or is refused: it depends on state, too.
    """
    name, *steps = script
    broker = Broker()
    for repeated in (False, True):
        call = Call(broker, METHODS[name])
        for step in steps:
            answers = await take(broker, call, step)
            if repeated and ERROR in answers:
                break
            if not repeated:
                assert (step.answer in answers) if step.answer else answers == [], step
        assert answers
        await call.cancel()


@pytest.mark.parametrize("name", METHODS)
async def test_errors_wait_for_the_disk(name):
    """I1: an error leaves no sooner than an answer would."""
    broker = Broker()
    call = Call(broker, METHODS[name])
    assert await take(broker, call, Step(b"\xff")) == [ERROR]
    await call.cancel()


async def test_nacks_and_confirms_of_a_full_disk_wait():
    """I1, P8: a nack depends on queued messages, and a repeated confirm on earlier publishes."""
    broker = Broker()
    call = Call(broker, METHODS["PublishingService/Publish"])
    for request in (opening(publishing_pb2.PUBLISH_MODE_CONFIRM), data(1)):
        await take(broker, call, Step(request))
    broker.engine.free_bytes = 0
    broker.engine.alarms.poll_disk()
    await run_until_idle()
    assert call.answers[-1] == "blocked"
    assert await take(broker, call, Step(data(2))) == ["nack"]
    assert await take(broker, call, Step(data(1))) == ["confirm"]
    both = data(1, rows=2)
    both["block"] = encoded(body=[b"x", b"y"], routing_key="q2")
    assert sorted(await take(broker, call, Step(both))) == ["confirm", "nack"]
    await call.cancel()


async def test_a_cancelled_consumer_is_told_after_the_sync():
    """I1, Q4: the deletion of a queue reaches its consumers after the sync, too."""
    broker = Broker()
    call = Call(broker, METHODS["ConsumingService/Consume"])
    await take(broker, call, OPEN_CHANNEL)
    await take(broker, call, Step({"subscribe": {"consumer": "c", "queue": "empty"}}, ""))
    deletion = Call(broker, METHODS["AdminService/DeleteQueue"])
    assert await take(broker, deletion, Step({"queue": "empty", "force": True})) == ["answer"]
    assert (call.answers[-1], call.early) == ("cancelled", [])
    await call.cancel()


async def test_a_replaced_holder_is_told_after_the_sync():
    """I1, S3: the error that ends its stream names a holder that no crash takes back."""
    broker = Broker()
    holding = Call(broker, METHODS["SessionsService/Hold"])
    assert await take(broker, holding, Step(HOLD)) == ["answer"]
    release = Call(broker, METHODS["SessionsService/ReleaseSession"])
    assert await take(broker, release, Step({"session": "s", "fence": True})) == ["answer"]
    assert (holding.answers[-1], holding.early) == (ERROR, [])
