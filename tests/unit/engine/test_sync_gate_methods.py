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

import pytest
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
OWNER = sessions_pb2.LeaseOwner(session="s")
STAGED_BATCH = publishing_pb2.BatchKey(writer="w")
# The end of a call: its stream ends with status OK, or the call with a status of an error.
END, ERROR = "end", "error"
# An answer that depends on no record, and leaves at once.
OPENED = "opened at once"


class Step(NamedTuple):
    """A request and the answer it must get; the request None is a half-close."""

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
        for name in ("q", "q2", "empty"):
            self.engine.decide(commands.DeclareQueue(name, DURABLE))
        self.engine.decide(commands.DeclareExchange("x", "direct", durable=True))
        self.engine.decide(commands.Bind("x", "q2", "key"))
        self._publish()
        self._lease()
        self._stage()
        self._link()
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

    def _publish(self):
        for publisher in (b"0" * 16, BYSTANDER):
            self.engine.decide(commands.OpenPublisher(publisher))
        publish_messages(self.engine, 1, b"a", b"b", b"c", publisher=b"0" * 16)

    def _lease(self):
        self.leased = self.engine.decide(
            commands.Advance(
                session="s",
                incarnation="",
                holder=commands.HolderInfo(TOKEN),
                queues=("q",),
                start_tag=0,
                max_messages=2,
                open_and_lease=True,
                new_incarnation=INCARNATION,
            )
        ).reply
        assert self.leased.end_tag == 2
        owner = commands.LeaseOwner("s", "", "", 0)
        self.engine.decide(commands.StageOutcomes(OUTCOMES, owner, "", False, ()))

    def _stage(self):
        self.engine.decide(commands.OpenStage(SEALED, "w", 0, ""))
        routes = commands.Routes(("q2",))
        self.engine.decide(commands.StageBlock(SEALED, "", routes, 1, 1), (encoded(body=[b"d"]),))
        self.engine.decide(commands.SealStage(SEALED, 1, 1))
        self.engine.decide(commands.CommitBatch("idle", 0, "", "", ()))

    def _link(self):
        holder = commands.HolderInfo(TOKEN)
        opening = commands.OpenLink("idle", holder, "there", "q2", commands.LinkAck.SETTLED)
        self.engine.decide(replace(opening, new_incarnation=INCARNATION))


class AbortedError(Exception):
    """Raised by gRPC to end a call."""


class Call:
    """One call: its answers, and `early`, the answers sent while a record was unsynced."""

    def __init__(self, broker, method):
        self._engine, self._method = broker.engine, method
        self._behaviour = broker.behaviour(method)
        self._requests = asyncio.Queue()
        self.answers, self.early = [], []
        self._task = None

    def send(self, data):
        """Sends a request as bytes; None half-closes."""
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())
        self._requests.put_nowait(aio.EOF if data is None else data)

    async def cancel(self):
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self):
        try:
            response = await self._behaviour(None, self)
        except AbortedError:
            return
        self._note(END if self._method.server_streaming else _kind(response))

    def _note(self, kind):
        if kind == "heartbeat":
            return
        if kind != OPENED and self._engine.journal.synced < self._engine.core.sequence:
            self.early.append(kind)
        self.answers.append(kind)

    # As the context of gRPC.

    async def read(self):
        return await self._requests.get()

    async def write(self, response):
        kind = _kind(response)
        channel = self._method.name == "Consume"
        self._note(OPENED if channel and kind == "opened" else kind)

    def peer(self):
        return "peer"

    async def abort(self, *_):
        self._note(ERROR)
        raise AbortedError

    async def send_initial_metadata(self, _):
        pass

    def done(self):
        return False


def _kind(response):
    """The kind of an answer where there are several, else `answer`."""
    message = response.header if isinstance(response, frame.Frame) else response
    if "kind" in message.DESCRIPTOR.oneofs_by_name:
        return message.WhichOneof("kind")
    return "answer"


# --- the table ---


