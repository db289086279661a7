"""A link's stream at the edge, by the client and by raw stubs, against a real broker process."""

import asyncio
import secrets
from contextlib import asynccontextmanager

import pytest

from ackq import errors
from ackq.client import Admin, Channel, close_channels
from ackq.v1 import links_pb2 as pb
from ackq_broker import embedded
from ackq_link.edge import AsyncLink, Proof
from tests.eventually import SOON_S, eventually_async
from tests.fakes import machine
from tests.fakes.blocks import encoded
from tests.fakes.raw_client import TIMEOUT_S, refused_with
from tests.fakes.raw_link import SOURCE, RawLink, columns


@asynccontextmanager
async def subscribed(endpoint):
    """A link that has begun a subscription."""
    async with AsyncLink(endpoint, link="l", source=SOURCE, queue="q") as link:
        await link.subscribe(Proof)
        yield link


async def store(link, first, ids, **more):
    async with asyncio.timeout(SOON_S):
        return await link.store(first, **(columns(ids) | more))


async def permitted(link, count):
    """The delivery numbers of the next permits."""
    found = []
    async with asyncio.timeout(SOON_S):
        while len(found) < count:
            for first, last in (await link.permits()).ranges:
                found.extend(range(first, last + 1))
    return found


def accept(endpoint, count):
    """Takes this number of messages without acks, which accepts them; returns their bodies."""
    taken = []
    with Channel(endpoint) as channel:
        while len(taken) < count:
            most = min(count - len(taken), 1_000)
            taken += [int(message.body) for message in channel.get("q", most, no_ack=True)]
    return taken


def bodies(endpoint):
    with Admin(endpoint) as admin:
        return [int(row["body"]) for found in admin.browse("q") for row in found.to_pylist()]


@pytest.fixture
def edge(shared_broker, client):  # noqa: ARG001 - which declares the queue, and removes links
    """The broker of the module with the queue `q`."""
    yield shared_broker
    close_channels()


@pytest.fixture
def own_edge(broker, own):  # noqa: ARG001 - which declares the queue
    """A broker of the test's own with the queue `q`."""
    return broker


async def test_many_under_way_keep_their_order(edge):
    """L8: concurrent stores are in the queue in the order of the calls."""
    async with subscribed(edge.endpoint) as link:
        ids = range(1, 30_001)
        starts = range(0, len(ids), 1_000)
        answers = await asyncio.gather(
            *(store(link, at + 1, ids[at : at + 1_000]) for at in starts)
        )
        assert [answer.runs[0].first_number for answer in answers] == [at + 1 for at in starts]
        assert bodies(edge.endpoint) == [*ids]
        accept(edge.endpoint, 30_000)
        assert await permitted(link, 30_000) == [*ids]


async def test_permits_after_a_kill(own_edge):
    """L10: a restarted broker knows the numbers of held deliveries; each permit comes once."""
    async with subscribed(own_edge.endpoint) as link:
        await store(link, 1, [1, 2, 3, 4])
        accept(own_edge.endpoint, 2)
        assert await permitted(link, 2) == [1, 2]
        await asyncio.to_thread(own_edge.kill)
        await eventually_async("the cut", lambda: not link.connected)
        assert isinstance(link.outage, errors.BrokerUnavailableError)
        waiting = asyncio.create_task(store(link, 5, [5]))
        await asyncio.to_thread(own_edge.restart)
        await waiting
        accept(own_edge.endpoint, 3)
        assert await permitted(link, 3) == [3, 4, 5]


async def test_a_broker_that_is_drained(own_edge):
    """L20, O6: a draining broker takes no deliveries; the link waits and goes on afterwards."""
    async with subscribed(own_edge.endpoint) as link:
        with Admin(own_edge.endpoint) as admin:
            admin.drain()
            waiting = asyncio.create_task(store(link, 1, [1]))
            refusal = await eventually_async("the refusal", lambda: link.refusal)
            assert "drained" in refusal.message
            assert bodies(own_edge.endpoint) == []
            admin.drain(resume=True)
        await waiting
        assert bodies(own_edge.endpoint) == [1]


async def test_repetitions_end_a_subscription(tmp_path):
    """L6: the next subscription matches them; where they come soon again, they are stored."""
    (tmp_path / "env").mkdir()
    env = machine.with_limits(tmp_path / "env", {"LINK_ACK_GRACE_S": 0})
    with embedded(tmp_path / "data", env=env) as edge:
        with Admin(edge.endpoint) as admin:
            admin.declare_queue("q")
        async with subscribed(edge.endpoint) as link:
            await store(link, 1, [1, 2])
            with pytest.raises(errors.ClosedError, match="again in the same subscription"):
                await store(link, 3, [2, 3], redelivered=[True, False])
            assert bodies(edge.endpoint) == [1, 2]
            await link.subscribe(Proof)
            assert (await store(link, 1, [1, 2, 3, 3], redelivered=[True] * 4)).matched == 2
            assert bodies(edge.endpoint) == [1, 2, 3, 3]


