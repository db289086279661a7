"""Attacks of a user on another user's state, by every call (A10, P10, S6, S11, L1).

Mallory is an observer, and may do everything on `own`. She knows every name and id of alice's,
also those that no list shows, but neither alice's token nor that of alice's holder.
"""

import itertools
import random
import secrets

import grpc
import pytest

from ackq.errors import PermissionDeniedError
from ackq.v1 import (
    admin_pb2,
    consuming_pb2,
    links_pb2,
    publishing_pb2,
    sessions_pb2,
)
from ackq.wire.fetch_key import fetch_key
from tests.eventually import eventually
from tests.fakes.blocks import encoded
from tests.fakes.raw_client import holder, refused_with
from tests.fakes.raw_link import RawLink
from tests.wire.access.conftest import add_user

FILES = (admin_pb2, consuming_pb2, links_pb2, publishing_pb2, sessions_pb2)
SERVICES = [service for file in FILES for service in file.DESCRIPTOR.services_by_name.values()]
METHODS = {method.full_name: method for service in SERVICES for method in service.methods}
FAR = 1 << 61
REQUESTS = 80
ATTEMPT_S = 0.3


class Alice:
    """Alice's publisher, channel, link and query; each act uses all of them once more."""

    def __init__(self, client):
        self.client, self.acts = client, itertools.count(1)
        self.ids = {name: secrets.token_bytes(16) for name in ("publisher", "channel", "stage")}
        self._publisher = client.publisher(self.ids["publisher"])
        self.out = self._publisher.__enter__()
        self._channel = client.consume(self.ids["channel"])
        self.channel = self._channel.__enter__()
        self.link = RawLink(client, link="l", queue="hers")
        self.subscription = self.link.subscribe()
        self.deliveries = 0
        self.reader = holder(token=secrets.token_bytes(16))
        self.out.publish(1, b"1", routing_key="hers")
        assert self.out.confirmed(1) == {1}
        self.incarnation = client.advance(self.reader, queues=["hers"]).incarnation
        self.number, self.batch, self.tag = 1, 0, 0

    def act(self):
        """Publishes, delivers by link, settles a batch, and pulls; every act must be answered."""
        self.number += 1
        body = b"%d" % self.number
        self.out.publish(self.number, body, lowest=self.number, routing_key="hers")
        assert self.number in self.out.confirmed(1)
        self.deliveries += 1
        self.link.deliver(self.subscription, self.deliveries, [FAR + self.deliveries])
        assert not self.link.stored().refused
        lease = self.client.advance(
            self.reader,
            incarnation=self.incarnation,
            queues=["hers"],
            start_tag=self.tag,
            max_messages=1,
        )
        key = fetch_key(self.reader.token, self.incarnation, lease.epoch)
        query = {"query_id": "query", "run_id": "run", "batch_id": self.batch, "key": key}
        rows, _ = self.client.fetch(lease, self.tag, lease.end_tag, **query)
        owner = sessions_pb2.LeaseOwner(query_id="query", run_id="run", batch_id=self.batch)
        stage = secrets.token_bytes(16)
        assert self.client.stage_outcomes(stage, (1, [lease.end_tag], {}), owner=owner) == 1
        assert not self.client.commit_outcomes((stage, 1), owner=owner).accepted_before
        self.tag, self.batch = lease.end_tag, self.batch + 1
        self.channel.get(1, queue="hers", number=self.number)
        (pulled,) = self.channel.deliveries(1)
        self.channel.transport_ack(pulled.tag)
        self.channel.settle(pulled.tag)
        assert self.channel.answer("settled").settled == 1
        return rows, pulled.body


@pytest.fixture
def alice(guarded):
    guarded.tokens["alice"] = add_user(guarded.path, "alice", write="hers", read="hers")
    everything = dict.fromkeys(("configure", "write", "read"), "own")
    guarded.add("mallory", role="observer", **everything)
    with guarded.client("master") as master:
        master.declare("hers")
        master.declare("own")
    with guarded.client("alice") as client:
        yield Alice(client)


def words(alice):
    """The values that mallory puts into fields, by the fields' type."""
    texts = ["own", "hers", "s", "l", "query", "run", alice.incarnation, "queue/hers", ""]
    ids = [*alice.ids.values(), secrets.token_bytes(16), b""]
    numbers = [0, 1, 2, alice.batch, FAR]
    return texts, ids, numbers


def filled(draw, descriptor, make, known, depth=0):
    """A message with about half of its fields set, each to a value that mallory knows."""
    message = make(descriptor)
    for field in descriptor.fields:
        if field.name in {"takeover", "fence", "force"} or draw.random() < 0.4:
            continue
        target = getattr(message, field.name)
        if field.message_type is not None:
            if field.message_type.GetOptions().map_entry or depth > 3:
                continue
            inner = filled(draw, field.message_type, make, known, depth + 1)
            if field.is_repeated:
                target.append(inner)
            else:
                target.CopyFrom(inner)
            continue
        texts, ids, numbers = known
        kinds = {field.TYPE_STRING: texts, field.TYPE_BYTES: ids, field.TYPE_BOOL: [True, False]}
        choices = kinds.get(field.type, [1, 2] if field.enum_type is not None else numbers)
        value = draw.choice(choices)
        if field.type in {field.TYPE_UINT32, field.TYPE_INT32}:
            value %= 1 << 31
        if field.is_repeated:
            target.append(value)
        else:
            setattr(message, field.name, value)
    return message


