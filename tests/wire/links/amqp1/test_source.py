"""The AMQP 1.0 source with real brokers: their answers, counts and redeliveries."""

import asyncio
from dataclasses import replace

import pytest

from tests.optional import needs

needs("proton", "amqp1")

from proton import Message  # noqa: E402

from ackq_link.adapter import CutError, Limits, QueueLimits  # noqa: E402
from ackq_link.amqp1.address import Amqp1Address  # noqa: E402
from ackq_link.amqp1.source import Amqp1Source  # noqa: E402
from tests.eventually import SOON_S, equals, eventually_async  # noqa: E402
from tests.wire.links.amqp1.servers import BARE, LOSING, PASSWORD, USER  # noqa: E402

WINDOW = 20
# So many cuts that none counts do not happen by chance.
MOST_CUTS = 100


def source(peer, endpoint=None, window_bytes=1 << 20):
    place = Amqp1Address(f"amqp://{endpoint or peer.endpoint}", user=USER, password=PASSWORD)
    return Amqp1Source(place, peer.queue, "test", Limits(WINDOW, window_bytes))


async def subscribe_again(place):
    """Subscribes after a cut; once more where Qpid ignores the first attach after it."""
    try:
        return await place.subscribe()
    except CutError:
        return await place.subscribe()


async def deliveries(subscription, count):
    """The rows of the next deliveries, with their counts and batches."""
    rows, counts, batches = [], [], []
    async with asyncio.timeout(SOON_S):
        while len(rows) < count:
            batch = await subscription.deliver()
            batches.append(batch)
            rows += batch.rows.to_pylist()
            counts += batch.delivery_counts
    return rows, counts, batches


async def test_what_is_settled_is_proven(peer):
    """L8, L10, L12: settled deliveries are proven, by Qpid's answer or a ping, and no others."""
    peer.publish(range(30))
    subscription = await source(peer).subscribe()
    rows, counts, batches = await deliveries(subscription, WINDOW)
    assert [row["message_id"] for row in rows] == [str(n) for n in range(WINDOW)]
    assert counts == [0] * WINDOW
    assert batches[0].first_tag == 1
    subscription.settle(5, 8)
    subscription.settle(1, 2)
    await eventually_async("the proof", lambda: subscription.proven, equals(6))
    await subscription.close()
    assert subscription.proven == 6
    # Once the remote broker has taken back the deliveries of the closed subscription.
    rest = [2, 3, 8, *range(9, 30)]
    await eventually_async("the remote messages", lambda: peer.ids, equals(rest))


async def test_a_kill_after_the_proof(qpid):
    """L10: a settlement that Qpid has answered survives a kill of Qpid at once.

    Artemis has processed a proven one, and writes it a little later.
    """
    peer = qpid
    peer.publish(range(WINDOW))
    subscription = await source(peer).subscribe()
    await deliveries(subscription, WINDOW)
    subscription.settle(1, WINDOW)
    await eventually_async("the proof", lambda: subscription.proven, equals(WINDOW))
    peer.server.kill()
    await subscription.close()
    peer.server.start()
    assert peer.ids == []


async def test_what_a_cut_counts(peer, relay_to):
    """L15, L16: a cut counts as at most one delivery, a release as none, and the order stays.

    Artemis does not count each cut (measured: four of five); Qpid, which takes a delivery back
    gradually, sometimes counts a release.
    """
    peer.publish(range(5))
    relay = relay_to(peer.endpoint)

    async def seen(subscription):
        rows, counts, batches = await deliveries(subscription, 5)
        assert [row["message_id"] for row in rows] == [str(n) for n in range(5)]
        redelivered = [each for batch in batches for each in batch.redelivered]
        assert redelivered == [count > 0 for count in counts]
        return counts

    counts, cuts = [0] * 5, 0
    while cuts < 4 or max(counts) == 0:
        cuts += 1
        assert cuts <= MOST_CUTS, "no cut was counted"
        subscription = await subscribe_again(source(peer, relay.endpoint))
        found = await seen(subscription)
        grown = [now - before for now, before in zip(found, counts, strict=True)]
        assert set(grown) <= {0, 1}
        counts = found
        relay.cut()
        with pytest.raises(CutError):
            await subscription.deliver()
        await subscription.close()
        relay.heal()
    subscription = await subscribe_again(source(peer))
    counts = await seen(subscription)
    await subscription.close(requeue=True)
    subscription = await source(peer).subscribe()
    again = await seen(subscription)
    grown = {now - before for now, before in zip(again, counts, strict=True)}
    assert grown <= ({0} if peer.server.name == "artemis" else {0, 1})
    await subscription.close()


async def test_what_is_learnt(artemis_queues, qpid):
    """L14: Artemis reports its limits; Qpid has none by default, and reports none."""
    artemis, bare = artemis_queues(), artemis_queues(BARE)
    told = QueueLimits(delivery_limit=5, dead_letters=True)

    limits = [
        await source(artemis).learn(),
        await source(bare).learn(),
        await source(qpid).learn(),
        await replace(source(bare), told=told).learn(),
    ]
    found = [(each.delivery_limit, each.dead_letters) for each in limits]
    assert found == [(10, True), (10, False), (None, None), (5, True)]
    assert f'match="{BARE}"' in limits[1].remedy


@pytest.mark.parametrize("queue", LOSING)
async def test_a_dead_letter_address_that_keeps_nothing(artemis_queues, queue):
    """L14: where it does not exist or has no queue, Artemis drops dead letters."""
    limits = await source(artemis_queues(queue)).learn()
    assert limits.dead_letters is False
    (warning,) = limits.warnings
    assert "drops its dead letters" in warning


async def test_learning_ends_no_subscription(peer):
    """L14: limits are learnt beside the subscription, which goes on."""
    peer.publish(range(WINDOW))
    place = source(peer)
    subscription = await place.subscribe()
    await deliveries(subscription, WINDOW)
    for _ in range(2):
        await place.learn()
    subscription.settle(1, WINDOW)
    await eventually_async("the proof", lambda: subscription.proven, equals(WINDOW))
    await subscription.close()


async def test_a_window_of_bytes(peer):
    """L19: at `window_bytes` no more credit is given; at half of them a little."""
    peer.send(Message(id=str(n), body=b"x" * 1000, inferred=True) for n in range(50))
    subscription = await source(peer, window_bytes=5_000).subscribe()
    rows, _, batches = await deliveries(subscription, WINDOW)
    assert len(rows) == WINDOW  # sent before the first arrived
    subscription.settle(1, WINDOW - 4)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await subscription.deliver()
    subscription.settle(WINDOW - 3, WINDOW)
    rows, _, batches = await deliveries(subscription, 4)
    assert sum(each.rows.num_rows for each in batches) <= 5
    await subscription.close()


async def test_an_exchange_of_qpid(qpid):
    """L14: it is refused, as the queue that Qpid makes for a link ends with each connection."""
    with pytest.raises(CutError, match="is no queue: the broker says that it is a topic"):
        await replace(source(qpid), queue="amq.fanout").subscribe()
