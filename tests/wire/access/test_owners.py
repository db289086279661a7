"""Attacks of a user on another user's state, by every call (A10, P10, S6, S11, L1).

Mallory is an observer, and may do everything on `own`. She knows every name and id of alice's,
also those that no list shows, but neither alice's token nor that of alice's holder.
"""

import itertools
import random
import secrets
from contextlib import suppress

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor

from ackq.errors import PermissionDeniedError
from ackq.v1 import links_pb2, sessions_pb2
from ackq.wire.fetch_key import fetch_key
from tests.eventually import eventually
from tests.fakes import machine
from tests.fakes.raw_client import holder, refused_with
from tests.fakes.raw_link import RawLink
from tests.fuzz.mutations import Filler
from tests.wire.access.conftest import METHODS, add_user, all_on, with_master

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
def guarded(tmp_path):
    """A broker that ends no silent stream of alice's while mallory is at work."""
    env = machine.with_limits(tmp_path / "env", {"HEARTBEAT_MS": 1_000_000})
    with with_master(tmp_path, **env) as found:
        yield found


@pytest.fixture
def alice(guarded):
    guarded.tokens["alice"] = add_user(guarded.path, "alice", write="hers", read="hers")
    guarded.add("mallory", role="observer", **all_on("own"))
    with guarded.client("master") as master:
        master.declare("hers")
        master.declare("own")
    with guarded.client("alice") as client:
        yield Alice(client)


class Mallory(Filler):
    """Fills requests with what mallory knows, by the fields' types; none asks for a takeover."""

    def __init__(self, draw, alice):
        super().__init__(draw)
        texts = ["own", "hers", "s", "l", "query", "run", alice.incarnation, "queue/hers", ""]
        self._numbers = [0, 1, 2, alice.batch, FAR]
        small = [number % (1 << 31) for number in self._numbers]
        self._known = {
            FieldDescriptor.TYPE_STRING: texts,
            FieldDescriptor.TYPE_BYTES: [*alice.ids.values(), secrets.token_bytes(16), b""],
            FieldDescriptor.TYPE_BOOL: [True, False],
            FieldDescriptor.TYPE_ENUM: [1, 2],
            **dict.fromkeys((FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_INT32), small),
        }

    def opened(self, request):
        """The request with its stream's open filled in, where it has one."""
        part = getattr(request, "header", request)
        if "open" in part.DESCRIPTOR.fields_by_name:
            part.open.CopyFrom(self.message(part.open.DESCRIPTOR))
        return request

    def _set(self, made, field, depth):
        if field.name not in {"takeover", "fence", "force"}:
            super()._set(made, field, depth)

    def _value(self, field):
        return self._rng.choice(self._known.get(field.type, self._numbers))


def attack(client, method, requests):
    """Sends requests by one method, and ignores the answers."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    kind = f"{'stream' if method.client_streaming else 'unary'}_stream"
    if not method.server_streaming:
        kind = kind.replace("_stream", "_unary")
    call = getattr(client.channel, kind)(path, type(requests[0]).SerializeToString, bytes)
    groups = [requests] if method.client_streaming else [[each] for each in requests]
    for group in groups:
        sent = iter(group) if method.client_streaming else group[0]
        with suppress(grpc.RpcError):
            answer = call(sent, timeout=ATTEMPT_S)
            for _ in answer if method.server_streaming else ():
                pass


def test_no_call_of_another_changes_what_an_owner_is_answered(guarded, alice):
    """A2, A10: random requests by every RPC with alice's names and ids do not affect alice."""
    draw = random.Random(27)
    assert alice.act() == ([b"1"], b"2")
    with guarded.client("mallory") as mallory:
        for name, method in sorted(METHODS.items()):
            filler = Mallory(draw, alice)
            requests = [filler.message(method.input_type) for _ in range(REQUESTS)]
            if method.client_streaming:
                for each in range(0, REQUESTS, 4):
                    group = [filler.opened(requests[each]), *requests[each + 1 :][:3]]
                    attack(mallory, method, group)
            else:
                attack(mallory, method, requests)
            assert len(alice.act()[0]) == 1, name


def test_a_query_whose_id_is_claimed(guarded, alice):
    """S6, S11: a fetch of mallory's session under alice's query and run ids does not harm hers."""
    alice.act()
    with guarded.client("mallory") as mallory:
        mallory.publish(b"x", queue="own")
        reader = holder(token=secrets.token_bytes(16))
        incarnation, lease = mallory.open(reader, session="own", queues=["own"])
        key = fetch_key(reader.token, incarnation, lease.epoch)
        for batch in (alice.batch, FAR):
            query = {"query_id": "query", "run_id": "run", "batch_id": batch, "key": key}
            assert mallory.fetch(lease, 0, 1, **query)[0] == [b"x"]
    alice.act()


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