def opened(draw, request, known):
    """The request with its stream's open filled in, where it has one."""
    part = getattr(request, "header", request)
    if "open" in part.DESCRIPTOR.fields_by_name:
        opening = part.DESCRIPTOR.fields_by_name["open"].message_type
        part.open.CopyFrom(filled(draw, opening, make, known))
    return request


def make(descriptor):
    from google.protobuf import message_factory  # as grpc's own tools do

    return message_factory.GetMessageClass(descriptor)()


def attack(client, method, requests):
    """Sends requests by one method, and ignores the answers."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    kind = f"{'stream' if method.client_streaming else 'unary'}_stream"
    if not method.server_streaming:
        kind = kind.replace("_stream", "_unary")
    call = getattr(client.channel, kind)(path, bytes_of, bytes)
    groups = [requests] if method.client_streaming else [[each] for each in requests]
    for group in groups:
        sent = iter(group) if method.client_streaming else group[0]
        try:
            answer = call(sent, timeout=ATTEMPT_S)
            for _ in answer if method.server_streaming else ():
                pass
        except grpc.RpcError:
            pass


def bytes_of(message):
    return message.SerializeToString()


def test_no_call_of_another_changes_what_an_owner_is_answered(guarded, alice):
    """A2, A10: random requests by every RPC with alice's names and ids do not affect alice."""
    draw = random.Random(27)
    assert alice.act() == ([b"1"], b"2")
    with guarded.client("mallory") as mallory:
        for name, method in sorted(METHODS.items()):
            known_words = words(alice)
            requests = [filled(draw, method.input_type, make, known_words) for _ in range(REQUESTS)]
            if method.client_streaming:
                for each in range(0, REQUESTS, 4):
                    group = [opened(draw, requests[each], known_words), *requests[each + 1 :][:3]]
                    attack(mallory, method, group)
            else:
                attack(mallory, method, requests)
            assert len(alice.act()[0]) == 1, name


def test_a_publisher_whose_id_is_known(guarded, alice):
    """P10, A10: mallory can neither end alice's publisher nor get its publishes dropped."""
    alice.act()
    opening = {"publisher_id": alice.ids["publisher"], "mode": 1, "resume": True}
    data = publishing_pb2.PublishData(first_number=FAR, rows=1)
    frames = (
        publishing_pb2.PublishHeader(open=publishing_pb2.PublishOpen(**opening)),
        publishing_pb2.PublishHeader(lowest_unanswered=FAR, data=data),
        publishing_pb2.PublishHeader(close=publishing_pb2.PublishClose()),
    )
    block = encoded(body=[b"x"], routing_key="own")
    requests = [publishing_pb2.PublishRequest(header=header, block=block) for header in frames]
    for header in requests[::2]:
        header.block = b""

    def publish(client):
        return list(client.publishing.Publish(iter(requests)))

    with guarded.client("mallory") as mallory:
        error = refused_with(PermissionDeniedError, publish, mallory)
    assert "alice" not in error.message
    alice.act()


def test_a_query_whose_id_is_claimed(guarded, alice):
    """S6, S11: a fetch of mallory's session under alice's query and run ids does not harm hers."""
    alice.act()
    with guarded.client("mallory") as mallory:
        with mallory.publisher() as out:
            out.publish(1, b"x", routing_key="own")
            out.confirmed(1)
        reader = holder(token=secrets.token_bytes(16))
        incarnation, lease = mallory.open(reader, session="own", queues=["own"])
        key = fetch_key(reader.token, incarnation, lease.epoch)
        for batch in (alice.batch, FAR):
            query = {"query_id": "query", "run_id": "run", "batch_id": batch, "key": key}
            assert mallory.fetch(lease, 0, 1, **query)[0] == [b"x"]
    alice.act()


def test_a_link_of_another_user(guarded, alice):
    """L1, A3: another user cannot take over alice's link, and does not learn its host."""
    guarded.add("writer", write="hers")
    for ended in (False, True):
        if ended:
            alice.link.close()
        for user, queue in (("mallory", "own"), ("writer", "hers")):
            with guarded.client(user) as client:
                error = RawLink(client, link="l", queue=queue).error()
                assert type(error) is PermissionDeniedError
                assert "'test'" not in error.message
    again = RawLink(alice.client, link="l", queue="hers")
    assert next(again.call).opened.epoch == 2
    again.call.cancel()


def test_a_session_whose_queue_is_gone(guarded, alice):
    """A10, S9: a session whose queue was deleted still belongs to alice."""
    with guarded.client("master") as master:
        alice.link.close()
        alice.channel.call.cancel()
        eventually("her channel's end", lambda: not master.queue("hers").unacked)
        remove = links_pb2.RemoveLinkRequest(link="l", forget=True)
        master.links.RemoveLink(remove)
        master.delete("hers", force=True)
    reader = holder(token=secrets.token_bytes(16))
    with guarded.client("mallory") as mallory:
        refused_with(PermissionDeniedError, mallory.advance, reader, queues=["own"])
