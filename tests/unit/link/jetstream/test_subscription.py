"""A pull consumer, on a connection that records what is written."""

import asyncio

import pytest

from ackq.limits import LINK_ANSWER_S
from ackq_link.adapter import CutError, Limits
from ackq_link.jetstream import subscription as module
from ackq_link.jetstream.source import Sequences
from ackq_link.jetstream.subscription import Pulling, StreamSubscription
from tests.fakes.clock import LoopTime, run
from tests.unit.link.jetstream.recorded import Connection

RUN = run
PULLING = Pulling("$JS.API.CONSUMER.MSG.NEXT.s.c", most=1000, wait_s=3.0, most_s=0)


async def started(*sequences, pulling=PULLING):
    """A connection, and its subscription after the delivery of these messages."""
    connection, keys = Connection(), Sequences("s", "now")
    subscription = StreamSubscription(connection, Limits(4, 100), pulling, keys)
    await subscription.start()
    connection.bring(*sequences)
    if sequences:
        found = await subscription.deliver()
        count = len(sequences)
        assert (found.first_tag, found.last_tag) == (1, count)
        assert list(found.redelivered) == [False] * count
        assert found.positions == keys.positions(sequences, sequences)
    return connection, subscription


async def is_cut(subscription, words):
    with pytest.raises(CutError, match=words):
        await subscription.deliver()


async def test_redeliveries_come_until_the_longest_wait_is_over(monkeypatch):
    """L10, L30: a server that was killed redelivers after AckWait, and fresh messages before."""
    clock = LoopTime()
    monkeypatch.setattr(module, "time", clock)
    connection, subscription = await started(pulling=PULLING._replace(longest_s=300.0))
    for at_s, unsettled in ((299, True), (310, False)):
        clock.paused_s = at_s
        connection.bring(at_s)
        assert (await subscription.deliver()).unsettled == unsettled
    await subscription.close()


async def test_acknowledgements_are_proven_in_their_order():
    """L10, L12: an answer proves a settlement when all earlier ones are answered."""
    connection, subscription = await started(5, 6, 7)
    subscription.settle(2, 3)
    subscription.reject(1, 1)
    await asyncio.sleep(0.01)
    assert [b".6." in f for f in connection.sent(b"+ACK")] == [True, False]
    # Servers before 2.10.4 know no reason after the word, and answer all the same.
    assert connection.sent(b"+TERM") == [b"PUB $JS.ACK.s.c.1.5.1.5.0 IN.a.3 5\r\n+TERM\r\n"]
    for number, proven in ((2, 0), (1, 2), (3, 3)):
        connection.answer(number)
        assert subscription.proven == proven


async def test_a_redelivery_of_what_is_held_is_no_delivery():
    """L30: it is acknowledged by its newer delivery; one after the answer is a cut."""
    connection, subscription = await started(5)
    connection.bring(5, count=2)
    subscription.settle(1, 1)
    await asyncio.sleep(0.01)
    assert b"$JS.ACK.s.c.2.5." in connection.sent(b"+ACK")[0]
    connection.bring(5, count=3)  # its acknowledgement is under way
    connection.bring(6)
    assert (await subscription.deliver()).first_tag == 2
    connection.answer(1)
    connection.bring(5, count=4)
    await is_cut(subscription, "came again after its acknowledgement")


async def test_acknowledgements_go_before_a_pull():
    """L9, L30: a stream that was deleted and created again may bring the same sequences."""
    connection, subscription = await started(5, 6, 7, 8)
    loop = asyncio.get_running_loop()
    # In one turn of the loop with the timer of the pull, and before it.
    loop.call_at(loop.time() + module._FLOW_S - 5e-10, subscription.settle, 1, 2)
    connection.status("408 Request Timeout")
    await asyncio.sleep(0.01)
    words = (b"+ACK", b"+ACK", b"MSG.NEXT")
    assert all(word in each for word, each in zip(words, connection.frames[-3:], strict=True))
    assert connection.pulls[-1]["batch"] == 2


@pytest.mark.parametrize(
    ("count", "new", "words"),
    [(2, 5, "another one"), (0, 5, "created again"), (0, 9, "created again")],
    ids=["same consumer", "new consumer", "new consumer, other sequence"],
)
async def test_a_stream_made_anew(count, new, words):
    """L30: a stream or consumer created again is a cut, and no new message is acknowledged.

    Seen by the store time of a held sequence, or by the consumer's count of its deliveries.
    """
    connection, subscription = await started(5, 6)
    subscription.settle(1, 1)
    connection.delivered = count
    connection.bring(new, later=1_000)
    subscription.settle(2, 2)
    await is_cut(subscription, words)
    await subscription.close(requeue=True)
    assert not [frame for frame in connection.frames if b"+ACK" in frame or b"-NAK" in frame]


