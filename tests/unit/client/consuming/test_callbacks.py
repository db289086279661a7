"""Consumers with a callback, over a scripted broker: C10, and the thread that runs callbacks."""

import asyncio
import functools
import threading

import pytest

from ackq import errors
from ackq.client.consuming.callbacks import CallbackThread
from tests.fakes import scripted_channel as fake
from tests.unit.client import threads
from tests.unit.client.consuming.scripts import channel, outcomes, react, serve, settles
from tests.unit.client.threads import SOON_S, client_threads


class Calls:
    """A callback that records the bodies it got, and raises on some of them.

    Attributes:
        running: It was called.
        go_on: It returns once this is set, if it is held.
        done: It got the last of the wanted messages.
    """

    def __init__(self, wanted=1, *, raises_on=(), error=None, held=False):
        self.bodies = []
        self.running, self.go_on, self.done = (threading.Event() for _ in range(3))
        self._wanted = wanted
        self._raises_on = raises_on
        self._error = error
        if not held:
            self.go_on.set()

    def __call__(self, message):
        self.running.set()
        assert self.go_on.wait(SOON_S)
        self.bodies.append(message.body)
        if len(self.bodies) == self._wanted:
            self.done.set()
        if message.body in self._raises_on:
            raise self._error


def consume(broker, calls, *frames, **options):
    """Consumes the frames until the callback has its messages, then closes the channel."""
    broker.consuming.scripts.append(serve(*frames))
    with channel(broker) as it:
        it.consume("orders", calls, **options)
        assert calls.done.wait(SOON_S)


@pytest.mark.parametrize(
    ("declared", "outcome"), [((), "RELEASED"), (("failed", "rejected"), "FAILED")]
)
@pytest.mark.parametrize("mode", ["auto", "dups_ok"])
def test_a_raising_callback_puts_its_message_back(broker, caplog, mode, declared, outcome):
    """C10: FAILED if declared, else RELEASED; logged once; `sys.exit()` ends nothing either."""
    calls = Calls(2, raises_on=[b"1"], error=SystemExit(3))
    consume(broker, calls, fake.numbered(1, 2), mode=mode, outcomes=declared)
    assert calls.bodies == [b"1", b"2"]
    assert outcomes(broker) == [(1, outcome), (2, "ACCEPTED")]
    (record,) = threads.logged(caplog)
    assert record.getMessage().endswith("of queue 'orders' raised an exception for message 1")


def test_a_raising_callback_says_why(broker):
    """C13: the raised exception becomes the dead-letter reason, whatever characters it holds."""
    calls = Calls(raises_on=[b"1"], error=KeyError("\ud800" + "x" * 9999))
    consume(broker, calls, fake.numbered(1, 1), outcomes="failed")
    (settle,) = settles(broker.consuming.streams[0])
    assert settle.reason.startswith("KeyError: '")
    assert len(settle.reason) <= 500


def test_a_callback_may_settle_its_message_itself(broker):
    """C10: the outcome that the callback set stands, and AUTO adds no accept."""
    broker.consuming.scripts.append(serve(fake.numbered(1, 2)))
    calls = Calls(2)

    def call_back(message):
        message.reject("spoilt")
        calls(message)

    with channel(broker) as it:
        it.consume("orders", call_back, outcomes=["rejected"])
        assert calls.done.wait(SOON_S)
    assert outcomes(broker) == [(1, "REJECTED"), (2, "REJECTED")]


def test_acknowledging_under_a_callbacks_feet_settles_once(broker):
    """C2, C3: a message accepted through another consumer of the channel is not accepted again."""
    calls = Calls(held=True)

    def deliver(request):
        consumer = request.subscribe.consumer
        return fake.numbered(int(consumer), int(consumer), consumer=consumer)

    script = react(subscribe=deliver, settle=lambda request: fake.settled(request, 2))
    broker.consuming.scripts.append(script)
    with channel(broker) as it:
        it.consume("orders", calls)
        assert calls.running.wait(SOON_S)
        second = it.consume("bills", mode="client").receive(SOON_S)
        assert it.acknowledge(second).result(SOON_S) == 2
        calls.go_on.set()
    assert outcomes(broker) == [(1, "ACCEPTED"), (2, "ACCEPTED")]
    assert len(settles(broker.consuming.streams[0])) == 1


