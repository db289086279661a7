"""Every RPC with every choice of permissions and role, over the wire: allowed or refused (A2)."""

import queue
import secrets

import grpc
import pytest
from google.protobuf import message_factory

from ackq.errors import PermissionDeniedError, UnauthenticatedError
from ackq.v1 import admin_pb2, consuming_pb2, links_pb2, sessions_pb2
from ackq.wire.fetch_key import fetch_key
from ackq_broker.security.permissions import TABLE
from tests.fakes.blocks import encoded
from tests.fakes.raw_client import (
    TIMEOUT_S,
    denial_in,
    error_of,
    publish_requests,
    refused_with,
    stage_requests,
)
from tests.wire.access.conftest import KINDS, METHODS, PERMISSIONS


def publish(exchange="", key="q", mode=1, **fields):
    """The requests of a publisher with one frame."""
    block = encoded(body=[b"m", b"n"], routing_key=key)
    data = {"first_number": 1, "rows": 2, "exchange": exchange, **fields}
    return publish_requests((data, block), mode=mode)


def publish_one():
    """The requests of a publisher with one frame of a single message instead of a block."""
    data = {"first_number": 1, "messages": [{"body": b"m", "routing_key": "q"}]}
    return publish_requests((data, b""))


def transaction(exchange=""):
    """The requests of a transaction with one frame, which also commits it."""
    known = {"transaction_id": secrets.token_bytes(16), "commit_messages": 2}
    return publish(exchange, mode=2, **known)


def stage(exchange="", unroutable="", writer=""):
    """The requests of a stage with one row, of a new writer by default."""
    stage_id = secrets.token_bytes(16)
    opening = {"stage_id": stage_id, "writer": writer or stage_id.hex(), "run_id": "r"}
    data = {"rows": 1, "exchange": exchange, "unroutable_queue": unroutable}
    block = encoded(body=[b"m"], routing_key="q")
    return stage_requests((data, block), seal=(1, 2), **opening)


def link(queue="q"):
    """The request of a new link's process."""
    holder = sessions_pb2.Holder(token=secrets.token_bytes(16))
    name = secrets.token_hex(8)
    opening = links_pb2.LinkOpen(link=name, holder=holder, source="there", queue=queue, ack=1)
    yield links_pb2.LinkRequest(header=links_pb2.LinkHeader(open=opening))


def outbound_report(queue):
    """The report of an outbound link of a queue."""
    return {"report": {"link": f"out of {queue}", "queue": queue, "target": "there"}}


def consume(**request):
    """The requests of a channel: its open and one more."""
    channel_id = secrets.token_bytes(16)
    yield consuming_pb2.ConsumeRequest(open=consuming_pb2.ChannelOpen(channel_id=channel_id))
    yield consuming_pb2.ConsumeRequest(**request)


def of_session(world, **fields):
    """The fields of a request of the holder of session `s`."""
    return {"session": "s", "incarnation": world.lease.incarnation, **fields}


def held(world, **fields):
    """The fields of an advance or attach by the holder of session `s`."""
    return of_session(world, holder=world.reader, **fields)


def fetch(world):
    """The fields of a fetch of the whole lease, with its key."""
    lease = world.lease
    key = fetch_key(world.reader.token, lease.incarnation, lease.epoch)
    return of_session(world, epoch=lease.epoch, last_tag=lease.end_tag, key=key)


def hold(world):
    """The fields of a liveness stream of the holder of session `s`."""
    return of_session(world, epoch=world.lease.epoch, token=world.reader.token)


QUEUE = {"queue": "q"}
BINDING = {"queue": "q", "exchange": "x"}
EXCHANGE = {"exchange": "x", "type": 2, "durable": True}
OWNER = {"session": "s"}
STAGE = {"owner": OWNER, "stage_id": b"s" * 16, "seal": True}
SUBSCRIBE, GET = {"consumer": "c", "queue": "dead"}, {"queue": "dead", "messages": 1, "number": 1}
PAST = {"session": "past", "queues": ["dead"], "holder": {"token": b"t" * 16}, "rewind": {}}
DEAD = {"durable": True, "dead_letter_queue": "dead"}
OBSERVERS = ("observer", "operator")


def has(*permissions):
    """Permits kinds of users with all of these permissions, whatever the role."""
    return lambda kind: set(permissions) <= kind.permissions