def advance(**fields):
    fields = {"incarnation": INCARNATION, "max_messages": 1, **fields}
    return sessions_pb2.AdvanceRequest(
        session="s", holder=sessions_pb2.Holder(token=TOKEN), queues=["q"], **fields
    )


def hold():
    return sessions_pb2.HoldRequest(session="s", incarnation=INCARNATION, epoch=1, token=TOKEN)


def publish(block=b"", **kind):
    header = publishing_pb2.PublishHeader(lowest_unanswered=1, **kind)
    return publishing_pb2.PublishRequest(header=header, block=block)


def data(number, routing_key="q2", **fields):
    return publish(
        encoded(body=[b"x"], routing_key=routing_key),
        data=publishing_pb2.PublishData(first_number=number, rows=1, **fields),
    )


def opening(mode):
    return publish(open=publishing_pb2.PublishOpen(publisher_id=PUBLISHER, mode=mode))


def transaction(messages):
    return publishing_pb2.PublishTransaction(transaction_id=bytes(16), messages=messages)


def stage(block=b"", **kind):
    header = publishing_pb2.StageHeader(**kind)
    return publishing_pb2.StageRequest(header=header, block=block)


def link(block=b"", **kind):
    return links_pb2.LinkRequest(header=links_pb2.LinkHeader(**kind), block=block)


def report(published):
    fields = {"link": "out", "queue": "q", "target": "there", "published": published}
    return links_pb2.ReportOutboundRequest(report=links_pb2.OutboundReport(**fields))


def deliveries(number):
    return link(
        encoded(body=[b"x"]),
        deliveries=links_pb2.LinkDeliveries(
            subscription=1,
            first_number=number,
            rows=1,
            lowest_unanswered=1,
            keys=b"%016d" % number,
            checks=b"%08d" % number,
        ),
    )


def consume(**kind):
    return consuming_pb2.ConsumeRequest(**kind)