def test_close_waits_for_the_callback_that_runs(broker):
    """C10: the message of the running callback is accepted; later messages are released."""
    calls = Calls(held=True)
    broker.consuming.scripts.append(serve(fake.numbered(1, 3)))
    with channel(broker) as it:
        it.consume("orders", calls)
        assert calls.running.wait(SOON_S)
        threading.Timer(0.05, calls.go_on.set).start()
    assert outcomes(broker)[0] == (1, "ACCEPTED")
    assert len(outcomes(broker)) == len(calls.bodies)
    assert client_threads() == []


def test_close_does_not_wait_for_ever(broker):
    """Closing with a timeout raises, and leaves a callback that hangs to its thread."""
    calls = Calls(held=True)
    broker.consuming.scripts.append(serve(fake.numbered(1, 1)))
    it = channel(broker)
    consumer = it.consume("orders", calls)
    assert calls.running.wait(SOON_S)
    with pytest.raises(errors.PreconditionFailedError, match=r"still runs after 0\.05 s"):
        it.close(0.05)
    calls.go_on.set()
    assert consumer.join(SOON_S)
    assert outcomes(broker) == []


def test_an_interrupted_close_ends_the_channel(broker, monkeypatch):
    """C12: Ctrl-C while `close` waits for a callback leaves no stream that keeps messages."""
    calls = Calls(held=True)
    broker.consuming.scripts.append(serve(fake.numbered(1, 3)))
    it = channel(broker)
    it.consume("orders", calls)
    assert calls.running.wait(SOON_S)

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(CallbackThread, "wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            it.close()
    it.close()
    calls.go_on.set()
    threads.no_threads_are_left()
    assert calls.bodies == [b"1"]


def test_a_callback_may_close_its_consumer(broker):
    """Closing the consumer makes this message its last; unread messages are requeued."""
    broker.consuming.scripts.append(serve(fake.numbered(1, 3)))
    calls = Calls(held=True)

    def call_back(message):
        calls(message)
        consumer.close()

    with channel(broker) as it:
        consumer = it.consume("orders", call_back)
        calls.go_on.set()
        assert consumer.join(SOON_S)
    assert calls.bodies == [b"1"]
    assert outcomes(broker) == [(1, "ACCEPTED"), (2, "RELEASED"), (3, "RELEASED")]


def test_a_callback_may_flush_and_pull_and_not_close_its_channel(broker):
    """C9, C15: two calls wait for the channel's thread; closing would wait for the callback's."""
    done = threading.Event()
    pulled, caught = [], []

    def call_back(message):
        message.accept()
        it.flush(SOON_S)
        pulled.extend(it.get("bills"))
        caught.extend(threads.refusals(it.close))
        done.set()

    pull = fake.numbered(2, 2, get_number=1)
    script = react(subscribe=fake.numbered(1, 1), settle=fake.settled, get=pull)
    broker.consuming.scripts.append(script)
    with channel(broker) as it:
        it.consume("orders", call_back, mode="client")
        assert done.wait(SOON_S)
    assert [each.body for each in pulled] == [b"2"]
    (refusal,) = caught
    assert "may close its consumer" in refusal


def test_what_cannot_be_called_back_is_refused(broker):
    """C10: a coroutine function would never be awaited and lose its messages silently."""

    class Late:
        async def __call__(self, _):
            pass

    with channel(broker) as it:
        for wrong in (asyncio.sleep, Late(), functools.partial(asyncio.sleep, 0)):
            with pytest.raises(errors.InvalidArgumentError, match="AsyncChannel"):
                it.consume("orders", wrong)
        with pytest.raises(errors.InvalidArgumentError, match="'callback' is a str"):
            it.consume("orders", "print")
    assert broker.consuming.streams == []


def test_a_callback_that_gets_no_thread_leaves_no_consumer(broker, monkeypatch):
    """If the callback's thread cannot start, no unreferenced consumer collects messages."""
    with channel(broker) as it:
        it.consume("bills").close()
        with monkeypatch.context() as patched:
            threads.refuse_threads(patched, "ackq-consumer")
            with pytest.raises(RuntimeError, match="can't start new thread"):
                it.consume("orders", print)
        assert it._state.inboxes == []


def test_a_consumer_with_a_callback_has_join_in_place_of_receive(broker):
    """`join` returns False after its timeout, and True when the consumer has ended."""
    with channel(broker) as it:
        consumer = it.consume("orders", print)
        with pytest.raises(errors.PreconditionFailedError, match="callback"):
            consumer.receive()
        with pytest.raises(errors.PreconditionFailedError, match="no callback"):
            it.consume("orders").join()
        assert not consumer.join(0.01)
        consumer.close()
        assert consumer.join(0)