def acts_as(*roles):
    """Permits kinds of users with one of these roles, whatever the permissions."""
    return lambda kind: kind.role in roles


def sees(kind):
    """Whether the kind of user has any permission, or a role that sees everything."""
    return bool(kind.permissions) or kind.role in OBSERVERS


def anybody(_):
    """Permits every user with a token."""
    return True


def nobody(_):
    """Permits no user of the table."""
    return False


def new_writer(**fields):
    """Returns a function for the fields of a commit of a writer that does not exist."""
    return lambda _: {"writer": secrets.token_hex(8), "run_id": "r", **fields}


operator, observers = acts_as("operator"), acts_as(*OBSERVERS)
# (RPC, the fields of its request or a function that makes them or all its requests, who may).
# Whether the named object exists makes no difference.
CASES = [
    ("AdminService.ServerInfo", {}, anybody),
    ("AdminService.AcceptHistory", {}, operator),
    ("AdminService.Backup", {}, operator),
    ("AdminService.Drain", {"resume": True}, operator),
    ("AdminService.DeclareQueue", {**QUEUE, "properties": {"durable": True}}, has("configure")),
    ("AdminService.DeclareQueue", {**QUEUE, "properties": DEAD}, has(*PERMISSIONS)),
    ("AdminService.DeclareQueue", {**QUEUE, "passive": True}, sees),
    ("AdminService.DeleteQueue", {**QUEUE, "if_empty": True}, has("configure")),
    ("AdminService.PurgeQueue", {"queue": "dead"}, has("read")),
    ("AdminService.RewindQueue", {"queue": "dead"}, operator),
    ("AdminService.Redrive", {"queue": "dead"}, has("read", "configure")),
    ("AdminService.Redrive", {"queue": "dead", "to_queue": "q"}, has(*PERMISSIONS)),
    ("AdminService.ListHoldings", QUEUE, sees),
    ("AdminService.ListQueues", {}, anybody),
    ("AdminService.ListQueues", QUEUE, sees),
    ("AdminService.DeclareExchange", EXCHANGE, has("configure")),
    # An exchange that does not exist: `q` is the name of a queue.
    ("AdminService.DeleteExchange", {"exchange": "q"}, has("configure")),
    ("AdminService.ListExchanges", {}, anybody),
    ("AdminService.Bind", BINDING, has("write", "read")),
    ("AdminService.Unbind", BINDING, has("write", "read")),
    ("AdminService.PlanBrowse", QUEUE, has("read")),
    ("AdminService.Browse", QUEUE, has("read")),
    ("ConsumingService.Consume", lambda _: consume(subscribe=SUBSCRIBE), has("read")),
    ("ConsumingService.Consume", lambda _: consume(get=GET), has("read")),
    ("PublishingService.Publish", lambda _: publish(), has("write")),
    ("PublishingService.Publish", lambda _: publish("x"), has("write")),
    ("PublishingService.Publish", lambda _: publish(key=["q", "dead"]), has("write")),
    ("PublishingService.Publish", lambda _: publish_one(), has("write")),
    ("PublishingService.Publish", lambda _: transaction(), has("write")),
    ("PublishingService.Publish", lambda _: transaction("x"), has("write")),
    ("PublishingService.Stage", lambda _: stage(), has("write")),
    ("PublishingService.Stage", lambda _: stage("x"), has("write")),
    ("PublishingService.Stage", lambda _: stage("x", unroutable="dead"), has("write")),
    ("PublishingService.CommitBatch", new_writer(target="queue/q"), has("write")),
    ("PublishingService.CommitBatch", new_writer(target="exchange/x/key"), has("write")),
    ("PublishingService.CommitBatch", new_writer(), has("write")),
    ("PublishingService.PrepareBatch", new_writer(target="queue/q"), has("write")),
    # The writer belongs to the master (A10).
    ("PublishingService.CommitBatch", {"writer": "w", "run_id": "r"}, nobody),
    ("PublishingService.Stage", lambda _: stage(writer="w"), nobody),
    ("PublishingService.AbortBatch", {"writer": "w"}, nobody),
    ("PublishingService.AbortBatch", {"writer": "unknown"}, has("write")),
    ("PublishingService.ListBatches", {}, observers),
    ("PublishingService.DropBatch", {"batch": {"writer": "w"}}, operator),
    ("PublishingService.ListWriters", {}, observers),
    ("PublishingService.ForgetWriter", {"writer": "nobody"}, operator),
    ("PublishingService.AssignWriter", {"writer": "nobody", "user": "app"}, operator),
    ("LinksService.Link", lambda _: link(), has("write")),
    ("LinksService.ListLinks", {}, anybody),
    ("LinksService.PauseLink", {"link": "l", "paused": True}, has("configure")),
    ("LinksService.PauseLink", {"link": "none"}, operator),
    ("LinksService.RemoveLink", lambda world: {"link": world.held_link}, has("configure")),
    ("LinksService.ReportOutbound", outbound_report("q"), has("read")),
    ("SessionsService.Horizon", {}, anybody),
    ("SessionsService.Advance", lambda world: held(world, queues=["q"]), has("read")),
    ("SessionsService.Advance", lambda world: held(world, queue_pattern="q*"), has("read")),
    ("SessionsService.Advance", PAST, nobody),
    ("SessionsService.Attach", lambda world: held(world, end_tag=world.lease.end_tag), has("read")),
    ("SessionsService.Hold", hold, has("read")),
    ("SessionsService.Fetch", fetch, has("read")),
    ("SessionsService.ListSessions", {}, anybody),
    ("SessionsService.ReleaseSession", {"session": "nobody"}, operator),
    ("SessionsService.StageOutcomes", STAGE, has("read")),
    ("SessionsService.CommitOutcomes", {"owner": OWNER}, has("read")),
    ("SessionsService.AbortOutcomes", {}, anybody),
    ("SessionsService.BrowseLease", {"session": "s"}, has("read")),
    ("SessionsService.SettleSession", {"session": "nobody", "outcome": 4}, operator),
    ("SessionsService.RewindSession", {"session": "nobody"}, operator),
    ("SessionsService.PlanRetained", {"session": "s"}, has("read")),
]