SCRIPTS = [
    ("AdminService/ServerInfo", Step(admin_pb2.ServerInfoRequest())),
    ("AdminService/AcceptHistory", Step(admin_pb2.AcceptHistoryRequest())),
    # Refused, as there is no directory for it; a backup has synced records alone (O5).
    ("AdminService/Backup", Step(admin_pb2.BackupRequest(), ERROR)),
    ("AdminService/Drain", Step(admin_pb2.DrainRequest())),
    ("AdminService/DeclareQueue", Step(admin_pb2.DeclareQueueRequest(queue="new"))),
    ("AdminService/DeleteQueue", Step(admin_pb2.DeleteQueueRequest(queue="empty"))),
    ("AdminService/PurgeQueue", Step(admin_pb2.PurgeQueueRequest(queue="q"))),
    ("AdminService/Redrive", Step(admin_pb2.RedriveRequest(queue="q"))),
    ("AdminService/ListQueues", Step(admin_pb2.ListQueuesRequest())),
    ("AdminService/ListHoldings", Step(admin_pb2.ListHoldingsRequest(queue="q"))),
    ("AdminService/DeclareExchange", Step(admin_pb2.DeclareExchangeRequest(exchange="n", type=1))),
    ("AdminService/DeleteExchange", Step(admin_pb2.DeleteExchangeRequest(exchange="x"))),
    ("AdminService/ListExchanges", Step(admin_pb2.ListExchangesRequest())),
    ("AdminService/Bind", Step(admin_pb2.BindRequest(exchange="x", queue="q", binding_key="k"))),
    (
        "AdminService/Unbind",
        Step(admin_pb2.UnbindRequest(exchange="x", queue="q2", binding_key="key")),
    ),
    ("AdminService/PlanBrowse", Step(admin_pb2.PlanBrowseRequest(queue="q"))),
    ("AdminService/Browse", Step(admin_pb2.BrowseRequest(queue="q"))),
    (
        "ConsumingService/Consume",
        Step(consume(open=consuming_pb2.ChannelOpen(channel_id=bytes(16))), OPENED),
        Step(consume(subscribe=consuming_pb2.Subscribe(consumer="c", queue="q")), "delivery"),
        Step(consume(transport_ack=consuming_pb2.TransportAck(delivery_tag=1)), ""),
        Step(consume(settle=consuming_pb2.Settle(delivery_tag=1, outcome=1, number=1)), "settled"),
        Step(consume(get=consuming_pb2.Get(queue="empty", number=2, messages=1)), "get_empty"),
        Step(None, END),
    ),
    (
        "ConsumingService/Consume",
        Step(consume(open=consuming_pb2.ChannelOpen(channel_id=bytes(16))), OPENED),
        Step(consume(get=consuming_pb2.Get(queue="q", number=1, messages=1)), "delivery"),
        Step(consume(settle=consuming_pb2.Settle(delivery_tag=9, outcome=1, number=2)), ERROR),
    ),
    (
        "LinksService/Link",
        Step(
            link(
                open=links_pb2.LinkOpen(
                    link="l",
                    holder=sessions_pb2.Holder(token=TOKEN),
                    source="there",
                    queue="q2",
                    ack=links_pb2.LINK_ACK_STORED,
                )
            ),
            "opened",
        ),
        Step(link(subscribe=links_pb2.LinkSubscribe()), "subscribed"),
        Step(deliveries(1), "stored"),
        Step(deliveries(2), "stored"),
        Step(deliveries(1), "stored"),
        Step(
            link(heartbeat=links_pb2.LinkHeartbeat(subscription=1, proven=1, proven_number=1)),
            "state",
        ),
        Step(None, END),
    ),
    ("LinksService/ListLinks", Step(links_pb2.ListLinksRequest())),
    ("LinksService/PauseLink", Step(links_pb2.PauseLinkRequest(link="idle", paused=True))),
    ("LinksService/RemoveLink", Step(links_pb2.RemoveLinkRequest(link="idle"))),
    ("LinksService/ReportOutbound", Step(report(1)), Step(report(2)), Step(None, END)),
    (
        "PublishingService/Publish",
        Step(opening(publishing_pb2.PUBLISH_MODE_CONFIRM), "opened"),
        Step(data(1), "confirm"),
        Step(data(2, "nowhere", mandatory=True), "returned"),
        Step(data(3, exchange="missing"), "nack"),
        Step(data(4, "k" * 300), "nack"),
        Step(data(1), "confirm"),
        Step(publish(probe=publishing_pb2.PublishProbe(first_number=1, last_number=9)), "probed"),
        Step(None, END),
    ),
    (
        "PublishingService/Publish",
        Step(opening(publishing_pb2.PUBLISH_MODE_TRANSACTION), "opened"),
        Step(data(1, transaction_id=bytes(16)), ""),
        Step(publish(commit=transaction(1)), "transaction"),
        Step(publish(commit=transaction(1)), "transaction"),
        Step(publish(rollback=transaction(0)), "transaction"),
        Step(publish(commit=transaction(5)), "transaction"),
        Step(None, END),
    ),
    (
        "PublishingService/Stage",
        Step(stage(open=publishing_pb2.StageOpen(stage_id=STAGED, writer="w", batch_id=1)), ""),
        Step(
            stage(encoded(body=[b"x"], routing_key="q2"), data=publishing_pb2.StageData(rows=1)),
            "stored",
        ),
        Step(stage(seal=publishing_pb2.StageSeal(rows=1, payload_bytes=3)), "sealed"),
    ),
    (
        "PublishingService/PrepareBatch",
        Step(
            publishing_pb2.PrepareBatchRequest(
                writer="w",
                edges="a:1,b:1",
                stages=[publishing_pb2.StageReference(stage_id=SEALED, rows=1, payload_bytes=1)],
            )
        ),
    ),
    (
        "PublishingService/CommitBatch",
        Step(
            publishing_pb2.CommitBatchRequest(
                writer="w",
                stages=[publishing_pb2.StageReference(stage_id=SEALED, rows=1, payload_bytes=1)],
            )
        ),
    ),
    (
        "PublishingService/AbortBatch",
        Step(publishing_pb2.AbortBatchRequest(writer="w", stage_ids=[SEALED])),
    ),
    ("PublishingService/ListBatches", Step(publishing_pb2.ListBatchesRequest())),
    ("PublishingService/DropBatch", Step(publishing_pb2.DropBatchRequest(batch=STAGED_BATCH))),
    ("PublishingService/ListWriters", Step(publishing_pb2.ListWritersRequest())),
    (
        "PublishingService/ForgetWriter",
        Step(publishing_pb2.ForgetWriterRequest(writer="idle", force=True)),
    ),
    (
        "PublishingService/AssignWriter",
        Step(publishing_pb2.AssignWriterRequest(writer="w", user="alice")),
    ),
    ("SessionsService/Horizon", Step(sessions_pb2.HorizonRequest())),
    ("SessionsService/Advance", Step(advance(start_tag=2))),
    ("SessionsService/Advance", Step(advance(incarnation="", takeover=True))),
    (
        "SessionsService/Attach",
        Step(
            sessions_pb2.AttachRequest(
                session="s",
                incarnation=INCARNATION,
                holder=sessions_pb2.Holder(token=TOKEN),
                end_tag=2,
            )
        ),
    ),
    ("SessionsService/Hold", Step(hold()), Step(hold()), Step(None, END)),
    (
        "SessionsService/Fetch",
        Step(
            sessions_pb2.FetchRequest(
                session="s", incarnation=INCARNATION, epoch=1, last_tag=2, query_id="y", run_id="r"
            )
        ),
    ),
    ("SessionsService/ListSessions", Step(sessions_pb2.ListSessionsRequest())),
    (
        "SessionsService/ReleaseSession",
        Step(sessions_pb2.ReleaseSessionRequest(session="s", fence=True)),
    ),
    (
        "SessionsService/StageOutcomes",
        Step(
            sessions_pb2.StageOutcomesRequest(
                owner=OWNER,
                stage_id=STAGED,
                groups=[sessions_pb2.OutcomeGroup(outcome=4, tags=[1])],
                seal=True,
            )
        ),
    ),
    (
        "SessionsService/CommitOutcomes",
        Step(
            sessions_pb2.CommitOutcomesRequest(
                owner=OWNER, stages=[sessions_pb2.OutcomeStage(stage_id=OUTCOMES)]
            )
        ),
    ),
    (
        "SessionsService/AbortOutcomes",
        Step(sessions_pb2.AbortOutcomesRequest(stage_ids=[OUTCOMES])),
    ),
    ("SessionsService/BrowseLease", Step(sessions_pb2.BrowseLeaseRequest(session="s"))),
    ("SessionsService/PlanRetained", Step(sessions_pb2.PlanRetainedRequest(session="s"))),
    (
        "AdminService/RewindQueue",
        Step(admin_pb2.RewindQueueRequest(queue="q"), answer=ERROR),
    ),
    (
        "SessionsService/RewindSession",
        Step(sessions_pb2.RewindSessionRequest(session="s"), answer=ERROR),
    ),
    (
        "SessionsService/SettleSession",
        Step(
            sessions_pb2.SettleSessionRequest(
                session="s", outcome=4, first_tag=[1], last_tag=[1], fence=True
            )
        ),
    ),
]


