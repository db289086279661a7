"""A link's stream at the edge, by the client and by raw stubs, against a real broker process."""

import asyncio
import secrets
from contextlib import asynccontextmanager
from functools import partial

import pytest

import ackq_broker
from ackq import errors, limits
from ackq.client import Admin, Channel, close_channels
from ackq.info import LinkReport
from ackq.v1 import links_pb2 as pb
from ackq_link.edge import AsyncLink, Proof
from tests.eventually import SOON_S, equals, eventually, eventually_async
from tests.fakes.blocks import encoded
from tests.fakes.raw_client import TIMEOUT_S, Client, refused_with
from tests.fakes.raw_link import SOURCE, RawLink, columns


def make_link(endpoint, **changes):
    return AsyncLink(endpoint, **({"link": "l", "source": SOURCE, "queue": "q"} | changes))


@asynccontextmanager
async def subscribed(endpoint, **changes):
    """A link that has begun a subscription."""
    async with make_link(endpoint, **changes) as link:
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


def info(endpoint, link="l"):
    with Admin(endpoint) as admin:
        return admin.link(link)


@pytest.fixture
def edge(shared_broker, client):  # noqa: ARG001 - which declares the queue, and removes links
    """The broker of the module with the queue `q`."""
    yield shared_broker
    close_channels()


@pytest.fixture
def own_edge(broker, own):  # noqa: ARG001 - which declares the queue
    """A broker of the test's own with the queue `q`."""
    return broker


# --- stored, matched, permitted ---


async def test_from_a_delivery_to_its_permit(edge):
    """L5, L9, L10: a delivery is stored durably, and permitted once accepted at the edge."""
    async with make_link(edge.endpoint) as link:
        assert await link.subscribe(Proof) == link.subscription
        stored = await store(link, 1, [1, 2, 3])
        assert (stored.rows, stored.matched, stored.permitted) == (3, 0, 0)
        assert bodies(edge.endpoint) == [1, 2, 3]
        assert accept(edge.endpoint, 2) == [1, 2]
        assert await permitted(link, 2) == [1, 2]
        assert accept(edge.endpoint, 1) == [3]
        assert await permitted(link, 1) == [3]
    found = info(edge.endpoint)
    assert (found.taken, found.stored, found.permitted, found.held) == (3, 3, 3, 0)
    assert (found.source, found.queue, found.live) == (SOURCE, "q", False)


async def test_what_is_delivered_again(edge):
    """L5, L6, L11: a redelivery is matched if held, and permitted at once if settled."""
    async with subscribed(edge.endpoint) as link:
        await store(link, 1, [1, 2, 3])
        accept(edge.endpoint, 1)
        assert await permitted(link, 1) == [1]
        await link.subscribe(Proof)
        again = await store(link, 1, [1, 2, 3, 4], redelivered=[True] * 3 + [False])
        assert (again.matched, again.permitted) == (3, 1)
        assert await permitted(link, 1) == [1]
        assert bodies(edge.endpoint) == [2, 3, 4]


async def test_stored_is_enough(edge):
    """L9: with ack=stored the answer to the store is the permit."""
    async with subscribed(edge.endpoint, ack="stored") as link:
        assert (await store(link, 1, [1, 2])).permitted == 2
        assert await permitted(link, 2) == [1, 2]


async def test_some_at_once(edge):
    """L15: deliveries flagged `at_once` are permitted when stored, others when accepted."""
    async with subscribed(edge.endpoint) as link:
        stored = await store(link, 1, [1, 2, 3], at_once=[False, True, False])
        assert [run.permitted for run in stored.runs] == [False, True, False]
        assert await permitted(link, 1) == [2]
        accept(edge.endpoint, 3)
        assert await permitted(link, 2) == [1, 3]


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


# --- cuts and kills ---


@pytest.mark.parametrize("sync", [3, 4, 6])
def test_a_kill_between_stored_and_answered(sync, tmp_path):
    """L5: after a kill at any sync the stream resumes, nothing is doubled, and permits come."""
    data = tmp_path / "data"
    with ackq_broker.embedded(data) as broker, Admin(broker.endpoint) as admin:
        admin.declare_queue("q")
    armed = {"ACKQ_FAILPOINT": f"after_sync_data_segment:{sync}"}

    async def main(broker):
        async def restart():
            await asyncio.to_thread(broker.wait_dead, SOON_S)
            await asyncio.to_thread(broker.restart, {})

        restarted = asyncio.create_task(restart())
        async with subscribed(broker.endpoint) as link:
            for number in range(1, 9):
                await store(link, number, [number])
            await restarted
            assert bodies(broker.endpoint) == [*range(1, 9)]
            accept(broker.endpoint, 8)
            assert await permitted(link, 8) == [*range(1, 9)]

    with ackq_broker.embedded(data, env=armed) as broker:
        asyncio.run(main(broker))
    close_channels()


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


# --- one holder ---


async def test_a_second_holder_is_refused_while_the_first_is_live(edge, monkeypatch):
    """L1: a second holder of a link is refused while the first is live."""
    monkeypatch.setattr(limits, "HEARTBEAT_MS", 200)
    async with make_link(edge.endpoint):
        with pytest.raises(errors.AlreadyHeldError, match="'l'"):
            async with asyncio.timeout(SOON_S):
                await make_link(edge.endpoint).__aenter__()
    # The first has ended, so this is not refused.
    async with asyncio.timeout(SOON_S), make_link(edge.endpoint) as next_one:
        assert next_one.epoch == 2


