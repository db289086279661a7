"""Every RPC with every choice of permissions and role, over the wire: allowed or refused (A2)."""

import queue
import secrets

import grpc
import pytest

from ackq.errors import PermissionDeniedError, UnauthenticatedError
from ackq.v1 import (
    admin_pb2,
    consuming_pb2,
    links_pb2,
    messages_pb2,
    publishing_pb2,
    sessions_pb2,
)
from ackq.wire.fetch_key import fetch_key
from ackq_broker.security.permissions import TABLE
from tests.fakes.blocks import encoded
from tests.fakes.raw_client import TIMEOUT_S, denial_in, error_of
from tests.wire.access.conftest import KINDS

PB = (admin_pb2, consuming_pb2, links_pb2, publishing_pb2, sessions_pb2)
METHODS = {
    method.full_name: method
    for module in PB
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
STUBS = {
    "AdminService": "admin",
    "ConsumingService": "consuming",
    "LinksService": "links",
    "PublishingService": "publishing",
    "SessionsService": "sessions",
}


def publish(exchange="", key="q"):
    """The requests of a publisher with one frame."""
    opening = publishing_pb2.PublishOpen(publisher_id=secrets.token_bytes(16), mode=1)
    data = publishing_pb2.PublishData(first_number=1, rows=2, exchange=exchange)
    yield publishing_pb2.PublishRequest(
        header=publishing_pb2.PublishHeader(lowest_unanswered=1, open=opening)
    )
    yield publishing_pb2.PublishRequest(
        header=publishing_pb2.PublishHeader(lowest_unanswered=1, data=data),
        block=encoded(body=[b"m", b"n"], routing_key=key),
    )


def publish_one(exchange="", key="q"):
    """The requests of a publisher with one frame of single messages instead of a block."""
    requests = list(publish(exchange))
    requests[1].block = b""
    requests[1].header.data.rows = 0
    requests[1].header.data.messages.append(messages_pb2.Message(body=b"m", routing_key=key))
    return iter(requests)


def transaction(exchange="", key="q"):
    """The requests of a transaction with one frame, which also commits it."""
    requests = list(publish(exchange, key))
    requests[0].header.open.mode = 2
    requests[1].header.data.transaction_id = secrets.token_bytes(16)
    requests[1].header.data.commit_messages = 2
    return iter(requests)


def stage(exchange="", key="q", unroutable="", writer=""):
    """The requests of a stage with one row, of a new writer by default."""
    stage_id = secrets.token_bytes(16)
    opening = publishing_pb2.StageOpen(
        stage_id=stage_id, writer=writer or stage_id.hex(), run_id="r"
    )
    data = publishing_pb2.StageData(rows=1, exchange=exchange, unroutable_queue=unroutable)
    seal = publishing_pb2.StageSeal(rows=1, payload_bytes=1 + len(key))
    block = encoded(body=[b"m"], routing_key=key)
    for name, part, content in (("open", opening, b""), ("data", data, block), ("seal", seal, b"")):
        header = publishing_pb2.StageHeader(**{name: part})
        yield publishing_pb2.StageRequest(header=header, block=content)


def link(queue="q"):
    """The request of a new link's process."""
    holder = sessions_pb2.Holder(token=secrets.token_bytes(16))
    name = secrets.token_hex(8)
    opening = links_pb2.LinkOpen(link=name, holder=holder, source="there", queue=queue, ack=1)
    yield links_pb2.LinkRequest(header=links_pb2.LinkHeader(open=opening))


def outbound_report(queue):
    """The report of an outbound link of a queue."""
    fields = {"link": f"out of {queue}", "queue": queue, "target": "there"}
    return links_pb2.ReportOutboundRequest(report=links_pb2.OutboundReport(**fields))


def consume(**request):
    """The requests of a channel: its open and one more."""
    channel_id = secrets.token_bytes(16)
    yield consuming_pb2.ConsumeRequest(open=consuming_pb2.ChannelOpen(channel_id=channel_id))
    yield consuming_pb2.ConsumeRequest(**request)


def of_session(kind, world, **fields):
    """A request of the holder of session `s`."""
    lease = world.lease
    known = {"session": "s", "incarnation": lease.incarnation, "epoch": lease.epoch}
    known |= {"holder": world.reader, "token": world.reader.token}
    return kind(**{k: v for k, v in known.items() if k in kind.DESCRIPTOR.fields_by_name} | fields)


def key_of(world):
    return fetch_key(world.reader.token, world.lease.incarnation, world.lease.epoch)


QUEUE = {"queue": "q"}
BINDING = {"queue": "q", "exchange": "x"}
OWNER = sessions_pb2.LeaseOwner(session="s")
DEAD = admin_pb2.QueueProperties(durable=True, dead_letter_queue="dead")
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


# (RPC, its requests, who may). Whether the named object exists makes no difference.
CASES = [
    ("AdminService.ServerInfo", lambda _: admin_pb2.ServerInfoRequest(), anybody),
    ("AdminService.AcceptHistory", lambda _: admin_pb2.AcceptHistoryRequest(), acts_as("operator")),
    ("AdminService.Backup", lambda _: admin_pb2.BackupRequest(), acts_as("operator")),
    ("AdminService.Drain", lambda _: admin_pb2.DrainRequest(resume=True), acts_as("operator")),
    (
        "AdminService.DeclareQueue",
        lambda _: admin_pb2.DeclareQueueRequest(
            queue="q", properties=admin_pb2.QueueProperties(durable=True)
        ),
        has("configure"),
    ),
    (
        "AdminService.DeclareQueue",
        lambda _: admin_pb2.DeclareQueueRequest(queue="q", properties=DEAD),
        has("configure", "read", "write"),
    ),
    (
        "AdminService.DeclareQueue",
        lambda _: admin_pb2.DeclareQueueRequest(queue="q", passive=True),
        sees,
    ),
    (
        "AdminService.DeleteQueue",
        lambda _: admin_pb2.DeleteQueueRequest(queue="q", if_empty=True),
        has("configure"),
    ),
    ("AdminService.PurgeQueue", lambda _: admin_pb2.PurgeQueueRequest(queue="dead"), has("read")),
    (
        "AdminService.Redrive",
        lambda _: admin_pb2.RedriveRequest(queue="dead"),
        has("read", "configure"),
    ),
    (
        "AdminService.Redrive",
        lambda _: admin_pb2.RedriveRequest(queue="dead", to_queue="q"),
        has("read", "configure", "write"),
    ),
    ("AdminService.ListHoldings", lambda _: admin_pb2.ListHoldingsRequest(**QUEUE), sees),
    ("AdminService.ListQueues", lambda _: admin_pb2.ListQueuesRequest(), anybody),
    ("AdminService.ListQueues", lambda _: admin_pb2.ListQueuesRequest(**QUEUE), sees),
    (
        "AdminService.DeclareExchange",
        lambda _: admin_pb2.DeclareExchangeRequest(exchange="x", type=2, durable=True),
        has("configure"),
    ),
    (
        "AdminService.DeleteExchange",
        # An exchange that does not exist: `q` is the name of a queue.
        lambda _: admin_pb2.DeleteExchangeRequest(exchange="q"),
        has("configure"),
    ),
    ("AdminService.ListExchanges", lambda _: admin_pb2.ListExchangesRequest(), anybody),
    ("AdminService.Bind", lambda _: admin_pb2.BindRequest(**BINDING), has("write", "read")),
    ("AdminService.Unbind", lambda _: admin_pb2.UnbindRequest(**BINDING), has("write", "read")),
    ("AdminService.PlanBrowse", lambda _: admin_pb2.PlanBrowseRequest(**QUEUE), has("read")),
    ("AdminService.Browse", lambda _: admin_pb2.BrowseRequest(**QUEUE), has("read")),
    (
        "ConsumingService.Consume",
        lambda _: consume(subscribe=consuming_pb2.Subscribe(consumer="c", queue="dead")),
        has("read"),
    ),
    (
        "ConsumingService.Consume",
        lambda _: consume(get=consuming_pb2.Get(queue="dead", messages=1, number=1)),
        has("read"),
    ),
    ("PublishingService.Publish", lambda _: publish(), has("write")),
    ("PublishingService.Publish", lambda _: publish("x"), has("write")),
    ("PublishingService.Publish", lambda _: publish(key=["q", "dead"]), has("write")),
    ("PublishingService.Publish", lambda _: publish_one(), has("write")),
    ("PublishingService.Publish", lambda _: transaction(), has("write")),
    ("PublishingService.Publish", lambda _: transaction("x"), has("write")),
    ("PublishingService.Stage", lambda _: stage(), has("write")),
    ("PublishingService.Stage", lambda _: stage("x"), has("write")),
    ("PublishingService.Stage", lambda _: stage("x", unroutable="dead"), has("write")),
    (
        "PublishingService.CommitBatch",
        lambda _: publishing_pb2.CommitBatchRequest(
            writer=secrets.token_hex(8), run_id="r", target="queue/q"
        ),
        has("write"),
    ),
    (
        "PublishingService.CommitBatch",
        lambda _: publishing_pb2.CommitBatchRequest(
            writer=secrets.token_hex(8), run_id="r", target="exchange/x/key"
        ),
        has("write"),
    ),
    (
        "PublishingService.CommitBatch",
        lambda _: publishing_pb2.CommitBatchRequest(writer=secrets.token_hex(8), run_id="r"),
        has("write"),
    ),
    (
        # The writer belongs to the master (A10).
        "PublishingService.CommitBatch",
        lambda _: publishing_pb2.CommitBatchRequest(writer="w", run_id="r"),
        nobody,
    ),
    ("PublishingService.Stage", lambda _: stage(writer="w"), nobody),
    (
        "PublishingService.AbortBatch",
        lambda _: publishing_pb2.AbortBatchRequest(writer="w"),
        nobody,
    ),
    (
        "PublishingService.AbortBatch",
        lambda _: publishing_pb2.AbortBatchRequest(writer="unknown"),
        has("write"),
    ),
    (
        "PublishingService.ListBatches",
        lambda _: publishing_pb2.ListBatchesRequest(),
        acts_as(*OBSERVERS),
    ),
    (
        "PublishingService.DropBatch",
        lambda _: publishing_pb2.DropBatchRequest(batch=publishing_pb2.BatchKey(writer="w")),
        acts_as("operator"),
    ),
    (
        "PublishingService.ListWriters",
        lambda _: publishing_pb2.ListWritersRequest(),
        acts_as(*OBSERVERS),
    ),
    (
        "PublishingService.ForgetWriter",
        lambda _: publishing_pb2.ForgetWriterRequest(writer="nobody"),
        acts_as("operator"),
    ),
    (
        "PublishingService.AssignWriter",
        lambda _: publishing_pb2.AssignWriterRequest(writer="nobody", user="app"),
        acts_as("operator"),
    ),
    ("LinksService.Link", lambda _: link(), has("write")),
    ("LinksService.ListLinks", lambda _: links_pb2.ListLinksRequest(), anybody),
    (
        "LinksService.PauseLink",
        lambda _: links_pb2.PauseLinkRequest(link="l", paused=True),
        has("configure"),
    ),
    (
        "LinksService.PauseLink",
        lambda _: links_pb2.PauseLinkRequest(link="none"),
        acts_as("operator"),
    ),
    (
        "LinksService.RemoveLink",
        lambda world: links_pb2.RemoveLinkRequest(link=world.held_link),
        has("configure"),
    ),
    ("LinksService.ReportOutbound", lambda _: iter([outbound_report("q")]), has("read")),
    ("SessionsService.Horizon", lambda _: sessions_pb2.HorizonRequest(), anybody),
    (
        "SessionsService.Advance",
        lambda world: of_session(sessions_pb2.AdvanceRequest, world, queues=["q"]),
        has("read"),
    ),
    (
        "SessionsService.Advance",
        lambda world: of_session(sessions_pb2.AdvanceRequest, world, queue_pattern="q*"),
        has("read"),
    ),
    (
        "SessionsService.Attach",
        lambda world: of_session(sessions_pb2.AttachRequest, world, end_tag=world.lease.end_tag),
        has("read"),
    ),
    (
        "SessionsService.Hold",
        lambda world: iter([of_session(sessions_pb2.HoldRequest, world)]),
        has("read"),
    ),
    (
        "SessionsService.Fetch",
        lambda world: of_session(
            sessions_pb2.FetchRequest, world, last_tag=world.lease.end_tag, key=key_of(world)
        ),
        has("read"),
    ),
    ("SessionsService.ListSessions", lambda _: sessions_pb2.ListSessionsRequest(), anybody),
    (
        "SessionsService.ReleaseSession",
        lambda _: sessions_pb2.ReleaseSessionRequest(session="nobody"),
        acts_as("operator"),
    ),
    (
        "SessionsService.StageOutcomes",
        lambda _: iter(
            [
                sessions_pb2.StageOutcomesRequest(
                    owner=OWNER, stage_id=secrets.token_bytes(16), seal=True
                )
            ]
        ),
        has("read"),
    ),
    (
        "SessionsService.CommitOutcomes",
        lambda _: sessions_pb2.CommitOutcomesRequest(owner=OWNER),
        has("read"),
    ),
    ("SessionsService.AbortOutcomes", lambda _: sessions_pb2.AbortOutcomesRequest(), anybody),
    (
        "SessionsService.BrowseLease",
        lambda _: sessions_pb2.BrowseLeaseRequest(session="s"),
        has("read"),
    ),
    (
        "SessionsService.SettleSession",
        lambda _: sessions_pb2.SettleSessionRequest(session="nobody", outcome=4),
        acts_as("operator"),
    ),
]


def outcome(client, name, requests):
    """Calls an RPC to its end; returns its error, or that of its publish, or None."""
    service, method = name.split(".")
    call = getattr(getattr(client, STUBS[service]), method)
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


def is_refused(client, name, requests):
    return isinstance(outcome(client, name, requests), PermissionDeniedError)


def test_every_rpc_has_a_case_and_an_entry():
    """A2: every RPC has an entry in the broker's permission table, and a case in this file."""
    assert set(TABLE) == set(METHODS)
    assert {f"ackq.v1.{name}" for name, _, _ in CASES} == set(METHODS)


@pytest.fixture(scope="module")
def clients(table):
    """Raw stubs as each user of the table."""
    opened = {kind: table.client(kind.name) for kind in KINDS}
    yield opened
    for client in opened.values():
        client.channel.close()


@pytest.mark.parametrize(
    ("name", "requests", "may"),
    CASES,
    ids=[f"{number}-{name.partition('.')[2]}" for number, (name, _, _) in enumerate(CASES)],
)
def test_who_may(clients, world, name, requests, may):
    """A2: of 24 users exactly those with the permission or role for the call are admitted."""
    refused = {kind for kind in KINDS if is_refused(clients[kind], name, requests(world))}
    assert refused == {kind for kind in KINDS if not may(kind)}


@pytest.mark.parametrize("name", sorted(METHODS))
def test_without_a_token(table, world, name):
    """A1: without a token every call is refused."""
    short = name.removeprefix("ackq.v1.")
    requests = next(ask for case, ask, _ in CASES if case == short)
    with table.client("") as stranger:
        assert isinstance(outcome(stranger, short, requests(world)), UnauthenticatedError)


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize(
    ("name", "requests", "missing"),
    [
        ("AdminService.PurgeQueue", admin_pb2.PurgeQueueRequest(queue="q"), "read on queue 'q'"),
        (
            "AdminService.PurgeQueue",
            admin_pb2.PurgeQueueRequest(queue="none"),
            "read on queue 'none'",
        ),
        (
            "SessionsService.BrowseLease",
            sessions_pb2.BrowseLeaseRequest(session="s"),
            "read on each queue of session 's'",
        ),
        (
            "SessionsService.BrowseLease",
            sessions_pb2.BrowseLeaseRequest(session="none"),
            "read on each queue of session 'none'",
        ),
        ("AdminService.AcceptHistory", admin_pb2.AcceptHistoryRequest(), "the role operator"),
        (
            "LinksService.PauseLink",
            links_pb2.PauseLinkRequest(link="l"),
            "configure on the queue of link 'l'",
        ),
        (
            "LinksService.RemoveLink",
            links_pb2.RemoveLinkRequest(link="none"),
            "configure on the queue of link 'none'",
        ),
    ],
)
def test_a_refusal_names_the_permission_alone(table, name, requests, missing):
    """A3: a refusal names only the missing permission, also if the object does not exist."""
    with table.client("none") as client:
        error = outcome(client, name, requests)
    assert error.message == f"The user 'none' does not have {missing}."
    assert error.fields == {"permission": missing}


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("name", ["s", "none"])
def test_a_hidden_session_is_not_found(table, name):
    """A3: a session that is hidden from the user is reported like one that does not exist."""
    with table.client("none") as client:
        request = sessions_pb2.ListSessionsRequest(session=name)
        error = outcome(client, "SessionsService.ListSessions", request)
    assert error.message == f"There is no session '{name}'. See `ackq session list`."


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("name", ["l", "none"])
def test_a_hidden_link_is_not_found(table, name):
    """A3: a link that is hidden from the user is reported like one that does not exist."""
    with table.client("none") as client:
        error = outcome(client, "LinksService.ListLinks", links_pb2.ListLinksRequest(link=name))
    assert error.message == f"There is no link '{name}'. See `ackq link list`."


def test_a_refused_frame_is_in_no_queue(guarded):
    """A3: a frame with one denied routing key is stored in no queue."""
    guarded.add("half", write="q")
    with guarded.client("master") as master:
        master.declare("q")
        master.declare("other")
        with guarded.client("half") as half:
            error = outcome(half, "PublishingService.Publish", publish(key=["q", "other"]))
            assert error.fields == {"permission": "write on queue 'other'"}
        assert (master.queue("q").ready, master.queue("other").ready) == (0, 0)


@pytest.mark.usefixtures("world")
def test_lists_show_what_one_may_see(table):
    """A2: lists show what the user has any permission on, and everything to observers."""
    with table.client("master") as master:
        master.declare("secret")
        master.admin.Bind(admin_pb2.BindRequest(exchange="x", queue="secret"))
    seen = {}
    for name in ("none", "read-none", "observer"):
        with table.client(name) as client:
            queues = client.admin.ListQueues(admin_pb2.ListQueuesRequest()).queues
            exchanges = client.admin.ListExchanges(admin_pb2.ListExchangesRequest()).exchanges
            sessions = client.sessions.ListSessions(sessions_pb2.ListSessionsRequest()).sessions
            links = client.links.ListLinks(links_pb2.ListLinksRequest()).links
            bound = {each.queue for exchange in exchanges for each in exchange.bindings}
            seen[name] = (
                {each.queue for each in queues} & {"q", "dead", "secret"},
                {each.exchange for each in exchanges},
                bound & {"secret"},
                {each.session for each in sessions} & {"s"},
                {each.link for each in links} & {"l"},
            )
    assert seen == {
        "none": (set(), set(), set(), set(), set()),
        "read-none": ({"q", "dead"}, {"x"}, set(), {"s"}, {"l"}),
        "observer": ({"q", "dead", "secret"}, {"x"}, {"secret"}, {"s"}, {"l"}),
    }


@pytest.mark.usefixtures("world")
def test_outbound_links_are_shown_like_others(table):
    """A2, A3, L26: outbound links are shown to users with any permission on their queue."""
    with table.client("master") as master:
        calls = [held_open(master.links.ReportOutbound, outbound_report(q)) for q in ("q", "other")]
        seen = {}
        for name in ("none", "read-none", "observer"):
            with table.client(name) as client:
                asked = links_pb2.ListLinksRequest(outbound=True)
                seen[name] = [each.queue for each in client.links.ListLinks(asked).outbound]
        with table.client("read-none") as client:
            asked = links_pb2.ListLinksRequest(link="out of other", outbound=True)
            error = outcome(client, "LinksService.ListLinks", asked)
        for call in calls:
            call.cancel()
    assert seen == {"none": [], "read-none": ["q"], "observer": ["other", "q"]}
    assert error.message == "There is no link 'out of other'. See `ackq link list`."


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
        request = sessions_pb2.FetchRequest(
            session="s",
            incarnation=listed.incarnation,
            epoch=listed.epoch,
            last_tag=listed.end_tag,
            key=key,
        )
        error = outcome(client, "SessionsService.Fetch", request)
    assert error.fields["permission"].startswith("the key of the lease's holder")


def test_without_users_a_fetch_needs_no_key(client, reader):
    """A4: without users a fetch needs no key, so clients of older versions go on."""
    client.publish(b"a")
    _, lease = client.open(reader)
    assert client.fetch(lease, 0, 1)[0] == [b"a"]