async def take(broker, call, step):
    """Sends a request; no answer may leave before the disk has all that was decided."""
    broker.decide_something()
    other, before = broker.engine.core.sequence, len(call.answers)
    call.send(step.request if step.request is None else step.request.SerializeToString())
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
    """I1: each answer leaves after the sync of its own record and of all before it."""
    name, *steps = script
    broker = Broker()
    call = Call(broker, METHODS[name])
    for step in steps:
        answers = await take(broker, call, step)
        assert (step.answer in answers) if step.answer else answers == [], step
    await call.cancel()


@pytest.mark.parametrize("script", SCRIPTS, ids=[name for name, *_ in SCRIPTS])
async def test_repetitions_wait_for_the_disk(script):
    """I1: a call that changes nothing, or is refused now, depends on state as well."""
    name, *steps = script
    broker = Broker()
    for _ in range(2):
        call = Call(broker, METHODS[name])
        for step in steps:
            answers = await take(broker, call, step)
            if ERROR in answers:
                break
        assert answers
        await call.cancel()


@pytest.mark.parametrize("name", METHODS)
async def test_errors_wait_for_the_disk(name):
    """I1: an error leaves no sooner than an answer would."""
    broker = Broker()
    call = Call(broker, METHODS[name])
    malformed = SimpleNamespace(SerializeToString=lambda: b"\xff")
    assert await take(broker, call, Step(malformed)) == [ERROR]
    await call.cancel()