@pytest.mark.parametrize("same", [True, False])
async def test_a_full_window_and_another_consumer(monkeypatch, same):
    """L30: without a pull, which would end with the consumer, the link looks at it before it
    settles; it acknowledges nothing of another one.
    """
    monkeypatch.setattr(module, "_SURE_S", 0)
    connection, subscription = await started(5, 6, 7, 8)
    if not same:
        connection.created = "later"
    subscription.settle(2, 3)
    await asyncio.sleep(0.01)
    if same:
        assert (len(connection.sent(b"+ACK")), connection.pulls[-1]["batch"]) == (2, 2)
        connection.answer(1)
        connection.answer(2)
    else:
        await is_cut(subscription, "deleted and created again")
    await subscription.close(requeue=True)
    assert len(connection.sent(b"+ACK")) == len(connection.sent(b"-NAK")) == 2 * same


async def test_deliveries_that_were_read_late(monkeypatch):
    """L30: deliveries say that the consumer was the same after their pull, not when they are read,
    as after a time in which the link stood still.
    """
    monkeypatch.setattr(module, "time", LoopTime())
    connection, subscription = await started()
    await asyncio.sleep(1)
    connection.created = "later"
    connection.bring(5, 6, 7, 8)
    await subscription.deliver()
    subscription.settle(1, 4)
    await asyncio.sleep(0.01)
    await is_cut(subscription, "deleted and created again")
    assert (connection.sent(b"+ACK"), len(connection.pulls)) == ([], 1)


async def test_signs_of_progress():
    """L29, L31: what is held or set aside is signed for at a third of the wait."""
    connection, subscription = await started(5, 6, 7)
    subscription.settle(1, 1)
    subscription.set_aside(2)
    await asyncio.sleep(2.5)
    assert len(connection.sent(b"+WPI")) == 2 * 2
    assert not [frame for frame in connection.sent(b"+WPI") if b".1.5." in frame]


async def test_the_window():
    """L19: a pull asks for what has room, one at a time, and again after the first has ended."""
    connection, subscription = await started(1, 2)

    async def pulled(*rows):
        await asyncio.sleep(0.01)
        assert [each["batch"] for each in connection.pulls] == [*rows]

    await pulled(4)
    assert connection.pulls[0]["max_bytes"] == 100
    subscription.settle(1, 2)
    await pulled(4)
    connection.status("409 Batch Completed")
    await pulled(4, 4)
    connection.status("408 Request Timeout", pull=1)  # of the first: it is late
    await pulled(4, 4)
    connection.status("409 Message Size Exceeds MaxBytes", pull=2)  # a message above the window
    await asyncio.sleep(1)
    await pulled(4, 4, 1)
    assert "max_bytes" not in connection.pulls[2]


async def test_messages_set_aside_take_room_of_the_consumer():
    """L19, L29: they are of its MaxAckPending; when all of that are, the window is 0."""
    windows = []
    for most in (0, 5, 2):
        _, subscription = await started(1, 2, pulling=PULLING._replace(most_pending=most))
        for tag in (1, 2):
            subscription.set_aside(tag)
        windows.append(subscription.window_messages)
    assert windows == [4, 3, 0]


async def test_a_consumer_with_few_bytes_a_request():
    """L19: a pull asks for no more; a message over them is taken alone, beside what is held."""
    connection, _ = await started(1, pulling=PULLING._replace(most_bytes=30))
    connection.status("409 Batch Completed")
    await asyncio.sleep(0.01)
    connection.status("409 Message Size Exceeds MaxBytes", pull=2)
    await asyncio.sleep(1)
    asked = [(each["batch"], each.get("max_bytes")) for each in connection.pulls]
    assert asked == [(4, 30), (3, 30), (1, None)]
    connection.bring(2)
    await asyncio.sleep(0.01)
    assert (connection.pulls[-1]["batch"], connection.pulls[-1]["max_bytes"]) == (2, 30)


@pytest.mark.parametrize(
    "line",
    ["409 Consumer Deleted", "503", "400 Bad Request", "409 Exceeded MaxRequestMaxBytes of 9"],
)
async def test_a_pull_that_ends_for_good(line):
    """L17: it is a cut."""
    connection, subscription = await started()
    connection.status(line)
    await is_cut(subscription, line)


async def test_what_is_not_answered(monkeypatch):
    """L31: an acknowledgement without an answer is a cut; so is a server that answers no pull."""
    monkeypatch.setattr(module, "time", LoopTime())
    connection, subscription = await started(1)
    subscription.settle(1, 1)
    for _ in range(int(LINK_ANSWER_S) + 10):
        connection.status("100 Idle Heartbeat")
        await asyncio.sleep(1)
    await is_cut(subscription, "does not answer")
    connection, subscription = await started()
    await is_cut(subscription, "does not answer")
    assert len(connection.pulls) == 2


async def test_an_acknowledgement_that_is_refused():
    """L10: an answer that is none ends the subscription; nothing is proven by it."""
    connection, subscription = await started(1)
    subscription.settle(1, 1)
    connection.answer(1, b"NATS/1.0 503\r\n\r\n")
    await is_cut(subscription, "503")
    assert subscription.proven == 0


async def test_what_is_held_is_given_back():
    """L31: a clean close waits for the answers, and gives back what is held."""
    connection, subscription = await started(1, 2, 3)
    subscription.settle(1, 1)
    closing = asyncio.create_task(subscription.close(requeue=True))
    await asyncio.sleep(0.1)
    assert not connection.sent(b"-NAK")
    connection.answer(1)
    await closing
    assert len(connection.sent(b"-NAK")) == 2