async def test_a_holder_that_was_cut_off_is_fenced(edge):
    """L1: the successor of a cut-off holder matches its deliveries; the old stream is refused."""
    with Client(edge.endpoint) as raw:
        first = RawLink(raw)
        first.deliver(first.subscribe(), 1, [1])
        assert first.stored().rows == [1]
        first.call.cancel()
        async with asyncio.timeout(SOON_S), make_link(edge.endpoint) as link:
            await link.subscribe(Proof)
            assert (await store(link, 1, [1])).matched == 1
            again = RawLink(raw, token=first.token)
            refusal = again.error()
            assert type(refusal) is errors.AlreadyHeldError


# --- refused for a while ---


async def test_a_full_queue(edge):
    """L20: deliveries that do not fit into a full queue wait, in order, until there is room."""
    with Admin(edge.endpoint) as admin:
        admin.declare_queue("q2", max_length=3)

    def accept_q2(count):
        with Channel(edge.endpoint) as channel:
            return [int(each.body) for each in channel.get("q2", count, no_ack=True)]

    async with subscribed(edge.endpoint, queue="q2") as link:
        waiting = [
            asyncio.create_task(store(link, 1, [1, 2, 3, 4, 5])),
            asyncio.create_task(store(link, 6, [6])),
        ]
        refusal = await eventually_async("the refusal", lambda: link.refusal)
        assert isinstance(refusal, errors.QueueFullError)
        with Admin(edge.endpoint) as admin:
            # A part that fits is stored in between, which clears the refusal for a moment.
            eventually("a part of them", lambda: admin.queue("q2").ready == 3)
            eventually("the refusal", lambda: "full" in admin.link("l").refusal)
        taken = []
        while len(taken) < 6:
            taken += await asyncio.to_thread(accept_q2, 1)
        assert taken == [1, 2, 3, 4, 5, 6]
        first, second = await asyncio.gather(*waiting)
        assert (first.rows, second.rows) == (5, 1)
        assert link.refusal is None
        assert await permitted(link, 6) == [1, 2, 3, 4, 5, 6]


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


# --- operators ---


async def test_a_link_is_paused(edge, monkeypatch):
    """L25: a link's process learns of a pause at once and at each open; permits go on."""
    monkeypatch.setattr("ackq_link.edge.state._HEARTBEAT_S", 1_000)
    with Admin(edge.endpoint) as admin:
        async with subscribed(edge.endpoint) as link:
            await store(link, 1, [1])
            changed = asyncio.create_task(link.changed())
            assert admin.pause_link("l")
            assert not admin.pause_link("l")
            async with asyncio.timeout(SOON_S):
                await changed
            assert link.paused
            accept(edge.endpoint, 1)
            assert await permitted(link, 1) == [1]
        async with make_link(edge.endpoint) as link:
            assert link.paused
            assert admin.pause_link("l", paused=False)
            await eventually_async("the resume", lambda: not link.paused)


async def test_a_link_is_removed(edge):
    """L25: a link is not removed while it runs, nor while it holds messages without `forget`."""
    with Admin(edge.endpoint) as admin:
        async with subscribed(edge.endpoint) as link:
            await store(link, 1, [1, 2])
            accept(edge.endpoint, 1)
            assert await permitted(link, 1) == [1]
            with pytest.raises(errors.InUseError):
                admin.remove_link("l", forget=True)
        with pytest.raises(errors.InUseError, match="1"):
            admin.remove_link("l")
        done = admin.remove_link("l", forget=True)
        assert (done.held, done.unproven) == (1, 1)
        with pytest.raises(errors.LinkNotFoundError):
            admin.link("l")
        assert admin.links() == []
        with pytest.raises(errors.LinkNotFoundError):
            admin.pause_link("l")


async def test_what_its_process_tells(edge, monkeypatch):
    """L26: the report of a link's process is shown to operators while it runs."""
    monkeypatch.setattr("ackq_link.edge.state._HEARTBEAT_S", 0.05)
    with Admin(edge.endpoint) as admin:
        async with subscribed(edge.endpoint) as link:
            link.report(pb.LinkReport(window_messages=9, lives_left=2, limited_by="window"))
            await store(link, 1, [1, 2])
            shown = partial(admin.link, "l")
            await eventually_async("it", shown, lambda found: found.report.window_messages == 9)
            await eventually_async("the state", lambda: link.held, equals(2))
            found = shown()
            assert (found.live, found.held, found.report.limited_by) == (True, 2, "window")
            assert found.report.lives_left == 2
        assert admin.link("l").report == LinkReport()


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


OPENINGS = {
    "no name": {"link": ""},
    "a long name": {"link": "l" * 256},
    "no source": {"source": ""},
    "a long source": {"source": "s" * 10_000},
    "no queue": {"queue": ""},
    "no ack": {"ack": 0},
    "an unknown ack": {"ack": 7},
    "a short token": {"token": b"short"},
}


@pytest.mark.parametrize("changes", OPENINGS.values(), ids=OPENINGS)
def test_an_opening_that_is_none(client, changes):
    """L1, I6: an invalid opening is refused with the reason, and no link is made."""
    assert isinstance(RawLink(client, **changes).error(), errors.InvalidArgumentError)
    assert list(client.links.ListLinks(pb.ListLinksRequest()).links) == []


def test_a_queue_that_is_none(client):
    """L13: a link to a queue that drops messages, or to a missing one, is refused."""
    assert type(RawLink(client, queue="none").error()) is errors.QueueNotFoundError
    client.declare("drops", max_length=1, overflow=2)
    error = RawLink(client, queue="drops").error()
    assert isinstance(error, errors.PreconditionFailedError)


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
    while not (answer := next(again.call)).HasField("permits"):
        pass
    assert (answer.permits.first_number, answer.permits.last_number) == ([1], [3])
    third = RawLink(client, token=link.token)
    while not (answer := next(third.call)).HasField("permits"):
        pass
    assert (answer.permits.first_number, answer.permits.last_number) == ([1], [3])
    third.close()