async def test_nacks_and_confirms_of_a_full_disk_wait():
    """I1, P8: a nack depends on queued messages, and a repeated confirm on earlier publishes."""
    broker = Broker()
    call = Call(broker, METHODS["PublishingService/Publish"])
    for step in (opening(publishing_pb2.PUBLISH_MODE_CONFIRM), data(1)):
        await take(broker, call, Step(step))
    broker.engine.free_bytes = 0
    broker.engine.alarms.poll_disk()
    await run_until_idle()
    assert call.answers[-1] == "blocked"
    assert await take(broker, call, Step(data(2))) == ["nack"]
    assert await take(broker, call, Step(data(1))) == ["confirm"]
    both = publish(
        encoded(body=[b"x", b"y"], routing_key="q2"),
        data=publishing_pb2.PublishData(first_number=1, rows=2),
    )
    assert sorted(await take(broker, call, Step(both))) == ["confirm", "nack"]
    await call.cancel()


async def test_a_cancelled_consumer_is_told_after_the_sync():
    """I1, Q4: the deletion of a queue reaches its consumers after the sync, too."""
    broker = Broker()
    call = Call(broker, METHODS["ConsumingService/Consume"])
    await take(
        broker, call, Step(consume(open=consuming_pb2.ChannelOpen(channel_id=bytes(16))), OPENED)
    )
    subscribe = consuming_pb2.Subscribe(consumer="c", queue="empty")
    await take(broker, call, Step(consume(subscribe=subscribe), ""))
    deletion = Call(broker, METHODS["AdminService/DeleteQueue"])
    request = admin_pb2.DeleteQueueRequest(queue="empty", force=True)
    assert await take(broker, deletion, Step(request)) == ["answer"]
    assert (call.answers[-1], call.early) == ("cancelled", [])
    await call.cancel()


async def test_a_replaced_holder_is_told_after_the_sync():
    """I1, S3: the error that ends its stream names a holder that no crash takes back."""
    broker = Broker()
    holding = Call(broker, METHODS["SessionsService/Hold"])
    assert await take(broker, holding, Step(hold())) == ["answer"]
    release = Call(broker, METHODS["SessionsService/ReleaseSession"])
    request = sessions_pb2.ReleaseSessionRequest(session="s", fence=True)
    assert await take(broker, release, Step(request)) == ["answer"]
    assert (holding.answers[-1], holding.early) == (ERROR, [])


async def test_a_request_that_meets_a_failure_has_no_answer(monkeypatch):
    """I2: not even an internal error, which a client would take for the final outcome."""

    def fail(*_):
        raise MemoryError("no room for a column")

    broker = Broker()
    call = Call(broker, METHODS["AdminService/DeleteQueue"])
    with monkeypatch.context() as patched:
        patched.setattr(type(broker.engine.core), "apply", fail)
        call.send(admin_pb2.DeleteQueueRequest(queue="empty").SerializeToString())
        await run_until_idle()
    broker.engine.sync()
    await run_until_idle()
    assert (len(broker.engine.failures), call.answers) == (1, [])
    await call.cancel()
