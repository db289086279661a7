"""The protocol by ordinary generated classes, as a client in any language would speak it."""

import queue
import secrets
from contextlib import contextmanager
from typing import NamedTuple

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from ackq import limits
from ackq.errors import from_code
from ackq.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    consuming_pb2,
    consuming_pb2_grpc,
    links_pb2_grpc,
    messages_pb2,
    publishing_pb2,
    publishing_pb2_grpc,
    sessions_pb2,
    sessions_pb2_grpc,
)
from ackq.wire import block
from tests.fakes.blocks import encoded, rows

# For a call on a machine that may be busy, and for a stream that a test may keep to its end.
TIMEOUT_S, STREAM_S = 100, 900
# A queue that no test publishes to, and the number of a pull from it.
_EMPTY = "empty"
_QUIET = 1 << 40
DETAIL_KEY = "ackq-error-bin"
_OPTIONS = (
    ("grpc.max_send_message_length", limits.MAX_FRAME_BYTES + limits.MIB),
    ("grpc.max_receive_message_length", limits.MAX_FRAME_BYTES + limits.MIB),
    # Two clients are two connections.
    ("grpc.use_local_subchannel_pool", 1),
)


def error_of(call_error):
    """The `AckqError` of a failed call, and its gRPC status name."""
    metadata = dict(call_error.trailing_metadata() or ())
    detail = messages_pb2.ErrorDetail.FromString(metadata[DETAIL_KEY])
    return from_code(detail.code, detail.message, dict(detail.fields)), call_error.code().name


def denial_in(answers):
    """The first refusal of a publish or a commit in answers to publishes; None for none."""
    for answer in answers:
        kind = answer.header.WhichOneof("kind")
        if kind in {"nack", "transaction"} and getattr(answer.header, kind).HasField("reason"):
            reason = getattr(answer.header, kind).reason
            return from_code(reason.code, reason.message, dict(reason.fields))
    return None


def refused(call, *args, **fields):
    """The error of a call that must fail, and its gRPC status name."""
    with pytest.raises(grpc.RpcError) as failed:
        call(*args, **fields)
    return error_of(failed.value)


def refused_with(kind, call, *args, **fields):
    """The error of a call that must fail with this type."""
    error, _ = refused(call, *args, **fields)
    assert type(error) is kind
    return error


def refused_with_status(kind, status, call, *args, **fields):
    """The error of a call that must fail with this type and gRPC status."""
    error, found = refused(call, *args, **fields)
    assert (type(error), found) == (kind, status)
    return error


def reflected(client):
    """Asks reflection for the broker's services; its stream counts like any other."""
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    stub = reflection_pb2_grpc.ServerReflectionStub(client.channel)
    return stub.ServerReflectionInfo(iter([request]), timeout=STREAM_S)


@contextmanager
def killed(broker):
    """A client of the broker after a `kill -9` and a new start."""
    broker.kill()
    with restarted(broker) as again:
        yield again


@contextmanager
def restarted(broker):
    """A client of the broker after a restart."""
    broker.restart()
    with Client(broker.endpoint) as again:
        yield again