def requests_of(name, asked, world):
    """What a case sends: one message, or an iterator of messages."""
    made = asked(world) if callable(asked) else asked
    if not isinstance(made, dict):
        return made
    method = METHODS[f"ackq.v1.{name}"]
    message = message_factory.GetMessageClass(method.input_type)(**made)
    return iter([message]) if method.client_streaming else message


def outcome(client, name, requests):
    """Calls an RPC to its end; returns its error, or that of its publish, or None."""
    service, method = name.split("Service.")
    call = getattr(getattr(client, service.lower()), method)
    try:
        if method == "Publish":
            return denial_in(call(requests, timeout=TIMEOUT_S))
        if METHODS[f"ackq.v1.{name}"].server_streaming:
            list(call(requests, timeout=TIMEOUT_S))
        else:
            call(requests, timeout=TIMEOUT_S)
    except grpc.RpcError as failed:
        return error_of(failed)[0]
    return None


def is_refused(client, name, asked, world):
    error = outcome(client, name, requests_of(name, asked, world))
    return isinstance(error, PermissionDeniedError)


def test_every_rpc_has_a_case_and_an_entry():
    """A2: every RPC has an entry in the broker's permission table, and a case in this file."""
    assert set(TABLE) == set(METHODS)
    assert {f"ackq.v1.{name}" for name, _, _ in CASES} == set(METHODS)


@pytest.fixture(scope="module")
def clients(table):
    """Raw stubs as each user of the table; None has no token."""
    opened = {kind: table.client(kind.name) for kind in KINDS}
    opened[None] = table.client("")
    yield opened
    for client in opened.values():
        client.channel.close()