# --- hostile and wrong frames ---


WRONG = {
    "a key too short": {"keys": bytes(31)},
    "no keys": {"keys": b""},
    "a check too many": {"checks": bytes(24)},
    "flags for other rows": {"content": b"\x04"},
    "flags too many": {"redelivered": bytes(2)},
    "flags too few": {"at_once": b"\x08"},
    "no row": {"rows": 0},
    "other rows than the block": {"rows": 3, "keys": bytes(48), "checks": bytes(24)},
    "more rows than a frame has": {"rows": 2**32 - 1},
    "number 0": {"first_number": 0, "lowest_unanswered": 0},
    "the last number": {"first_number": 2**64 - 2},
    "a gap": {"first_number": 5},
    "another subscription": {"subscription": 77},
    "no subscription": {"subscription": 0},
    "an answer to come": {"lowest_unanswered": 2},
    "more proven than delivered": {"proven": 2**64 - 1},
    "no block": {"block": b""},
    "a block of rubbish": {"block": b"\x0a\x02\x08\x02rubbish"},
    "a time to live": {"block": encoded(body=[b"1", b"2"], ttl_ms=[1, 1])},
}


def test_deliveries_that_are_none(client):
    """I6: an invalid delivery frame gets a typed error, stores nothing, and the link goes on."""
    token = secrets.token_bytes(16)
    for name, changes in WRONG.items():
        link = RawLink(client, token=token)
        link.deliver(link.subscribe(), 1, [1, 2], **changes)
        error = link.error()
        assert isinstance(error, errors.InvalidArgumentError | errors.LimitError), name
        assert client.queue().ready == 0, name
    again = RawLink(client, token=token)
    again.deliver(again.subscribe(), 1, [1, 2])
    assert again.stored().rows == [2]
    again.close()
    accept(client.endpoint, 2)


@pytest.mark.parametrize(
    "changes",
    [
        *[{"link": name} for name in ("", "l" * 256)],
        *[{"source": name} for name in ("", "s" * 10_000)],
        *[{"ack": number} for number in (0, 7)],
        {"queue": ""},
        {"token": b"short"},
    ],
)
def test_an_opening_that_is_none(client, changes):
    """L1, I6: an invalid opening is refused with the reason, and no link is made."""
    assert isinstance(RawLink(client, **changes).error(), errors.InvalidArgumentError)
    assert list(client.links.ListLinks(pb.ListLinksRequest()).links) == []


def test_frames_in_the_wrong_place(client):
    """L1: a stream must begin with an open, have only one, and no frame of unset kind."""
    calls = client.links
    wrong = pb.LinkRequest(header=pb.LinkHeader(heartbeat=pb.LinkHeartbeat()))
    error = refused_with(
        errors.InvalidArgumentError,
        lambda: next(calls.Link(iter([wrong]), timeout=TIMEOUT_S)),
    )
    assert "open" in error.message
    token = secrets.token_bytes(16)
    for kind in ({"open": pb.LinkOpen()}, {}):
        link = RawLink(client, token=token)
        link.send(**kind)
        assert type(link.error()) is errors.InvalidArgumentError
    RawLink(client, token=token).close()


def test_what_is_sent_again_is_answered_again(client):
    """L5: deliveries sent again on a new stream are answered again; unproven permits come again."""
    link = RawLink(client)
    subscription = link.subscribe()
    link.deliver(subscription, 1, [1, 2])
    first = link.stored()
    again = RawLink(client, token=link.token)
    opened = next(again.call).opened
    assert (opened.subscription, opened.next_number) == (subscription, 3)
    again.deliver(subscription, 1, [1, 2])
    again.deliver(subscription, 3, [3])
    assert again.stored() == first
    assert again.stored().first_position == [first.first_position[0] + 2]
    assert type(link.error()) is errors.FencedError
    accept(client.endpoint, 3)
    assert permits(again) == ([1], [3])
    third = RawLink(client, token=link.token)
    assert permits(third) == ([1], [3])
    third.close()


def permits(link):
    """The next ranges of permits of a stream."""
    while not (answer := next(link.call)).HasField("permits"):
        pass
    return answer.permits.first_number, answer.permits.last_number