class _Token(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Sends a token with each call."""

    def __init__(self, token):
        self._metadata = (("authorization", f"Bearer {token}"),)

    def _call(self, continuation, details, request):
        return continuation(details._replace(metadata=self._metadata), request)

    intercept_unary_unary = intercept_unary_stream = _call
    intercept_stream_unary = intercept_stream_stream = _call


class Client:
    """A channel to a broker with all stubs; with a token, as its user; with a CA, over TLS."""

    def __init__(self, endpoint, token=None, *, ca=None, cert=None):
        self.endpoint = endpoint
        self.channel = grpc.insecure_channel(endpoint, options=_OPTIONS)
        if ca is not None:
            own = (cert.private_key_pem, cert.cert_chain_pems[0]) if cert else ()
            credentials = grpc.ssl_channel_credentials(ca, *(pem.bytes() for pem in own))
            self.channel = grpc.secure_channel(endpoint, credentials, options=_OPTIONS)
        if token is not None:
            self.channel = grpc.intercept_channel(self.channel, _Token(token))
        self.admin = admin_pb2_grpc.AdminServiceStub(self.channel)
        self.publishing = publishing_pb2_grpc.PublishingServiceStub(self.channel)
        self.sessions = sessions_pb2_grpc.SessionsServiceStub(self.channel)
        self.links = links_pb2_grpc.LinksServiceStub(self.channel)
        self.consuming = consuming_pb2_grpc.ConsumingServiceStub(self.channel)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()

    # --- queues ---

    def declare(self, name="q", **properties):
        properties = {"durable": True, **properties}
        return self.admin.DeclareQueue(
            admin_pb2.DeclareQueueRequest(
                queue=name, properties=admin_pb2.QueueProperties(**properties)
            ),
            timeout=TIMEOUT_S,
        )

    def queue(self, name="q"):
        request = admin_pb2.ListQueuesRequest(queue=name)
        (info,) = self.admin.ListQueues(request, timeout=TIMEOUT_S).queues
        return info

    def delete(self, name="q", **fields):
        request = admin_pb2.DeleteQueueRequest(queue=name, **fields)
        return self.admin.DeleteQueue(request, timeout=TIMEOUT_S)

    def browse(self, name="q", **fields):
        """The bodies of a browse, and the frames' headers."""
        frames = list(
            self.admin.Browse(admin_pb2.BrowseRequest(queue=name, **fields), timeout=TIMEOUT_S)
        )
        return bodies(frames), [frame.header for frame in frames]

    # --- publishing ---

    @contextmanager
    def publisher(self, publisher_id=None, **opening):
        """Opens a publish stream; in confirm mode by default."""
        stream = PublishCall(self, publisher_id or secrets.token_bytes(16), **opening)
        try:
            yield stream
        finally:
            stream.call.cancel()

    def publish(self, *messages, queue="q", **columns):
        """Publishes bodies on a stream of their own and waits for their confirms."""
        with self.publisher() as stream:
            stream.publish(1, *messages, routing_key=queue, **columns)
            assert stream.confirmed(len(messages)) == set(range(1, len(messages) + 1))

    # --- channels ---

    @contextmanager
    def consume(self, channel_id=None, **opening):
        """Opens a channel."""
        stream = ConsumeCall(self, channel_id or secrets.token_bytes(16), **opening)
        try:
            yield stream
        finally:
            stream.call.cancel()

    @contextmanager
    def resume(self, channel):
        """Opens a newer stream of a channel whose older one is lost (C11).

        It is opened before the older one is cancelled: this machine may be slow, and the broker's
        grace is short.
        """
        with self.consume(channel.channel_id) as stream:
            channel.call.cancel()
            yield stream

    def redrive(self, name, **fields):
        request = admin_pb2.RedriveRequest(queue=name, **fields)
        return self.admin.Redrive(request, timeout=TIMEOUT_S)

    # --- sessions ---

    def advance(self, reader, **fields):
        return self.sessions.Advance(
            sessions_pb2.AdvanceRequest(
                **{"session": "s", "holder": reader, "queues": ["q"], **fields}
            ),
            timeout=TIMEOUT_S,
        )

    def open(self, reader, **fields):
        """Opens a session and leases everything; returns its incarnation and the lease."""
        incarnation = self.advance(reader, **fields).incarnation
        return incarnation, self.advance(reader, incarnation=incarnation, **fields)

    def fetch(self, advanced, after_tag, last_tag, **fields):
        """The bodies of a fetch, and the frames' headers."""
        frames = self.fetch_frames(advanced, after_tag, last_tag, **fields)
        return bodies(frames), [frame.header for frame in frames]

    def fetch_frames(self, advanced, after_tag, last_tag, **fields):
        """The frames of a fetch."""
        return list(
            self.sessions.Fetch(
                sessions_pb2.FetchRequest(
                    session=advanced.session,
                    incarnation=advanced.incarnation,
                    epoch=advanced.epoch,
                    after_tag=after_tag,
                    last_tag=last_tag,
                    **fields,
                ),
                timeout=TIMEOUT_S,
            )
        )

    def session(self, name="s"):
        request = sessions_pb2.ListSessionsRequest(session=name)
        (info,) = self.sessions.ListSessions(request, timeout=TIMEOUT_S).sessions
        return info

    def stage_outcomes(self, stage_id, *groups, owner=None, seal=True, **fields):
        """Stages groups (outcome, tags, fields), one request each; returns the staged tags."""
        owner = owner or sessions_pb2.LeaseOwner(session="s")
        requests = [
            sessions_pb2.StageOutcomesRequest(owner=owner, stage_id=stage_id, **fields),
            *(
                sessions_pb2.StageOutcomesRequest(
                    groups=[sessions_pb2.OutcomeGroup(outcome=outcome, tags=tags, **how)]
                )
                for outcome, tags, how in groups
            ),
        ]
        requests[-1].seal = seal
        return self.sessions.StageOutcomes(iter(requests), timeout=TIMEOUT_S).tags

    def commit_outcomes(self, *stages, owner=None):
        request = sessions_pb2.CommitOutcomesRequest(
            owner=owner or sessions_pb2.LeaseOwner(session="s"),
            stages=[sessions_pb2.OutcomeStage(stage_id=i, tags=tags) for i, tags in stages],
        )
        return self.sessions.CommitOutcomes(request, timeout=TIMEOUT_S)

    def settle_session(self, outcome, *ranges, **fields):
        request = sessions_pb2.SettleSessionRequest(
            session="s",
            outcome=outcome,
            first_tag=[first for first, _ in ranges],
            last_tag=[last for _, last in ranges],
            **fields,
        )
        return self.sessions.SettleSession(request, timeout=TIMEOUT_S)

    def browse_lease(self, **fields):
        """The bodies of an outstanding lease, and the frames' headers."""
        request = sessions_pb2.BrowseLeaseRequest(**{"session": "s", **fields})
        frames = list(self.sessions.BrowseLease(request, timeout=TIMEOUT_S))
        return bodies(frames), [frame.header for frame in frames]

    # --- writer batches ---

    def stage(
        self, *frames, stage_id, writer="w", batch_id=0, run_id="r", seal=None, queue="q", **opening
    ):
        """Uploads lists of bodies to a queue, one frame each; returns the answers of the stream."""
        ttl = {"ttl_ms": opening.pop("ttl_ms")} if "ttl_ms" in opening else {}
        opening |= {"stage_id": stage_id, "writer": writer, "batch_id": batch_id, "run_id": run_id}
        blocks = [encoded(body=list(each), routing_key=queue, **ttl) for each in frames]
        data = [({"rows": len(f)}, block) for f, block in zip(frames, blocks, strict=True)]
        requests = stage_requests(*data, seal=seal, **opening)
        return list(self.publishing.Stage(requests, timeout=TIMEOUT_S))

    def commit(self, *stages, writer="w", batch_id=0, run_id="r", **fields):
        return self.publishing.CommitBatch(
            publishing_pb2.CommitBatchRequest(
                writer=writer,
                batch_id=batch_id,
                run_id=run_id,
                stages=[
                    publishing_pb2.StageReference(stage_id=i, rows=rows, payload_bytes=size)
                    for i, rows, size in stages
                ],
                **fields,
            ),
            timeout=TIMEOUT_S,
        )


def publish_requests(*frames, mode=1, **opening):
    """Yields the requests of a publish stream: its open, and its frames, as (data, block)."""
    opening = {"publisher_id": secrets.token_bytes(16), "mode": mode, **opening}
    for header, content in (({"open": opening}, b""), *(({"data": d}, c) for d, c in frames)):
        header["lowest_unanswered"] = 1
        yield publishing_pb2.PublishRequest(header=header, block=content)


def stage_requests(*frames, seal=None, **opening):
    """Yields the requests of a stage: its open, its frames, as (data, block), and its seal.

    The seal is (rows, bytes); None leaves it out.
    """
    yield publishing_pb2.StageRequest(header={"open": opening})
    for data, content in frames:
        yield publishing_pb2.StageRequest(header={"data": data}, block=content)
    if seal is not None:
        sealed = {"rows": seal[0], "payload_bytes": seal[1]}
        yield publishing_pb2.StageRequest(header={"seal": sealed})


class PublishCall:
    """One publish stream: the test sends requests, and reads answers one by one."""

    def __init__(self, client, publisher_id, *, mode=1, **fields):
        self.publisher_id = publisher_id
        self._requests = queue.Queue()
        self._answered = set()
        opening = publishing_pb2.PublishOpen(publisher_id=publisher_id, mode=mode, **fields)
        self.send(publishing_pb2.PublishHeader(lowest_unanswered=1, open=opening))
        self.call = client.publishing.Publish(
            iter(self._requests.get, None), timeout=STREAM_S, wait_for_ready=True
        )
        self.opened = self.answer().opened

    def send(self, header, block=b""):
        self._requests.put(publishing_pb2.PublishRequest(header=header, block=block))

    def half_close(self):
        self._requests.put(None)

    def publish(self, first, *messages, lowest=1, exchange="", mandatory=False, **columns):
        """Sends one frame of bodies, numbered from `first`."""
        self.send_data(
            first,
            len(messages),
            encoded(body=list(messages), **columns),
            lowest=lowest,
            exchange=exchange,
            mandatory=mandatory,
        )

    def send_data(self, first, count, block, *, lowest=1, **fields):
        data = publishing_pb2.PublishData(first_number=first, rows=count, **fields)
        self.send(publishing_pb2.PublishHeader(lowest_unanswered=lowest, data=data), block)

    def probe(self, first, last):
        probe = publishing_pb2.PublishProbe(first_number=first, last_number=last)
        self.send(publishing_pb2.PublishHeader(lowest_unanswered=1, probe=probe))

    def answer(self):
        """The next answer's header; a return's block is kept in `returned_block`."""
        response = next(self.call)
        if response.block:
            self.returned_block = response.block
        nack = response.header.nack
        self._answered.update(range(nack.first_number, nack.last_number + 1))
        return response.header

    def confirmed(self, count, first=1):
        """Reads confirms until `count` numbers from `first` have one.

        No other answer may come, except that the disk is behind, and that it no longer is (P14).
        """
        numbers = set()
        while len(numbers) < count:
            answer = self.answer()
            if answer.WhichOneof("kind") in ("blocked", "unblocked"):
                continue
            confirm = answer.confirm
            assert confirm.last_number
            low = first if confirm.multiple else confirm.first_number
            new = set(range(low, confirm.last_number + 1)) - self._answered
            assert new
            self._answered |= new
            numbers |= new
        return numbers


class ConsumeCall:
    """One channel stream: the test sends requests, and reads answers one by one.

    It reads no retransmission (C11): the test may take its time without a transport ack.
    """

    def __init__(self, client, channel_id, **opening):
        self.channel_id = channel_id
        self._client = client
        self._requests = queue.Queue()
        self._number = 0
        self._last_tag = 0
        self.send(open=consuming_pb2.ChannelOpen(channel_id=channel_id, **opening))
        self.call = client.consuming.Consume(
            iter(self._requests.get, None), timeout=STREAM_S, wait_for_ready=True
        )
        self.opened = self.answer("opened")

    # --- requests ---

    def send(self, **kind):
        self._requests.put(consuming_pb2.ConsumeRequest(**kind))

    def half_close(self):
        self._requests.put(None)

    def subscribe(self, consumer="c", queue="q", outcomes=(2, 3, 4), **fields):
        self.send(
            subscribe=consuming_pb2.Subscribe(
                consumer=consumer, queue=queue, outcomes=outcomes, **fields
            )
        )

    def unsubscribe(self, consumer="c"):
        self.send(unsubscribe=consuming_pb2.Unsubscribe(consumer=consumer))

    def settle(self, tag, outcome=1, **fields):
        """Settles under the next number, and returns it."""
        self._number += 1
        fields = {"number": self._number, **fields}
        self.send(settle=consuming_pb2.Settle(delivery_tag=tag, outcome=outcome, **fields))
        return fields["number"]

    def transport_ack(self, tag):
        self.send(transport_ack=consuming_pb2.TransportAck(delivery_tag=tag))

    def prefetch(self, messages, consumer=""):
        self.send(prefetch=consuming_pb2.Prefetch(consumer=consumer, messages=messages))

    def get(self, messages=1, queue="q", number=1, **fields):
        self.send(get=consuming_pb2.Get(queue=queue, messages=messages, number=number, **fields))

    # --- answers ---

    def response(self):
        """The next frame that is neither heartbeat nor retransmission."""
        while True:
            response = next(self.call)
            last = last_tag(response.header.delivery)
            if not response.header.HasField("heartbeat") and not 0 < last <= self._last_tag:
                self._last_tag = max(self._last_tag, last)
                return response

    def answer(self, kind):
        """The content of the next frame, which must be of this kind."""
        header = self.response().header
        assert header.WhichOneof("kind") == kind, header
        return getattr(header, kind)

    def deliveries(self, count):
        """Reads frames until `count` messages came; all as `Delivered`."""
        found = []
        while len(found) < count:
            response = self.response()
            assert response.header.HasField("delivery"), response.header
            found += delivered(response)
        assert len(found) == count
        return found

    def pull(self, messages=1):
        """Pulls ready messages, and reads them."""
        self.get(messages)
        return self.deliveries(messages)

    def settled(self, number, messages=1):
        """Reads the answer to a settlement."""
        answer = self.answer("settled")
        assert (answer.number, answer.settled) == (number, messages)

    def quiet(self):
        """Checks that nothing was sent to this client: the next answer is that of an empty pull."""
        self._client.declare(_EMPTY)
        self.get(queue=_EMPTY, number=_QUIET)
        assert self.answer("get_empty").number == _QUIET

    def ended(self):
        """Reads the end of the stream, which must come next."""
        more = [each for each in self.call if not each.header.HasField("heartbeat")]
        assert more == [], more

    def refusal(self):
        """Reads to the end of the stream; returns its error and status name."""
        with pytest.raises(grpc.RpcError) as failed:
            list(self.call)
        return error_of(failed.value)


class Delivered(NamedTuple):
    """One message of a delivery frame."""

    tag: int
    body: bytes
    count: int
    consumer: str
    get_number: int
    queue: str
    persistent: bool
    row: dict


def last_tag(delivery):
    """The last tag of a delivery frame; 0 for a frame of another kind."""
    runs = delivery.runs
    return runs.first_tag[-1] + runs.rows[-1] - 1 if runs.rows else 0


def delivered(response):
    """The messages of a delivery frame, with the fields of its runs."""
    delivery, content = response.header.delivery, block.decode(response.block, validate=True)
    rows, runs = iter(content.batch.to_pylist()), delivery.runs
    for first, count, deliveries, index in zip(
        runs.first_tag, runs.rows, runs.delivery_count, runs.queue_index, strict=True
    ):
        for tag in range(first, first + count):
            row = next(rows)
            persistent = row.get("persistent")
            yield Delivered(
                tag,
                row["body"],
                deliveries,
                delivery.consumer,
                delivery.get_number,
                runs.queues[index],
                content.header.delivery_mode != 2 if persistent is None else persistent,
                row,
            )
    assert next(rows, None) is None, "a row that no run names"


def holder(name="reader", token=None):
    """A reader process with a random token."""
    return sessions_pb2.Holder(
        token=token or secrets.token_bytes(16), host="host", pid=1, application=name
    )


def bodies(frames):
    """The bodies of data frames, in order."""
    return [body for frame in frames for body in rows(frame.block)["body"]]


def tags(headers):
    """The tags (or positions) that frame headers name, in order."""
    return [
        first + row
        for header in headers
        for first, count in zip(header.first_tag, header.rows, strict=True)
        for row in range(count)
    ]