@pytest.mark.parametrize(
    ("name", "asked", "may"),
    CASES,
    ids=[f"{number}-{name.partition('.')[2]}" for number, (name, _, _) in enumerate(CASES)],
)
def test_who_may(clients, world, name, asked, may):
    """A2, A1: of 24 users exactly those with the permission or role for the call are admitted.

    A stranger without a token never is.
    """
    error = outcome(clients[None], name, requests_of(name, asked, world))
    assert isinstance(error, UnauthenticatedError)
    refused = {kind for kind in KINDS if is_refused(clients[kind], name, asked, world)}
    assert refused == {kind for kind in KINDS if not may(kind)}


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize(
    ("name", "fields", "missing"),
    [
        ("AdminService.PurgeQueue", {"queue": "q"}, "read on queue 'q'"),
        ("AdminService.PurgeQueue", {"queue": "none"}, "read on queue 'none'"),
        ("SessionsService.BrowseLease", {"session": "s"}, "read on each queue of session 's'"),
        ("SessionsService.BrowseLease", {"session": "-"}, "read on each queue of session '-'"),
        ("AdminService.AcceptHistory", {}, "the role operator"),
        ("LinksService.PauseLink", {"link": "l"}, "configure on the queue of link 'l'"),
        ("LinksService.RemoveLink", {"link": "none"}, "configure on the queue of link 'none'"),
        ("SessionsService.ListSessions", {"session": "s"}, "session 's'"),
        ("SessionsService.ListSessions", {"session": "none"}, "session 'none'"),
        ("LinksService.ListLinks", {"link": "l"}, "link 'l'"),
        ("LinksService.ListLinks", {"link": "none"}, "link 'none'"),
    ],
)
def test_a_refusal_names_the_permission_alone(table, world, name, fields, missing):
    """A3: a refusal names only the missing permission, also if the object does not exist.

    What a list hides from the user is reported like what does not exist.
    """
    with table.client("none") as client:
        error = outcome(client, name, requests_of(name, fields, world))
    if ".List" in name:
        kind = missing.partition(" ")[0]
        assert error.message == f"There is no {missing}. See `ackq {kind} list`."
    else:
        assert error.message == f"The user 'none' does not have {missing}."
        assert error.fields == {"permission": missing}


@pytest.mark.usefixtures("world")
def test_lists_show_what_one_may_see(table):
    """A2, A3, L26: lists show what the user has any permission on, and everything to observers.

    An outbound link is shown with its queue; what is hidden is refused like what does not exist.
    """
    seen, outbound = {}, links_pb2.ListLinksRequest(outbound=True)
    with table.client("master") as master:
        master.declare("secret")
        master.admin.Bind(admin_pb2.BindRequest(exchange="x", queue="secret"))
        requests = [links_pb2.ReportOutboundRequest(**outbound_report(q)) for q in ("q", "secret")]
        calls = [held_open(master.links.ReportOutbound, each) for each in requests]
        for name in ("none", "read-none", "observer"):
            with table.client(name) as client:
                queues = client.admin.ListQueues(admin_pb2.ListQueuesRequest()).queues
                exchanges = client.admin.ListExchanges(admin_pb2.ListExchangesRequest()).exchanges
                sessions = client.sessions.ListSessions(sessions_pb2.ListSessionsRequest()).sessions
                links = client.links.ListLinks(outbound)
                bound = {each.queue for exchange in exchanges for each in exchange.bindings}
                seen[name] = (
                    {each.queue for each in queues} & {"q", "dead", "secret"},
                    {each.exchange for each in exchanges},
                    bound & {"secret"},
                    {each.session for each in sessions} & {"s"},
                    {each.link for each in links.links} & {"l"},
                    {each.queue for each in links.outbound},
                )
        with table.client("read-none") as client:
            asked = links_pb2.ListLinksRequest(link="out of secret", outbound=True)
            error = outcome(client, "LinksService.ListLinks", asked)
        for call in calls:
            call.cancel()
    assert seen == {
        "none": (set(), set(), set(), set(), set(), set()),
        "read-none": ({"q", "dead"}, {"x"}, set(), {"s"}, {"l"}, {"q"}),
        "observer": ({"q", "dead", "secret"}, {"x"}, {"secret"}, {"s"}, {"l"}, {"q", "secret"}),
    }
    assert error.message == "There is no link 'out of secret'. See `ackq link list`."


def held_open(call, request):
    """Opens a stream with one request, and waits for its answer."""
    requests = queue.SimpleQueue()
    requests.put(request)
    opened = call(iter(requests.get, None), timeout=TIMEOUT_S)
    next(opened)
    return opened


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("key", [b"", b"0" * 32])
def test_a_fetch_without_the_holders_key(table, key):
    """A4: session, incarnation and epoch from listings do not suffice to fetch a lease."""
    with table.client("read-none") as client:
        listed = client.session()
        error = refused_with(
            PermissionDeniedError, client.fetch, listed, 0, listed.end_tag, key=key
        )
    assert error.fields["permission"].startswith("the key of the lease's holder")
