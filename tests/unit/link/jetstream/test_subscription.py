"""A pull consumer, on a connection that records what is written."""

import asyncio
import json

import pytest

from ackq.limits import LINK_ANSWER_S
from ackq_link.adapter import CutError, Limits
from ackq_link.jetstream.connection import Received
from ackq_link.jetstream.source import Sequences
from ackq_link.jetstream.subscription import Pulling, StreamSubscription
from tests.fakes.clock import run

AGAIN = "came again after its acknowledgement"


class Connection:
    """A connection whose server does what the test says."""

    place = "s/c"

    def __init__(self):
        self.frames = []
        self.takes = {}
        self.cut = None

    def new_inbox(self):
        return "IN"

    async def listen(self, subject, take):
        self.takes[subject] = take

    async def forget(self, take):
        pass

    def write(self, frames):
        self.frames += frames

    async def flush(self):
        pass

    async def close(self):
        pass

    def bring(self, *sequences, count=1):
        for each in sequences:
            reply = f"$JS.ACK.s.c.{count}.{each}.{each}.{each}.0".encode()
            self.takes["IN.p.*"](Received(b"x", reply, b"", b"%d" % each))

    def status(self, line, pull=1):
        head = f"NATS/1.0 {line}\r\n\r\n".encode()
        self.takes["IN.p.*"](Received(f"IN.p.{pull}".encode(), b"", head, b""))

    def answer(self, number, headers=b""):
        self.takes["IN.a.*"](Received(b"IN.a.%d" % number, b"", headers, b""))

    def sent(self, word):
        return [frame for frame in self.frames if word in frame]

    @property
    def pulls(self):
        return [json.loads(frame.split(b"\r\n")[1]) for frame in self.sent(b"MSG.NEXT")]


async def started(window=4, window_bytes=100, wait_s=3.0):
    connection = Connection()
    subscription = StreamSubscription(
        connection,
        Limits(window, window_bytes),
        Pulling("$JS.API.CONSUMER.MSG.NEXT.s.c", 1000, wait_s, 0),
        Sequences("s", "now"),
    )
    await subscription.start()
    return connection, subscription


def test_acknowledgements_are_proven_in_their_order():
    """L10, L12: an answer proves a settlement when all earlier ones are answered."""

    async def work():
        connection, subscription = await started()
        connection.bring(5, 6, 7)
        found = await subscription.deliver()
        assert (found.first_tag, found.last_tag, list(found.redelivered)) == (1, 3, [False] * 3)
        assert found.positions == Sequences("s", "now").positions([5, 6, 7], [5, 6, 7])
        subscription.settle(2, 3)
        subscription.reject(1, 1)
        await asyncio.sleep(0.01)
        assert [b".6." in f for f in connection.sent(b"+ACK")] == [True, False]
        assert b"$JS.ACK.s.c.1.5.5.5.0 IN.a.3" in connection.sent(b"+TERM")[0]
        for number, proven in ((2, 0), (1, 2), (3, 3)):
            connection.answer(number)
            assert subscription.proven == proven

    run(work())


def test_a_redelivery_of_what_is_held_is_no_delivery():
    """L30: it is acknowledged by its newer delivery; one after the answer is a cut."""

    async def work():
        connection, subscription = await started()
        connection.bring(5)
        await subscription.deliver()
        connection.bring(5, count=2)
        subscription.settle(1, 1)
        await asyncio.sleep(0.01)
        assert b"$JS.ACK.s.c.2.5." in connection.sent(b"+ACK")[0]
        connection.bring(5, count=3)  # its acknowledgement is under way
        connection.bring(6)
        assert (await subscription.deliver()).first_tag == 2
        connection.answer(1)
        connection.bring(5, count=4)
        with pytest.raises(CutError, match=AGAIN):
            await subscription.deliver()

    run(work())


def test_signs_of_progress():
    """L29, L31: what is held or set aside is signed for at a third of the wait."""

    async def work():
        connection, subscription = await started()
        connection.bring(5, 6, 7)
        await subscription.deliver()
        subscription.settle(1, 1)
        subscription.set_aside(2)
        await asyncio.sleep(2.5)
        assert len(connection.sent(b"+WPI")) == 2 * 2
        assert not [frame for frame in connection.sent(b"+WPI") if b".5.5." in frame]

    run(work())


def test_the_window():
    """L19: a pull asks for what has room, one at a time, and again after the first has ended."""

    async def work():
        connection, subscription = await started()
        assert [(each["batch"], each["max_bytes"]) for each in connection.pulls] == [(4, 100)]
        connection.bring(1, 2)
        await subscription.deliver()
        subscription.settle(1, 2)
        await asyncio.sleep(0.01)
        assert len(connection.pulls) == 1
        connection.status("409 Batch Completed")
        await asyncio.sleep(0.01)
        assert [each["batch"] for each in connection.pulls] == [4, 4]
        connection.status("408 Request Timeout", pull=1)  # of the first: it is late
        await asyncio.sleep(0.01)
        assert len(connection.pulls) == 2
        connection.status("409 Message Size Exceeds MaxBytes", pull=2)  # a message above the window
        await asyncio.sleep(1)
        assert connection.pulls[2]["batch"] == 1
        assert "max_bytes" not in connection.pulls[2]

    run(work())


@pytest.mark.parametrize("line", ["409 Consumer Deleted", "503", "400 Bad Request"])
def test_a_pull_that_ends_for_good(line):
    """L17: it is a cut."""

    async def work():
        connection, subscription = await started()
        connection.status(line)
        with pytest.raises(CutError, match=line):
            await subscription.deliver()

    run(work())


def test_what_is_not_answered(monkeypatch):
    """L31: an acknowledgement without an answer is a cut; so is a server that answers no pull."""
    from types import SimpleNamespace

    from ackq_link.jetstream import subscription as module

    clock = SimpleNamespace(monotonic=lambda: asyncio.get_running_loop().time())
    monkeypatch.setattr(module, "time", clock)

    async def unanswered():
        connection, subscription = await started()
        connection.bring(1)
        await subscription.deliver()
        subscription.settle(1, 1)
        for _ in range(int(LINK_ANSWER_S) + 10):
            connection.status("100 Idle Heartbeat")
            await asyncio.sleep(1)
        with pytest.raises(CutError, match="answers nothing"):
            await subscription.deliver()

    async def silent():
        connection, subscription = await started()
        with pytest.raises(CutError, match="answers nothing"):
            await subscription.deliver()
        assert len(connection.pulls) == 3

    run(unanswered())
    run(silent())


def test_an_acknowledgement_that_is_refused():
    """L10: an answer that is none ends the subscription; nothing is proven by it."""

    async def work():
        connection, subscription = await started()
        connection.bring(1)
        await subscription.deliver()
        subscription.settle(1, 1)
        connection.answer(1, b"NATS/1.0 503\r\n\r\n")
        with pytest.raises(CutError, match="503"):
            await subscription.deliver()
        assert subscription.proven == 0

    run(work())


def test_what_is_held_is_given_back():
    """L31: a clean close waits for the answers, and gives back what is held."""

    async def work():
        connection, subscription = await started()
        connection.bring(1, 2, 3)
        await subscription.deliver()
        subscription.settle(1, 1)
        closing = asyncio.create_task(subscription.close(requeue=True))
        await asyncio.sleep(0.1)
        assert not connection.sent(b"-NAK")
        connection.answer(1)
        await closing
        assert len(connection.sent(b"-NAK")) == 2

    run(work())
